import copy
import json

import pytest

from follmer import FileError, FollmerError, InputError, NonFiniteError
from follmer.errors import closest, optional_module, options_checked, unknown_option


@options_checked
def three(first, second=2, *, third=3):
    """Words about three."""
    return first, second, third


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


def test_a_good_call_goes_through():
    assert three(1, third=5) == (1, 2, 5)


def test_an_unknown_option_is_an_input_error_with_a_hint():
    with pytest.raises(InputError, match=r"(?s)'thrd' is not an option here.*Try: 'third'\?"):
        three(1, thrd=4)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "three cannot be called this way: missing a required argument: 'first'"),
        ((1, 2, 3), "three cannot be called this way: too many positional arguments"),
    ],
    ids=["too few", "too many"],
)
def test_a_wrong_number_of_arguments_shows_the_signature(args, message):
    with pytest.raises(InputError, match=message) as caught:
        three(*args)
    assert "three(first, second=2, *, third=3)" in str(caught.value)


def test_a_twice_given_argument_is_an_input_error():
    with pytest.raises(InputError, match="multiple values for argument 'first'"):
        three(1, first=1)


def test_a_type_error_from_inside_is_left_alone():
    @options_checked
    def broken(value):
        return value + "text"

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)


def test_a_function_of_any_options_takes_them():
    @options_checked
    def anything(first, **rest):
        return first, rest

    assert anything(1, other=2) == (1, {"other": 2})


def test_self_is_no_option():
    class Thing:
        @options_checked
        def method(self, *, width=1):
            return width

    assert Thing().method(width=3) == 3
    with pytest.raises(InputError) as caught:
        Thing().method(widht=3)
    assert "self" not in str(caught.value)


def test_name_and_docstring_are_kept():
    assert (three.__name__, three.__doc__) == ("three", "Words about three.")


def test_an_optional_module_is_imported():
    assert optional_module("json", extra="files", purpose="reading") is json


def test_a_missing_optional_module_is_told_with_the_extra_to_install():
    message = r"(?s)reading needs nosuchpackage, which cannot be.*pip install 'follmer\[files\]'"
    with pytest.raises(InputError, match=message):
        optional_module("nosuchpackage.part", extra="files", purpose="reading")
