"""Structured targets: densities, batches, frames, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer
from follmer.paths import simulate
from follmer.targets import take
from follmer.targets.affine import from_covariance
from follmer.targets.local import follow, local_frame

NUM_DATA = 4
POINTS = np.random.default_rng(0).normal(size=(NUM_DATA, 3)).astype(np.float32)


def mixed(**changes):
    """Globals with and without a constraint, and locals on a simplex."""
    parts = {
        "log_prior_global": lambda phi: norm.logpdf(phi["a"]).sum() - phi["b"],
        "log_prior_local": lambda theta, phi: jnp.sum(norm.logpdf(theta, phi["a"][0], 2.0)),
        "log_likelihood": lambda theta, phi, x: jnp.sum(norm.logpdf(x, theta, phi["b"])),
        "data": POINTS,
        "like_global": {"a": jnp.zeros(2), "b": jnp.zeros(())},
        "like_local": jnp.zeros(3),
        "constraints": {"global": {"b": constraints.positive}, "local": constraints.simplex},
    }
    return follmer.StructuredTarget(**{**parts, **changes})


def linear_gaussian(num_data=6):
    """x_i | θ_i ~ N(θ_i, .5² I), θ_i | Φ ~ N(B Φ, C), Φ ~ N(0, I): all Gaussian."""
    slope = jnp.array([[1.0, 0.5], [0.0, 2.0]])
    data = np.random.default_rng(1).normal(size=(num_data, 2)).astype(np.float32)
    return follmer.StructuredTarget(
        log_prior_global=lambda phi: jnp.sum(norm.logpdf(phi)),
        log_prior_local=lambda theta, phi: jax.scipy.stats.multivariate_normal.logpdf(
            theta, slope @ phi, jnp.array([[1.0, 0.6], [0.6, 1.0]])
        ),
        log_likelihood=lambda theta, phi, x: jnp.sum(norm.logpdf(x, theta, 0.5)),
        data=data,
        like_global=jnp.zeros(2),
        like_local=jnp.zeros(2),
    )


def evidence_of_linear_gaussian(target):
    """ln N(x | 0, I ⊗ (C + .25 I) + 11ᵀ ⊗ B Bᵀ)."""
    data = np.asarray(target.data.data, float)
    slope = np.array([[1.0, 0.5], [0.0, 2.0]])
    own = np.array([[1.25, 0.6], [0.6, 1.25]])
    num = len(data)
    covariance = np.kron(np.eye(num), own) + np.kron(np.ones((num, num)), slope @ slope.T)
    log_det = np.linalg.slogdet(covariance)[1]
    flat = data.ravel()
    square = flat @ np.linalg.solve(covariance, flat)
    return -0.5 * (square + log_det + flat.size * np.log(2 * np.pi))


def test_the_density_is_that_of_the_joint_target(key):
    target = mixed()
    joint = target.joint()
    assert target.dim == joint.dim == 3 + 2 * NUM_DATA
    for x in jax.random.normal(key, (5, target.dim)):
        np.testing.assert_allclose(target.log_density(x), joint.log_density(x), rtol=1e-5)
        ours, theirs = target.constrain(x), joint.constrain(x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, theirs)


@pytest.mark.parametrize(
    ("step_rule", "size"),
    [("h_transform", 1), pytest.param("euler_maruyama", 3, marks=pytest.mark.slow)],
)
def test_the_average_over_all_batches_is_the_full_batch(step_rule, size, key):
    """Of the gradient of F, path cost and terminal cost together, with every row's noise kept."""
    target = linear_gaussian(NUM_DATA).whitened(from_covariance(np.zeros(2), np.eye(2), "float32"))
    algorithm = follmer.NSFS(target, step_rule=step_rule, num_steps=3, drift_options={"width": 4})
    state = algorithm.init(key)
    parameters = jax.tree.map(lambda leaf: leaf + 0.1, state.parameters)
    own = jax.random.normal(key, (3, 2))
    theirs = jax.random.normal(key, (3, NUM_DATA, 2))

    @jax.jit
    def gradient(chosen):
        def cost(parameters):
            batch = take(target.data, chosen)
            drift = algorithm.process.drift_at(parameters, batch, inference=False)
            diffusion = algorithm.process.diffusion(None, batch)
            noise = jnp.concatenate([own, theirs[:, chosen].reshape(3, -1)], axis=1)
            path = simulate(drift, diffusion, noise)
            log_terminal = target.log_density(path.end, batch) - diffusion.log_reference(path.end)
            return path.kl - path.log_ratio - log_terminal

        return jax.grad(cost)(parameters)

    full = gradient(jnp.arange(NUM_DATA))
    batches = [gradient(jnp.array(rows)) for rows in itertools.combinations(range(NUM_DATA), size)]
    average = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *batches)
    for one, other in zip(jax.tree.leaves(average), jax.tree.leaves(full), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_frames_make_a_linear_gaussian_model_standard_normal(key):
    target = linear_gaussian()
    posterior = follmer.fit(
        target, key=key, num_iterations=1, learning_rate=1e-9, audit=False, progress=False
    )
    log_weights = np.asarray(posterior.log_weights(64, key=key))
    assert log_weights.std() < 1e-2
    assert abs(log_weights.mean() - evidence_of_linear_gaussian(target)) < 1e-2


@pytest.mark.parametrize("whitened", [False, True])
def test_unconstrain_undoes_constrain(whitened, key):
    target = mixed()
    if whitened:
        target = target.whitened(from_covariance(np.zeros(3), np.eye(3), "float32"))
    x = 0.5 * jax.random.normal(key, (target.dim,))
    np.testing.assert_allclose(target.unconstrain(target.constrain(x)), x, atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_a_single_target_stays_single_where_double_is_enabled():
    like = {"a": jnp.zeros(2, "float32"), "b": jnp.zeros((), "float32")}
    target = mixed(like_global=like, like_local=jnp.zeros(3, "float32"))
    log_local, _ = target.free_log_densities()

    def everything(x, shared, row):
        frame = local_frame(log_local, target.local_dim, shared, row)
        placement = follow(frame, log_local, shared, shared, row)
        tangent = target.tangent(shared, frame, row)
        return frame, placement, tangent, target.log_density(x), target.constrain(x)

    shapes = jax.eval_shape(
        everything, jnp.zeros(target.dim, "float32"), jnp.zeros(3, "float32"), POINTS[0]
    )
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(shapes)} == {"float32"}


def test_locals_of_another_number_than_the_data_points_are_refused(key):
    target = mixed()
    theta = target.constrain(jnp.zeros(target.dim))
    with pytest.raises(follmer.InputError, match=r"leading axis \(3,\).*4 data points"):
        target.unconstrain({**theta, "local": theta["local"][:3]})
    with pytest.raises(follmer.InputError, match="dict of both"):
        target.unconstrain(theta["global"])


def test_a_frame_survives_a_density_without_curvature():
    target = mixed(log_prior_local=lambda theta, phi: 0.0 * jnp.sum(theta) * phi["b"])
    flat = mixed(
        log_prior_local=lambda theta, phi: -jnp.sum(jnp.abs(theta)) * phi["b"],
        log_likelihood=lambda theta, phi, x: 0.0 * jnp.sum(x),
        constraints={"global": {"b": constraints.positive}},
    )
    for one in (target, flat):
        frames = one.whitened(from_covariance(np.zeros(3), np.eye(3), "float32")).data.frames
        for leaf in jax.tree.leaves(frames):
            assert np.isfinite(leaf).all()


def test_the_pre_flight_names_a_leaf_of_the_locals(key):
    target = mixed(
        log_prior_local=lambda theta, phi: jnp.sum(jnp.log1p(theta)),
        constraints={"global": {"b": constraints.positive}},
    )
    with pytest.raises(follmer.NonFiniteError, match="leaf local"):
        target.check(key=key)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_likelihood": lambda theta, phi, x: norm.logpdf(x, theta)}, "one number"),
        ({"log_prior_local": lambda theta, phi: theta}, "one number"),
        ({"log_prior_global": 3.0}, "not a function"),
        ({"constraints": {"sigma": constraints.positive}}, "'global' and 'local'"),
        ({"data": np.zeros((0, 3), np.float32)}, "empty"),
        ({"data": (POINTS, POINTS[:2])}, "unequal leading axes"),
        ({"like_local": jnp.zeros(3, jnp.int32)}, "floating point"),
    ],
)
def test_bad_models_are_refused(changes, message):
    with pytest.raises(follmer.InputError, match=message):
        mixed(**changes)


def test_samplers_of_ordinary_targets_point_to_the_joint_one(key):
    with pytest.raises(follmer.InputError, match=r"target\.joint\(\)"):
        follmer.nuts(mixed(), key=key)
