"""Experiments whose data may be missing."""

import pytest

from follmer import FileError
from follmer.datasets.files import data_file

FILES = {
    "a9a": "a9a/a9a",
    "banana": "banana/banana.csv",
    "cifar10": "cifar10/labels.npz",
    "mnist": "mnist/train-images-idx3-ubyte",
    "weight_marginals": "mnist/train-images-idx3-ubyte",
    "ica": "meg/MEG_art_10ch.npz",
    "unmixing": "indian_pines/Indian_pines_corrected.mat",
}


@pytest.fixture
def with_data():
    """Skips the test where the data of the experiment of that name are not here."""

    def check(name):
        try:
            if name in FILES:
                data_file(FILES[name])
        except FileError:
            pytest.skip("its data are not here: set FOLLMER_DATA to the folder that holds them")

    return check
