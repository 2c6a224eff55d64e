"""JAX itself watches that no fit uses a key twice; `test_ladder.py` has the default one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import follmer

BRIEF = {"num_iterations": 20, "num_steps": 4, "audit": False}
X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)


def two_modes():
    return follmer.Target(
        lambda x: jnp.logaddexp(norm.logpdf(x, -3.0), norm.logpdf(x, 3.0))[0], like=jnp.zeros(1)
    )


def hierarchy():
    return follmer.StructuredTarget(
        log_prior_global=norm.logpdf,
        log_prior_local=norm.logpdf,
        log_likelihood=lambda theta, phi, x: norm.logpdf(x, theta),
        data=jnp.linspace(-1.0, 1.0, 6),
        like_global=jnp.zeros(()),
        like_local=jnp.zeros(()),
    )


def regression():
    return follmer.Target(
        log_prior=lambda w: jnp.sum(norm.logpdf(w)),
        log_likelihood=lambda w, batch: norm.logpdf(batch, w[0]),
        data=X[:, 0],
        like=jnp.zeros(1),
    )


def network():
    net = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(1))
    return follmer.from_network(net, data=(X, X[:, 0]), likelihood="normal")


# NUTS is left out: NumPyro's own code takes one key in two branches.
FITS = {
    "mini-batches": lambda key: follmer.fit(
        regression(), key=key, precondition="identity", batch_size=5, progress=False, **BRIEF
    ),
    "memory": lambda key: follmer.fit(
        two_modes(), key=key, objective="adjoint_matching", progress=False, **BRIEF
    ),
    "explore": lambda key: follmer.fit(
        two_modes(), key=key, precondition="explore", progress=False, **BRIEF
    ),
    "structured": lambda key: follmer.fit(hierarchy(), key=key, progress=False, **BRIEF),
    "ensemble": lambda key: follmer.fit(
        network(), key=key, precondition="ensemble", num_iterations=40, progress=False
    ),
    "sgd": lambda key: follmer.sgd(
        regression(), key=key, num_iterations=9, batch_size=5, progress=False
    ),
    "sgld": lambda key: follmer.sgld(
        regression(), key=key, num_iterations=9, thinning=1, batch_size=5, progress=False
    ),
    "mc_sfs": lambda key: follmer.mc_sfs(two_modes(), num_steps=3, num_samples=4),
}


@pytest.mark.parametrize("fitted", FITS.values(), ids=FITS)
def test_no_key_is_used_twice(fitted, key):
    with jax.debug_key_reuse(True):
        draws = fitted(key).sample(4, key=jax.random.key(1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws))


def test_a_key_that_is_used_twice_is_seen(key):
    """Inside of a program, also of one that is compiled already."""

    @jax.jit
    def twice(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    twice(key)
    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        twice(key)
