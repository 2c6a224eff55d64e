import copy
import json

import pytest

from follmer import FileError, FollmerError, InputError, NonFiniteError
from follmer.errors import closest, optional_module, unknown_option


def test_a_message_has_three_parts():
    error = FollmerError("It broke.", cause="rust", hint="oil")
    assert str(error) == "It broke.\nLikely cause: rust\nTry: oil"


def test_parts_left_out_leave_no_trace():
    assert str(FollmerError("It broke.")) == "It broke."
    assert str(FollmerError("It broke.", hint="oil")) == "It broke.\nTry: oil"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(InputError, ValueError), (NonFiniteError, ArithmeticError), (FileError, OSError)],
)
def test_errors_can_be_caught_by_their_builtin_kin(error, builtin):
    assert issubclass(error, FollmerError)
    assert issubclass(error, builtin)
    assert str(error("It broke.", cause="rust")) == "It broke.\nLikely cause: rust"


@pytest.mark.parametrize("error", [InputError, NonFiniteError, FileError])
def test_errors_survive_a_copy(error):
    original = error("It broke.", cause="rust", hint="oil")
    assert str(copy.copy(original)) == str(original)


def test_closest_puts_the_nearest_first():
    assert closest("grdient", ["stein", "gradient"]).startswith("'gradient'? ")


def test_closest_lists_all_options_sorted():
    assert closest("grdient", ["stein", "gradient"]).endswith("gradient, stein")
    assert closest("zzz", ["b", "a"]) == "one of: a, b"


def test_unknown_option_says_which():
    error = unknown_option("widht", ["width", "depth"])
    assert isinstance(error, InputError)
    assert "'widht' is not an option here." in str(error)
    assert "Try: 'width'? The options are: depth, width" in str(error)


def test_an_optional_module_is_imported():
    assert optional_module("json", extra="files", purpose="reading") is json


def test_a_missing_optional_module_is_told_with_the_extra_to_install():
    message = r"(?s)reading needs nosuchpackage, which cannot be.*pip install 'follmer\[files\]'"
    with pytest.raises(InputError, match=message):
        optional_module("nosuchpackage.part", extra="files", purpose="reading")
