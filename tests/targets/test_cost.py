"""What a function costs, by its jaxpr: counted by hand for every rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import StructuredTarget, Target
from follmer.targets.cost import Cost, cost_of

FLOAT, WEIGHT, UNKNOWN = 4, 20, 32


def shaped(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def cost(function, *arguments):
    return cost_of(function, *arguments)[0]


def test_the_shapes_of_what_is_returned_come_along():
    _, shapes = cost_of(lambda a, b: {"c": a @ b, "n": jnp.sum(a) > 0}, shaped(3, 5), shaped(5, 7))
    assert shapes == {"c": shaped(3, 7), "n": shaped(dtype=bool)}


def test_nothing_is_computed():
    # 10¹⁸ numbers would take 4 exabytes.
    huge = 10**18
    assert cost(lambda x: 2.0 * x, shaped(huge)) == Cost(float(huge), float(FLOAT * huge))


def test_arguments_handed_through_are_free():
    assert cost(lambda x: x, shaped(100)) == Cost(0, 0)


def test_a_product_of_each_element_is_one_operation():
    assert cost(lambda x: 2.0 * x, shaped(10)) == Cost(10, 10 * FLOAT)
    assert cost(lambda x: 2.0 * x + 1.0, shaped(10)) == Cost(20, 20 * FLOAT)


def test_a_matrix_product_takes_two_operations_for_each_pair():
    assert cost(jnp.matmul, shaped(3, 5), shaped(5, 7)) == Cost(2 * 3 * 5 * 7, 3 * 7 * FLOAT)
    assert cost(jnp.dot, shaped(9), shaped(9)) == Cost(2 * 9, FLOAT)
    assert cost(jnp.matmul, shaped(4, 3, 5), shaped(4, 5, 7)).operations == 4 * 2 * 3 * 5 * 7
    by_map = cost(jax.vmap(jnp.matmul, (0, None)), shaped(4, 3, 5), shaped(5, 7))
    assert by_map.operations == 4 * 2 * 3 * 5 * 7


def test_a_convolution_takes_two_operations_for_each_weight_and_place():
    found = cost(
        lambda x, k: jax.lax.conv(x, k, (1, 1), "VALID"), shaped(2, 3, 10, 10), shaped(8, 3, 3, 3)
    )
    assert found == Cost(2 * (2 * 8 * 8 * 8) * (3 * 3 * 3), 2 * 8 * 8 * 8 * FLOAT)


@pytest.mark.parametrize(
    "function", [jnp.exp, jnp.log, jnp.tanh, jnp.sin, jax.lax.logistic, jax.lax.lgamma, jax.lax.erf]
)
def test_transcendental_functions_weigh_as_much_as_many_products(function):
    assert cost(function, shaped(10)) == Cost(WEIGHT * 10, 10 * FLOAT)


def test_whole_powers_are_products_and_others_are_not():
    assert cost(lambda x: x**2, shaped(10)).operations == 10
    assert cost(lambda x: x**2.5, shaped(10)).operations == WEIGHT * 10


def test_a_reduction_reads_more_than_it_returns():
    for function in (jnp.sum, jnp.max, lambda x: jnp.sum(x, axis=0)):
        assert cost(function, shaped(50, 20)).operations == 1000
    assert cost(jnp.sum, shaped(50, 20)).bytes == FLOAT


def test_factorisations_are_cubic():
    assert cost(jax.lax.linalg.cholesky, shaped(30, 30)).operations >= 30**3 / 3
    ratios = [
        cost(function, shaped(60, 60)).operations / cost(function, shaped(30, 30)).operations
        for function in (jnp.linalg.cholesky, jnp.linalg.eigvalsh, jnp.linalg.slogdet)
    ]
    assert all(5 < ratio < 9 for ratio in ratios)


def test_the_length_of_a_scan_multiplies_its_operations():
    def repeated(x, length):
        return jax.lax.scan(lambda carry, _: (jnp.exp(carry), None), x, length=length)[0]

    for length in (1, 7, 100):
        found = cost(lambda x, length=length: repeated(x, length), shaped(10))
        assert found.operations == length * WEIGHT * 10
        # One round after the other in the same memory: an inner result, and the last.
        assert found.bytes == 2 * 10 * FLOAT


def test_scans_in_scans_multiply():
    def inner(x):
        return jax.lax.scan(lambda carry, _: (2.0 * carry, None), x, length=5)[0]

    def outer(x):
        return jax.lax.scan(lambda carry, _: (inner(carry), None), x, length=7)[0]

    assert cost(outer, shaped(10)).operations == 5 * 7 * 10
    assert cost(jax.vmap(outer), shaped(3, 10)).operations == 3 * 5 * 7 * 10


def test_what_a_loop_stacks_up_is_held():
    found = cost(lambda x: jax.lax.map(jnp.exp, x), shaped(64))
    assert found == Cost(64 * WEIGHT, (1 + 64) * FLOAT)


def test_a_loop_of_known_length_is_a_scan_and_others_run_for_some_rounds():
    counted = cost(lambda x: jax.lax.fori_loop(0, 7, lambda i, x: jnp.exp(x), x), shaped(10))
    assert 7 * WEIGHT * 10 <= counted.operations < 7 * (WEIGHT * 10 + 3)
    searching = cost(
        lambda x: jax.lax.while_loop(lambda x: x[0] < 1.0, jnp.exp, x), shaped(10)
    ).operations
    assert UNKNOWN * WEIGHT * 10 <= searching < UNKNOWN * (WEIGHT * 10 + 5)


@pytest.mark.parametrize("dear_first", [True, False])
def test_a_branch_takes_the_larger_of_both(dear_first):
    def dear(x):
        return jnp.exp(jnp.exp(x))

    def cheap(x):
        return x + 1.0

    branches = (dear, cheap) if dear_first else (cheap, dear)
    found = cost(lambda flag, x: jax.lax.cond(flag, *branches, x), shaped(dtype=bool), shaped(10))
    alone = cost(dear, shaped(10))
    assert alone.operations <= found.operations <= alone.operations + 2
    assert alone.bytes <= found.bytes <= alone.bytes + 2 * FLOAT
    # Without a choice both are computed.
    both = cost(lambda flag, x: jnp.where(flag, dear(x), cheap(x)), shaped(dtype=bool), shaped(10))
    assert both.operations >= alone.operations + 10


def test_a_switch_takes_the_largest_of_all():
    def power(count):
        return lambda x: jax.lax.scan(lambda c, _: (2.0 * c, None), x, length=count)[0]

    found = cost(
        lambda i, x: jax.lax.switch(i, [power(k) for k in (3, 9, 5)], x),
        shaped(dtype=jnp.int32),
        shaped(10),
    )
    assert 90 <= found.operations < 95


def with_jvp(function):
    wrapped = jax.custom_jvp(function)
    wrapped.defjvp(lambda primals, tangents: (wrapped(*primals), tangents[0]))
    return wrapped


def with_vjp(function):
    wrapped = jax.custom_vjp(function)
    wrapped.defvjp(lambda x: (wrapped(x), None), lambda _, slope: (slope,))
    return wrapped


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, with_jvp, with_vjp, jax.named_call])
def test_functions_in_wrappers_cost_what_they_do(wrap):
    function = wrap(lambda x: jnp.exp(2.0 * x))
    assert cost(lambda x: function(x), shaped(10)) == Cost((WEIGHT + 1) * 10, 20 * FLOAT)


def test_scattered_sums_cost_as_many_operations_as_elements():
    def scattered(x, places):
        return jax.lax.scatter_add(
            jnp.zeros(10),
            places,
            x,
            jax.lax.ScatterDimensionNumbers((), (0,), (0,)),
            mode="promise_in_bounds",
        )

    found = cost(scattered, shaped(1000), shaped(1000, 1, dtype=jnp.int32))
    assert 1000 <= found.operations <= 1020
    assert 10 * FLOAT <= found.bytes <= 20 * FLOAT
    own = cost(
        lambda x: jax.lax.reduce(x, jnp.float32(1.0), lambda a, b: a * b, (0,)), shaped(1000)
    )
    assert 1000 <= own.operations <= 1001


@pytest.mark.parametrize(
    "read",
    [lambda x, i: x[i], lambda x, i: x[7], lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, 1)],
    ids=["by place", "fixed", "slice"],
)
def test_what_is_picked_out_of_many_costs_little(read):
    found = cost(read, shaped(10**6), shaped(dtype=jnp.int32))
    assert found.operations < 20
    assert found.bytes < 20 * FLOAT


def test_bytes_are_those_of_the_dtype():
    for dtype, size in ((jnp.float32, 4), (jnp.float16, 2), (jnp.int8, 1), (bool, 1)):
        assert cost(lambda x: jnp.flip(x), shaped(10, dtype=dtype)).bytes == 10 * size
    assert cost(lambda x: x > 0, shaped(10)).bytes == 10


def test_bytes_in_double_precision(x64):
    assert cost(lambda x: 2.0 * x, shaped(10, dtype=jnp.float64)) == Cost(10, 80)


def test_random_keys_can_be_costed(key):
    found = cost(lambda key: jax.random.normal(jax.random.split(key)[0], (100,)), key)
    assert found.operations > 100 * WEIGHT
    assert found.bytes > 100 * FLOAT


def test_a_gradient_costs_a_few_evaluations():
    """Counted on the gradient's own jaxpr, for a network on data."""

    def log_density(w, x):
        return -jnp.sum(jnp.tanh(x @ w) ** 2)

    arguments = shaped(20, 8), shaped(300, 20)
    found = cost(log_density, *arguments)
    exact = cost(jax.grad(log_density), *arguments).operations
    assert 0.5 < exact / found.of_gradient < 2


def test_a_targets_gradient_cost_is_that_of_prior_and_likelihood():
    x, y = np.ones((50, 3)), np.ones(50)

    def log_prior(w):
        return -0.5 * jnp.sum(w**2)

    def log_likelihood(w, batch):
        return -0.5 * (batch[1] - batch[0] @ w) ** 2

    target = Target(
        log_prior=log_prior, log_likelihood=log_likelihood, data=(x, y), like=jnp.zeros(3)
    )
    parts = cost(log_prior, shaped(3)), cost(log_likelihood, shaped(3), (shaped(50, 3), shaped(50)))
    assert target.gradient_cost == sum(part.of_gradient for part in parts)
    plain = Target(lambda w: log_prior(w), like=jnp.zeros(3))
    assert plain.gradient_cost == parts[0].of_gradient


def test_a_structured_targets_gradient_cost_grows_with_its_locals():
    def build(count):
        return StructuredTarget(
            log_prior_global=norm.logpdf,
            log_prior_local=norm.logpdf,
            log_likelihood=lambda theta, phi, x: norm.logpdf(x, theta),
            data=np.ones(count),
            like_global=jnp.zeros(()),
            like_local=jnp.zeros(()),
        ).gradient_cost

    shared = cost(norm.logpdf, shaped()).of_gradient
    assert build(1000) - shared == pytest.approx(100 * (build(10) - shared))
