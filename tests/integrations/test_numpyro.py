import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.distributions import constraints
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density

import follmer
from compilations import compiled
from follmer import InputError

Y = np.array([0.3, -1.2, 2.0])


def schools(y, *, scale=1.0):
    """A hierarchy with a plate, a deterministic and a keyword."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(scale))
    with numpyro.plate("schools", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def simplexes(y):
    """Supports with fewer coordinates than elements, and one of bounds that differ."""
    numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("factor", dist.LKJCholesky(3, 2.0))
    numpyro.sample("zero_sum", dist.ZeroSumNormal(1.0, (4,)))
    low = jnp.array([0.0, 1.0])
    bounded = numpyro.sample("bounded", dist.TruncatedNormal(0.0, 1.0, low=low).to_event(1))
    with numpyro.plate("rows", 2, dim=-2):
        numpyro.sample("rows_scale", dist.LogNormal(0.0, 1.0))
    with handlers.scale(scale=2.0), numpyro.plate("points", len(y)):
        numpyro.sample("y", dist.Normal(bounded.sum(), 1.0), obs=y)


def triangle(y):
    """Flat where a, b > 0 and a + b < 1, but for a factor."""
    a = numpyro.sample("a", dist.Uniform(0.0, 1.0))
    support = constraints.interval(0.0, 1.0 - a)
    b = numpyro.sample("b", dist.ImproperUniform(support, (), ()))
    numpyro.factor("tilt", -jnp.sum(y**2) * b)


def walk(y):
    """Latent sites inside a scan."""

    def step(state, value):
        state = numpyro.sample("state", dist.Normal(state, 1.0))
        numpyro.sample("y", dist.Normal(state, 0.5), obs=value)
        return state, None

    scan(step, jnp.zeros(()), jnp.asarray(y, float))


MODELS = {
    "schools": schools,
    "simplexes": simplexes,
    "triangle": triangle,
    "walk": walk,
    "reparam": handlers.reparam(
        lambda y: numpyro.sample("y", dist.Normal(y, 2.0).to_event(1)),
        config={"y": LocScaleReparam(0.0)},
    ),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_the_density_is_that_of_the_draw_with_its_jacobian(x64, key, model):
    target = follmer.from_numpyro(model, Y)

    @jax.jit
    def both(x):
        free, draw = target.space.constrain(x), target.constrain(x)
        total, sites = log_density(model, (Y,), {}, {name: draw[name] for name in free})
        inside = []
        for name in free:
            support = sites[name]["fn"].support
            terms = dist.biject_to(support).log_abs_det_jacobian(free[name], draw[name])
            total += jnp.sum(terms)
            inside.append(jnp.all(support(draw[name])))
        return target.log_density(x), total, jnp.stack(inside)

    found, expected, inside = both(jax.random.normal(key, (target.dim,)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert inside.all()


def test_log_density_is_the_hand_computed_one(x64):
    target = follmer.from_numpyro(schools, Y, scale=2.0)
    mu, log_tau, z = 0.4, -0.3, np.array([0.1, -0.5, 1.0])
    x = target.unconstrain({"mu": mu, "tau": log_tau, "z": z})
    tau = np.exp(log_tau)
    prior = norm.logpdf(mu, 0, 5) + np.log(2) + norm.logpdf(tau, 0, 2) + norm.logpdf(z).sum()
    expected = prior + norm.logpdf(Y, mu + tau * z, 1.0).sum() + log_tau
    np.testing.assert_allclose(target.log_density(x), expected, rtol=1e-12)
    np.testing.assert_allclose(target.constrain(x)["theta"], mu + tau * z, rtol=1e-12)


def test_a_support_may_depend_on_another_site(x64, key):
    target = follmer.from_numpyro(triangle, Y)
    x = jnp.array([0.7, 1.5])
    share = jax.nn.sigmoid(x)
    a, b = share[0], (1 - share[0]) * share[1]
    draw = target.constrain(x)
    np.testing.assert_allclose([draw["a"], draw["b"]], [a, b], rtol=1e-12)
    log_jacobian = jnp.sum(jnp.log(share * (1 - share))) + jnp.log(1 - a)
    expected = log_jacobian - np.sum(Y**2) * b
    np.testing.assert_allclose(target.log_density(x), expected, rtol=1e-12)
    draws = jax.vmap(target.constrain)(3.0 * jax.random.normal(key, (200, 2)))
    assert jnp.all(draws["a"] + draws["b"] < 1)


def test_an_improper_prior_adds_nothing(x64):
    def model():
        numpyro.sample("beta", dist.ImproperUniform(constraints.real_vector, (), (2,)))
        numpyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))

    target = follmer.from_numpyro(model)
    x = target.unconstrain({"beta": jnp.array([3.0, -1.0]), "sigma": 0.7})
    np.testing.assert_allclose(target.log_density(x), 0.7, rtol=1e-12)


def test_the_precision_is_the_one_that_is_enabled():
    data = np.arange(3)
    for enabled, dtype in ((False, jnp.float32), (True, jnp.float64)):
        with jax.enable_x64(enabled):
            target = follmer.from_numpyro(schools, data.astype("float32"))
            x = jnp.zeros(target.dim, target.dtype)
            assert target.dtype == dtype
            assert target.log_density(x).dtype == dtype
            assert target.constrain(x)["theta"].dtype == dtype


def test_a_small_fit_returns_every_name(key):
    target = follmer.from_numpyro(schools, Y)
    posterior = follmer.fit(
        target,
        key=key,
        num_iterations=200,
        num_steps=4,
        num_paths=16,
        drift_options={"width": 8, "depth": 1},
        precondition="identity",
        audit=False,
        progress=False,
    )
    draws = posterior.sample(100, key=key)
    shapes = {name: leaf.shape for name, leaf in draws.items()}
    assert shapes == {"mu": (100,), "tau": (100,), "z": (100, 3), "theta": (100, 3)}
    assert jnp.all(draws["tau"] > 0)
    theta = draws["mu"][:, None] + draws["tau"][:, None] * draws["z"]
    np.testing.assert_allclose(draws["theta"], theta, rtol=1e-5, atol=1e-5)
    assert "theta[2]" in posterior.summary(key=key, num_samples=256)


def regression(columns, *, y, degree=1, name="slope", prior=None):
    """Arrays in a dict, a keyword, and arguments that decide what is computed."""
    x = jnp.stack(list(columns.values()), axis=1) ** degree
    slope = numpyro.sample(name, prior or dist.Normal(jnp.zeros(x.shape[1]), 1.0))
    numpyro.deterministic("fitted", x @ slope)
    numpyro.sample("y", dist.Normal(x @ slope, 1.0), obs=y)


def columns(seed):
    rng = np.random.default_rng(seed)
    # Not in the order of their names.
    return {"b": rng.normal(size=6), "a": rng.normal(size=6)}


def evaluated(target):
    return follmer.targets.values_and_gradients(target, np.full((2, target.dim), 0.3, np.float32))


def test_a_second_target_of_the_same_model_and_shapes_compiles_nothing(key):
    def model(columns, **options):
        regression(columns, **options)

    first = follmer.from_numpyro(model, columns(0), y=Y.repeat(2), degree=2)
    second = follmer.from_numpyro(model, columns(1), y=-Y.repeat(2), degree=2)
    assert compiled(evaluated, first) > 0
    assert compiled(evaluated, second) == 0
    # The values are those of its own data.
    values, _ = evaluated(second)
    x = np.stack([columns(1)["b"], columns(1)["a"]], axis=1) ** 2
    slope = np.full(2, 0.3)
    expected = norm.logpdf(slope).sum() + norm.logpdf(-Y.repeat(2), x @ slope).sum()
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    draw = second.constrain(jnp.full(2, 0.3))
    np.testing.assert_allclose(draw["fitted"], x @ slope, rtol=1e-5)


@pytest.mark.parametrize(
    "change", [{"degree": 3}, {"name": "other"}, {"prior": dist.Cauchy(jnp.zeros(2))}]
)
def test_what_is_no_array_is_part_of_the_model(change):
    def evaluated_with(**options):
        return evaluated(follmer.from_numpyro(regression, columns(0), y=Y.repeat(2), **options))

    plain = evaluated_with()
    changed = evaluated_with(**change)
    if "name" in change:
        np.testing.assert_array_equal(changed[0], plain[0])
    else:
        assert np.all(changed[0] != plain[0])


def test_columns_keep_their_order(x64):
    target = follmer.from_numpyro(regression, columns(0), y=Y.repeat(2))
    slope = jnp.array([1.0, 0.0])
    np.testing.assert_allclose(target.constrain(slope)["fitted"], columns(0)["b"], rtol=1e-12)


def by_numpy(y):
    numpyro.sample("z", dist.Normal(np.asarray(y).mean(), 1.0))


def by_branch(y):
    numpyro.sample("z", dist.Normal(1.0 if y.mean() > 0 else -1.0, 1.0).expand([2]))


def by_count(y):
    with numpyro.plate("n", int(y[0])):
        numpyro.sample("z", dist.Normal(y.mean(), 1.0))


class Doubled(np.ndarray):
    """With arithmetic of its own."""

    def sum(self):
        return 2.0 * np.asarray(self).sum()


def by_subclass(y):
    numpyro.sample("z", dist.Normal(y.sum(), 1.0))


def by_seconds(y):
    numpyro.sample("z", dist.Normal(jnp.asarray(y - y[0]), 1.0).to_event(1))


def by_object(y):
    numpyro.sample("z", dist.Normal(y["mean"], 1.0))


class Unhashable(dict):
    """Such as a data frame: it cannot be told whether two are alike."""


@pytest.mark.parametrize(
    ("model", "y", "location"),
    [
        (by_numpy, np.array([1.0, 3.0]), [2.0]),
        (by_branch, np.array([1.0, 3.0]), [1.0, 1.0]),
        (by_count, np.array([3, 5]), [4.0, 4.0, 4.0]),
        (by_subclass, np.array([1.0, 4.0]).view(Doubled), [10.0]),
        (by_seconds, 1.7e9 + np.arange(3.0), [0.0, 1.0, 2.0]),
        (by_object, Unhashable(mean=np.array(2.0)), [2.0]),
    ],
)
def test_a_model_that_cannot_be_traced_with_its_arguments_is_still_sampled(model, y, location):
    target = follmer.from_numpyro(model, y)
    values, gradients = evaluated(target)
    np.testing.assert_allclose(values, norm.logpdf(0.3, np.array(location)).sum(), rtol=1e-5)
    np.testing.assert_allclose(gradients[0], np.array(location) - 0.3, rtol=1e-5)
    # Whatever its arguments were, they are constants of its programs.
    again = follmer.from_numpyro(model, y)
    assert compiled(evaluated, again) > 0


def discrete():
    numpyro.sample("which", dist.Categorical(jnp.ones(2) / 2))
    numpyro.sample("count", dist.Poisson(3.0))
    numpyro.sample("z", dist.Normal(0.0, 1.0))


def subsampled():
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("z", dist.Normal(0.0, 1.0))


def twice_subsampled():
    numpyro.sample("z", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 10, subsample_size=3), numpyro.plate("columns", 4, subsample_size=2):
        pass


def observed():
    numpyro.sample("z", dist.Normal(0.0, 1.0), obs=1.0)


def optimised():
    numpyro.sample("z", dist.Normal(numpyro.param("location", 0.0), 1.0))


def certain():
    with numpyro.plate("rows", 2):
        numpyro.sample("z", dist.Delta(1.0))


def spherical():
    numpyro.sample("z", dist.ProjectedNormal(jnp.ones(3)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (discrete, "(?s)discrete latent sites: which, count.*sum them out"),
        (subsampled, "(?s)inside the subsampled plate rows: z.*StructuredTarget"),
        (twice_subsampled, "(?s)more than one plate: rows, columns.*drop subsample_size"),
        (observed, "no latent sites"),
        (lambda: None, "no latent sites"),
        (optimised, "(?s)without a prior: location.*numpyro.sample"),
        (certain, "(?s)Delta distribution: z.*numpyro.deterministic"),
        (spherical, "(?s)no bijection onto .* site z.*ProjectedNormalReparam"),
        (3, "model is int, not a function"),
    ],
    ids=[
        "discrete",
        "subsampled",
        "twice subsampled",
        "observed",
        "empty",
        "param",
        "delta",
        "sphere",
        "no function",
    ],
)
def test_what_cannot_be_sampled_is_refused_by_name(model, message):
    with pytest.raises(InputError, match=message):
        follmer.from_numpyro(model)


def test_an_error_of_the_model_comes_through_with_a_note():
    with pytest.raises(TypeError, match="'y'") as caught:
        follmer.from_numpyro(schools)
    assert "raised by your model" in " ".join(caught.value.__notes__)
