"""Draws in files of other formats: all of them, whole or not at all."""

import json
import os
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from jax.scipy.stats import norm

from follmer import FileError, InputError, Posterior, Target
from follmer.drifts import GaussianMixture
from follmer.posterior.samplers import MixtureFlow, StoredDraws


def posterior():
    target = Target(
        lambda theta: norm.logpdf(theta["w"]).sum() + norm.logpdf(theta["b"]),
        {"w": jnp.zeros((2, 2)), "b": jnp.zeros(())},
    )
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 5)), 1.2 * np.eye(5)[None], target.dtype)
    return Posterior(target, MixtureFlow(target, mixture), progress=False)


def test_parquet_has_a_row_per_draw_and_a_column_per_number(key, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra export is not installed")
    options = {"num_samples": 30, "dims": {"w": ["row"]}, "coords": {"row": ["a", "b"]}}
    posterior().export(tmp_path / "draws.parquet", key=key, **options)
    table = parquet.read_table(tmp_path / "draws.parquet")
    tree = posterior().to_datatree(key=key, **options)
    assert table.column_names == [
        *["chain", "draw", "b", "w[a,0]", "w[a,1]", "w[b,0]", "w[b,1]"],
        *["log_weight", "lp"],
    ]
    np.testing.assert_array_equal(table["w[b,0]"], tree["posterior"]["w"].values[0, :, 1, 0])
    np.testing.assert_array_equal(table["lp"], tree["sample_stats"]["lp"].values[0])
    facts = json.loads(table.schema.metadata[b"follmer"])
    assert facts["khat"] == tree["sample_stats"].attrs["khat"]
    assert os.listdir(tmp_path) == ["draws.parquet"]


def test_parquet_keeps_the_chains_apart(key, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra export is not installed")
    draws = np.random.default_rng(0).normal(size=(3, 7, 5)).astype("float32")
    chains = Posterior(posterior().target, StoredDraws(draws, "nuts", True), progress=False)
    chains.export(tmp_path / "draws.pq", key=key)
    table = parquet.read_table(tmp_path / "draws.pq")
    second = np.asarray(table["b"])[np.asarray(table["chain"]) == 1]
    np.testing.assert_array_equal(second, draws[1, :, 0])


def test_netcdf_holds_the_whole_tree(key, tmp_path):
    pytest.importorskip("h5netcdf", reason="the extra export is not installed")
    posterior().export(tmp_path / "draws.nc", key=key, num_samples=30)
    tree = posterior().to_datatree(key=key, num_samples=30)
    with xarray.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as back:
        for name in tree.children:
            xarray.testing.assert_equal(back[name].to_dataset(), tree[name].to_dataset())
    assert os.listdir(tmp_path) == ["draws.nc"]


@pytest.mark.parametrize("name", ["draws.csv", "draws"])
def test_an_unknown_format_is_refused_before_anything_is_drawn(name, key, tmp_path, monkeypatch):
    monkeypatch.setattr(Posterior, "to_datatree", lambda *args, **kwargs: pytest.fail("drawn"))
    with pytest.raises(InputError, match=r"(?s)does not say in which format.*\.parquet"):
        posterior().export(tmp_path / name, key=key)


@pytest.mark.parametrize(("name", "package"), [("a.nc", "h5netcdf"), ("a.parquet", "pyarrow")])
def test_without_the_package_the_error_names_the_extra(name, package, key, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'follmer\[export\]'"):
        posterior().export(tmp_path / name, key=key)


@pytest.mark.parametrize("name", ["draws.nc", "draws.parquet"])
def test_nothing_is_left_half_written(name, key, tmp_path, monkeypatch):
    """The old file stays where the new one cannot be finished."""
    path = tmp_path / name
    path.write_text("old")

    def full(file):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="no space left"):
        posterior().export(path, key=key, num_samples=5)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_misspelt_options_are_named(key, tmp_path):
    with pytest.raises(InputError, match=r"(?s)'num_sample' is not an option.*num_samples"):
        posterior().export(tmp_path / "draws.nc", key=key, num_sample=3)


def test_a_missing_key_is_told(tmp_path):
    with pytest.raises(InputError, match=r"(?s)missing a required argument: 'key'.*jax.random.key"):
        posterior().export(tmp_path / "draws.nc")
    assert os.listdir(tmp_path) == []
