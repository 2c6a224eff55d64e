"""What a draw costs: MC-SFS evaluates f in every step, O(T·S·#f); a learned drift never does."""

import jax
import jax.numpy as jnp
import pytest

import follmer

NUM_DRAWS = 4


def counted():
    """A density that counts its own evaluations, and the list of what it counted."""
    seen = []

    def log_density(x):
        jax.debug.callback(lambda one: seen.append(one), x[0])
        return -0.5 * jnp.sum((x - 1.0) ** 2)

    return follmer.Target(log_density, like=jnp.zeros(2)), seen


def evaluations(draw, seen):
    """How often the density was evaluated by that function."""
    seen.clear()
    jax.block_until_ready(draw())
    jax.effects_barrier()
    return len(seen)


@pytest.mark.parametrize("variant", ["stein", "gradient"])
@pytest.mark.parametrize(("num_steps", "num_samples"), [(3, 5), (6, 5), (3, 20)])
def test_mc_sfs_evaluates_the_density_in_every_step_for_every_sample(
    num_steps, num_samples, variant
):
    target, seen = counted()
    posterior = follmer.mc_sfs(
        target, num_steps=num_steps, num_samples=num_samples, variant=variant
    )
    found = evaluations(lambda: posterior.sample(NUM_DRAWS, key=jax.random.key(1)), seen)
    # T·S for the path, and one for the weight at its end.
    assert found == NUM_DRAWS * (num_steps * num_samples + 1)


@pytest.mark.parametrize("num_steps", [3, 6])
def test_a_learned_drift_evaluates_it_once_however_many_steps(num_steps):
    target, seen = counted()
    algorithm = follmer.NSFS(target, num_steps=num_steps)
    state = algorithm.init(jax.random.key(0))
    found = evaluations(lambda: algorithm.sample(state, jax.random.key(1), NUM_DRAWS), seen)
    assert found == NUM_DRAWS
