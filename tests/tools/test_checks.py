import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import InputError
from follmer.tools.checks import (
    as_key,
    fraction,
    nonnegative_int,
    options_checked,
    positive_float,
    positive_int,
)


@options_checked
def three(first, second=2, *, third=3):
    """Words about three."""
    return first, second, third


def same_key(left, right):
    return left.dtype == right.dtype and bool(
        jnp.all(jax.random.key_data(left) == jax.random.key_data(right))
    )


def test_a_typed_key_is_itself(key):
    assert as_key(key) is key


def test_an_old_style_key_is_wrapped():
    assert same_key(as_key(jax.random.PRNGKey(7)), jax.random.key(7))


def test_one_row_of_split_keys_is_a_key(key):
    assert same_key(as_key(jax.random.split(key)[0]), jax.random.split(key)[0])


def test_keys_pass_under_jit(key):
    assert jax.jit(lambda key: jax.random.normal(as_key(key)))(key) == jax.random.normal(key)


def test_split_keys_are_refused(key):
    with pytest.raises(InputError, match=r"(?s)key has shape \(3,\).*jax.random.split"):
        as_key(jax.random.split(key, 3))


def test_old_style_split_keys_are_refused_for_the_same_reason():
    with pytest.raises(InputError, match=r"(?s)key has shape .*jax.random.split"):
        as_key(jax.random.split(jax.random.PRNGKey(0), 3))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "int: 0"),
        (None, "NoneType: None"),
        (np.array([0, 7], np.uint32), r"ndarray: array\(\[0, 7\]"),
        (np.random.default_rng(0), "Generator"),
    ],
    ids=["seed", "none", "numpy", "generator"],
)
def test_what_is_no_key_is_shown(value, shown):
    message = rf"(?s)not a JAX random key but {shown}.*key=jax.random.key\(0\)"
    with pytest.raises(InputError, match=message):
        as_key(value)


def test_float_arrays_are_no_keys():
    with pytest.raises(InputError, match="not a JAX random key"):
        as_key(jnp.zeros(2))


@pytest.mark.parametrize(
    "value", [3, np.int64(3), np.uint8(3), np.array(3), jnp.int32(3)], ids=repr
)
def test_positive_int_takes_whole_numbers(value):
    result = positive_int("count", value)
    assert (result, type(result)) == (3, int)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        np.int64(0),
        3.0,
        np.float32(3),
        jnp.float32(3),
        True,
        np.True_,
        "3",
        None,
        np.nan,
        [3],
    ],
    ids=repr,
)
def test_positive_int_refuses_the_rest(value):
    with pytest.raises(InputError, match="count must be a whole number of at least 1, not"):
        positive_int("count", value)


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), jnp.float32(0.5)], ids=repr
)
def test_floats_take_numbers_of_any_library(value):
    for check in (positive_float, fraction):
        result = check("rate", value)
        assert (result, type(result)) == (0.5, float)


def test_whole_numbers_are_floats_too():
    assert positive_float("rate", 3) == 3.0
    assert positive_float("rate", jnp.int32(3)) == 3.0
    assert fraction("share", 0) == 0.0


NOT_NUMBERS = [True, np.True_, jnp.array(True), "1", None, 1j, jnp.array(0.5j), jnp.ones(1), [0.5]]


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, jnp.nan, *NOT_NUMBERS], ids=repr)
def test_positive_float_refuses_the_rest(value):
    with pytest.raises(InputError, match="rate must be a finite number above 0, not"):
        positive_float("rate", value)


@pytest.mark.parametrize(
    "value", [1, 1.0, -0.1, np.nan, np.inf, jnp.float32(1), *NOT_NUMBERS], ids=repr
)
def test_fraction_refuses_the_rest(value):
    with pytest.raises(InputError, match=r"share must be a number in \[0, 1\), not"):
        fraction("share", value)


@pytest.mark.parametrize("value", [0, 3, np.int64(3), jnp.int32(3)])
def test_nonnegative_int_takes_whole_numbers_from_0(value):
    result = nonnegative_int("count", value)
    assert type(result) is int
    assert result == value


@pytest.mark.parametrize("value", [-1, 0.5, True, None, "2", np.zeros(1, int)])
def test_nonnegative_int_refuses_the_rest(value):
    with pytest.raises(InputError, match="count must be a whole number of at least 0"):
        nonnegative_int("count", value)


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
