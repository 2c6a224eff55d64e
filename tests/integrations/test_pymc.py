"""PyMC models as targets: their densities, names and data; the draws beside those of pm.sample."""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import follmer
from agreement import assert_agrees
from compilations import compiled
from follmer import InputError, Posterior
from follmer.drifts import GaussianMixture
from follmer.posterior.samplers import MixtureFlow
from follmer.targets import values_and_gradients

pm = pytest.importorskip("pymc", reason="the extra pymc is not installed")

RNG = np.random.default_rng(0)
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
COUNTY, X = RNG.integers(0, 4, 60), RNG.normal(size=60)
Y = 1.0 + 0.5 * COUNTY + 0.7 * X + 0.3 * RNG.normal(size=60)
GRADES = np.clip(np.round(1.5 + 0.8 * X + RNG.logistic(size=60)), 0, 3).astype(int)


def eight_schools():
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, SIGMA, observed=SCHOOLS, dims="school")
    return model


def hierarchy():
    """A regression with coords, a container of data and a potential."""
    with pm.Model(coords={"county": list("abcd"), "row": np.arange(60)}) as model:
        x = pm.Data("x", X, dims="row")
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        level = pm.Normal("level", mu, tau, dims="county")
        slope, sigma = pm.Normal("slope", 0, 1), pm.HalfNormal("sigma", 1)
        pm.Potential("tilt", -0.1 * slope**2)
        pm.Normal("y", level[COUNTY] + slope * x, sigma, observed=Y, dims="row")
    return model


def ordinal():
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 2)
        cut = pm.Normal(
            "cut",
            np.array([-1.0, 0.0, 1.0]),
            2.0,
            transform=pm.distributions.transforms.ordered,
            shape=3,
        )
        pm.OrderedLogistic("grade", eta=slope * X, cutpoints=cut, observed=GRADES)
    return model


def constrained():
    """Vectors with fewer coordinates than elements, and bounds on both sides."""
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(3))
        pm.Uniform("inside", -1.0, 2.0, shape=2)
        pm.Multinomial("counts", n=10, p=shares, observed=np.array([2, 3, 5]))
    return model


def walk():
    """Indices as data, a random walk, a sum of zero, a Cholesky factor and missing values."""
    with pm.Model() as model:
        place = pm.Data("place", np.array([0, 2, 1, 2]))
        steps = pm.GaussianRandomWalk("steps", 0, 1, init_dist=pm.Normal.dist(0, 1), steps=2)
        zero_sum = pm.ZeroSumNormal("zero_sum", shape=3)
        factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
        pm.MvNormal("pair", 0, chol=factor, observed=np.array([[1.0, 0.5], [-0.3, 0.2]]))
        seen = np.ma.masked_invalid([1.0, np.nan, 2.0, 0.5])
        with warnings.catch_warnings():
            # PyMC says that it imputes.
            warnings.simplefilter("ignore")
            pm.Normal("y", (steps + zero_sum)[place], 1, observed=seen)
    return model


def silent():
    """Nothing is observed."""
    with pm.Model() as model:
        pm.Normal("z", 1.0, 2.0)
    return model


MODELS = [eight_schools, hierarchy, ordinal, constrained, walk, silent]


def gaussian(target):
    mixture = GaussianMixture(
        np.ones(1), np.zeros((1, target.dim)), 0.3 * np.eye(target.dim)[None], target.dtype
    )
    return Posterior(target, MixtureFlow(target, mixture), progress=False)


def evaluated(target):
    return values_and_gradients(target, np.full((2, target.dim), 0.3, np.float32))


@pytest.mark.parametrize("made", MODELS, ids=lambda made: made.__name__)
def test_density_and_draws_are_those_of_pymc(made, x64):
    model = made()
    target = follmer.from_pymc(model)
    free = {name: RNG.normal(size=shape) for name, shape in target.source.graph.shapes.items()}
    point = {model.rvs_to_values[model[name]].name: value for name, value in free.items()}
    x = target.unconstrain({name: jnp.asarray(value) for name, value in free.items()})
    expected = model.compile_logp(mode="FAST_COMPILE")(point)
    # PyTensor keeps some constants in single precision.
    np.testing.assert_allclose(target.log_density(x), expected, rtol=1e-8)
    draw = target.constrain(x)
    wanted = [one.name for one in (*model.free_RVs, *model.deterministics)]
    assert sorted(draw) == sorted(wanted)
    outputs = [one for one in model.unobserved_value_vars if one.name in wanted]
    found = model.compile_fn(outputs, inputs=model.value_vars, mode="FAST_COMPILE")(point)
    for variable, value in zip(outputs, found, strict=True):
        np.testing.assert_allclose(draw[variable.name], value, rtol=1e-10)


def test_pymc_leaves_the_settings_of_jax_alone():
    follmer.from_pymc(eight_schools())
    assert jnp.zeros(()).dtype == jnp.float32
    assert "pymc.sampling.jax" in sys.modules
    assert evaluated(follmer.from_pymc(eight_schools()))[0].dtype == np.float32


def test_other_data_compile_nothing_and_change_the_density(x64):
    target = follmer.from_pymc(hierarchy())
    assert set(target.source.data) == {"x", "y"}
    compiled(evaluated, target)
    other = target.with_data({"x": 2 * X, "y": -Y})
    assert compiled(evaluated, other) == 0
    with hierarchy() as model:
        pm.set_data({"x": 2 * X})
    fresh = follmer.from_pymc(model).with_data({"y": -Y})
    np.testing.assert_allclose(evaluated(other)[0], evaluated(fresh)[0], rtol=1e-10)
    x = jnp.full(target.dim, 0.3)
    level, sigma = 0.3, np.exp(0.3)
    difference = norm.logpdf(-Y, level + 0.6 * X, sigma) - norm.logpdf(Y, level + 0.3 * X, sigma)
    found = other.log_density(x) - target.log_density(x)
    np.testing.assert_allclose(found, difference.sum(), rtol=1e-6)


def test_the_datatree_keeps_dims_coords_and_data(key):
    posterior = gaussian(follmer.from_pymc(hierarchy()))
    tree = posterior.to_datatree(
        key=key,
        num_samples=100,
        log_likelihood=True,
        posterior_predictive=True,
        resampled=False,
    )
    draws = tree["posterior"]
    assert draws["level"].dims == ("chain", "draw", "county")
    assert list(draws["level"].coords["county"].values) == list("abcd")
    for group in ("log_likelihood", "posterior_predictive"):
        assert tree[group]["y"].dims == ("chain", "draw", "row")
    np.testing.assert_allclose(tree["observed_data"]["y"], Y, rtol=1e-6)
    np.testing.assert_allclose(tree["constant_data"]["x"], X, rtol=1e-6)
    mean = draws["level"].values[0][:, COUNTY] + draws["slope"].values[0][:, None] * X
    sigma = draws["sigma"].values[0][:, None]
    np.testing.assert_allclose(
        tree["log_likelihood"]["y"][0], norm.logpdf(Y, mean, sigma), rtol=1e-4, atol=1e-4
    )
    z = (tree["posterior_predictive"]["y"].values[0] - mean) / sigma
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.std() - 1) < 4 / np.sqrt(2 * z.size)


def discrete():
    with pm.Model() as model:
        pm.Poisson("count", 3.0)
        pm.Bernoulli("flag", 0.5)
        pm.Normal("z")
    return model


def observed():
    with pm.Model() as model:
        pm.Normal("z", observed=1.0)
    return model


def bare():
    with pm.Model() as model:
        pm.HalfNormal("scale", default_transform=None)
    return model


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (discrete, "(?s)discrete free variables: count, flag.*sum them out"),
        (observed, "no free variables, so there is nothing to sample"),
        (pm.Model, "no free variables"),
        (bare, "(?s)without a transform: scale.*default transform"),
        (lambda: 3, "(?s)model is int, not a PyMC model.*from_pymc"),
    ],
    ids=["discrete", "observed", "empty", "bare", "no model"],
)
def test_what_cannot_be_sampled_is_refused_by_name(made, message):
    with pytest.raises(InputError, match=message):
        follmer.from_pymc(made())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"z": Y}, r"(?s)'z' is neither data.*x, y"),
        ({"y": Y[:5]}, r"(?s)new y has shape \(5,\).*set_data"),
        (Y, "(?s)data is ndarray.*x, y"),
    ],
)
def test_data_that_do_not_fit_are_refused(data, message):
    with pytest.raises(InputError, match=message):
        follmer.from_pymc(hierarchy()).with_data(data)


def test_missing_values_are_unknowns_and_the_others_are_observed(key):
    posterior = gaussian(follmer.from_pymc(walk()))
    tree = posterior.to_datatree(key=key, num_samples=5, log_likelihood=True)
    assert tree["posterior"]["y_unobserved"].shape == (1, 5, 1)
    assert tree["posterior"]["y"].shape == (1, 5, 4)
    assert tree["log_likelihood"]["y_observed"].shape == (1, 5, 3)
    np.testing.assert_allclose(tree["observed_data"]["y_observed"], [1.0, 2.0, 0.5])
    np.testing.assert_array_equal(tree["constant_data"]["place"], [0, 2, 1, 2])


def test_without_observations_there_is_no_likelihood(key):
    with pytest.raises(InputError, match="no likelihood to take apart"):
        gaussian(follmer.from_pymc(silent())).to_datatree(
            key=key, num_samples=5, log_likelihood=True
        )


def minibatch():
    with pm.Model() as model:
        rows = pm.Minibatch(Y, batch_size=10)
        pm.Normal("y", pm.Normal("mu"), 1, observed=rows, total_size=60)
    return model


def test_a_graph_without_a_jax_version_is_refused():
    with pytest.raises(InputError, match=r"(?s)cannot be turned into JAX.*from_numpyro"):
        follmer.from_pymc(minibatch())


def test_replicates_see_other_data(key):
    posterior = gaussian(follmer.from_pymc(hierarchy()).with_data({"x": X + 1000.0}))
    tree = posterior.to_datatree(
        key=key, num_samples=50, posterior_predictive=True, resampled=False
    )
    y, slope = tree["posterior_predictive"]["y"].values[0], tree["posterior"]["slope"].values[0]
    # Levels and noise are of order 1.
    np.testing.assert_allclose(y.mean(1), 1000.0 * slope, atol=20.0)


def test_without_pymc_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(InputError, match=r"pip install 'follmer\[pymc\]'"):
        follmer.from_pymc(object())


# PyMC and its dependencies warn of many things.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("made", MODELS[:3], ids=lambda made: made.__name__)
def test_draws_agree_with_those_of_pymc(made):
    """Means and standard deviations, each within Monte-Carlo error of both."""
    model = made()
    trace = pm.sample(
        2000,
        tune=1000,
        chains=4,
        cores=1,
        model=model,
        random_seed=1,
        progressbar=False,
        target_accept=0.95,
    )
    posterior = follmer.fit(follmer.from_pymc(model), key=jax.random.key(0), progress=False)
    assert_agrees(posterior, {name: trace.posterior[name].values for name in trace.posterior})
