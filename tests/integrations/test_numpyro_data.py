"""A NumPyro model's arguments as data: other ones, mini-batches, ArviZ, NumPyro on our draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import OrderedTransform
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood
from scipy.stats import norm

import follmer
from agreement import assert_agrees
from compilations import compiled
from follmer import InputError, Posterior
from follmer.drifts import GaussianMixture
from follmer.posterior.samplers import MixtureFlow
from follmer.targets import values_and_gradients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)).astype("float32")
Y = (X @ np.array([1.0, -0.5]) + 0.3 * RNG.normal(size=40)).astype("float32")


def regression(x, y=None, *, size=None, noise=0.5):
    """Plate of rows, of which `size` are seen at a time; a deterministic and a factor outside."""
    w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(noise))
    numpyro.factor("tilt", -0.1 * jnp.sum(w**2))
    with numpyro.plate("rows", len(x), subsample_size=size) as rows:
        mean = numpyro.deterministic("mean", x[rows] @ w)
        numpyro.sample("y", dist.Normal(mean, sigma), obs=None if y is None else y[rows])


def tagged(x, y, *, size=None):
    """The same rows by numpyro.subsample, with a scale of its own and an event axis."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(x), subsample_size=size):
        batch = numpyro.subsample(x, event_dim=1)
        seen = numpyro.subsample(y, event_dim=0)
        with numpyro.handlers.scale(scale=0.5):
            numpyro.sample("x", dist.Normal(w, 1.0).expand([2]).to_event(1), obs=batch)
        numpyro.sample("y", dist.Normal(w, 1.0), obs=seen)


def gaussian(target):
    mixture = GaussianMixture(
        np.ones(1), np.zeros((1, target.dim)), 0.5 * np.eye(target.dim)[None], target.dtype
    )
    return Posterior(target, MixtureFlow(target, mixture), progress=False)


def evaluated(target):
    return values_and_gradients(target, np.full((2, target.dim), 0.3, np.float32))


def test_with_data_is_the_model_on_other_arguments_and_compiles_nothing():
    target = follmer.from_numpyro(regression, X, y=Y)
    assert set(target.source.data) == {"x", "y"}
    assert compiled(evaluated, target) > 0
    other = target.with_data({"y": -Y})
    assert compiled(evaluated, other) == 0
    fresh = follmer.from_numpyro(regression, X, y=-Y)
    np.testing.assert_array_equal(evaluated(other)[0], evaluated(fresh)[0])
    assert np.all(evaluated(other)[0] != evaluated(target)[0])


def test_a_fit_and_its_datatree_on_other_data_compile_nothing(key):
    def whole(target):
        posterior = follmer.fit(target, key=key, progress=False)
        tree = posterior.to_datatree(key=key, num_samples=50, log_likelihood=True)
        return float(tree["posterior"]["w"].mean(("chain", "draw"))[0])

    found = []
    target = follmer.from_numpyro(regression, X, Y)
    assert compiled(lambda: found.append(whole(target))) > 0
    assert compiled(lambda: found.append(whole(target.with_data({"y": -Y})))) == 0
    # The slope is 1, less a little for the prior; of the mirrored data it is mirrored.
    assert found[0] > 0.5
    assert found[1] < -0.5


def test_with_data_of_another_length(x64):
    target = follmer.from_numpyro(regression, X, Y).with_data({"x": X[:7], "y": Y[:7]})
    fresh = follmer.from_numpyro(regression, X[:7], Y[:7])
    x = jnp.array([0.2, 0.1, -0.4])
    np.testing.assert_allclose(target.log_density(x), fresh.log_density(x), rtol=1e-12)
    assert target.constrain(x)["mean"].shape == (7,)


def untraceable(y, shift=0.0):
    numpyro.sample("z", dist.Normal(np.asarray(y).mean() + shift, 1.0))


def test_with_data_of_a_model_that_cannot_be_traced():
    target = follmer.from_numpyro(untraceable, np.array([1.0, 3.0]), shift=1.0)
    other = target.with_data({"y": np.array([5.0, 7.0])})
    np.testing.assert_allclose(evaluated(other)[0], norm.logpdf(0.3, 7.0), rtol=1e-5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"z": Y}, r"(?s)'z' is not an argument.*x, y"),
        (Y, r"(?s)data is ndarray.*with_data\(\{'x': …, 'y': …\}\)"),
    ],
)
def test_other_names_are_refused(data, message):
    with pytest.raises(InputError, match=message):
        follmer.from_numpyro(regression, X, Y).with_data(data)


def test_files_know_a_models_arguments(key, tmp_path):
    posterior = gaussian(follmer.from_numpyro(regression, X, Y))
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", follmer.from_numpyro(regression, X, Y))
    before, after = (one.sample(4, key=key)["w"] for one in (posterior, loaded))
    np.testing.assert_array_equal(before, after)
    with pytest.raises(follmer.FileError, match="other data"):
        follmer.load(tmp_path / "run", follmer.from_numpyro(regression, X, -Y))


@pytest.mark.parametrize("model", [regression, tagged], ids=["indices", "subsample"])
def test_the_density_of_a_subsampling_model_is_that_of_all_rows(model, x64):
    x, y = X.astype(float), Y.astype(float)
    whole = follmer.from_numpyro(model, x, y)
    target = follmer.from_numpyro(model, x, y, size=8)
    assert target.num_data == 40
    at = 0.3 * np.arange(1.0, target.dim + 1)
    np.testing.assert_allclose(target.log_density(at), whole.log_density(at), rtol=1e-12)
    np.testing.assert_allclose(
        target.row_log_likelihoods(at, np.arange(40)).sum()
        + target.log_prior_density(jnp.asarray(at)),
        whole.log_density(at),
        rtol=1e-12,
    )


@pytest.mark.parametrize("model", [regression, tagged], ids=["indices", "subsample"])
def test_the_average_over_mini_batches_is_the_whole(model, x64):
    """Batches that share out the rows between them, so that the average is exact."""
    target = follmer.from_numpyro(model, X.astype(float), Y.astype(float), size=8)
    at = 0.3 * np.arange(1.0, target.dim + 1)
    rows = np.random.default_rng(1).permutation(40).reshape(5, 8)
    mean = np.mean([target.log_density(at, batch) for batch in rows])
    np.testing.assert_allclose(mean, target.log_density(at), rtol=1e-12)
    first = target.log_density(at, rows[0])
    assert abs(first - target.log_density(at)) > 1e-3


def test_training_on_mini_batches_of_a_plate(key):
    target = follmer.from_numpyro(regression, X, Y, size=8)
    posterior = follmer.fit(
        target,
        key=key,
        batch_size=8,
        num_iterations=10,
        num_steps=2,
        num_paths=8,
        drift_options={"width": 4, "depth": 1},
        precondition="identity",
        audit=False,
        progress=False,
    )
    assert posterior.sample(3, key=key)["mean"].shape == (3, 40)


def test_numpyro_predicts_from_our_draws(key):
    posterior = gaussian(follmer.from_numpyro(regression, X, Y))
    draws = posterior.sample(200, key=key)
    latent = {name: draws[name] for name in ("w", "sigma")}
    new = Predictive(regression, latent)(key, jnp.asarray(X[:3]))
    assert new["y"].shape == (200, 3)
    np.testing.assert_allclose(new["mean"], draws["w"] @ X[:3].T, rtol=1e-4, atol=1e-5)
    # NumPyro itself indexes by a traced row.
    found = log_likelihood(regression, draws, jnp.asarray(X), jnp.asarray(Y))["y"]
    expected = norm.logpdf(Y, draws["w"] @ X.T, draws["sigma"][:, None])
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("size", [None, 8])
def test_the_datatree_knows_plates_observations_and_covariates(size, key):
    posterior = gaussian(follmer.from_numpyro(regression, X, Y, size=size))
    tree = posterior.to_datatree(
        key=key, num_samples=20, log_likelihood=True, posterior_predictive=True
    )
    assert tree["posterior"]["mean"].dims == ("chain", "draw", "rows")
    assert tree["posterior"]["w"].dims == ("chain", "draw", "w_dim_0")
    for group in ("log_likelihood", "posterior_predictive"):
        assert tree[group]["y"].dims == ("chain", "draw", "rows")
        assert set(tree[group].data_vars) == {"y"}
    np.testing.assert_array_equal(tree["observed_data"]["y"], Y)
    assert tree["observed_data"]["y"].dims == ("rows",)
    assert set(tree["constant_data"].data_vars) == {"x"}
    draws = tree["posterior"]
    by_numpyro = log_likelihood(
        regression,
        {name: draws[name].values[0] for name in ("w", "sigma")},
        jnp.asarray(X),
        jnp.asarray(Y),
    )["y"]
    np.testing.assert_allclose(tree["log_likelihood"]["y"][0], by_numpyro, rtol=2e-3, atol=2e-3)


def test_replicates_scatter_around_their_own_draw(key):
    posterior = gaussian(follmer.from_numpyro(regression, X, Y))
    tree = posterior.to_datatree(
        key=key, num_samples=500, posterior_predictive=True, resampled=False
    )
    draws = tree["posterior"]
    z = (tree["posterior_predictive"]["y"] - draws["mean"]) / draws["sigma"]
    # Independent standard normals.
    count = z.size
    assert abs(float(z.mean())) < 4 / np.sqrt(count)
    assert abs(float(z.std()) - 1) < 4 / np.sqrt(2 * count)


def eight_schools():
    scales = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        seen = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
        numpyro.sample("y", dist.Normal(theta, scales), obs=seen)


def hierarchy():
    county = np.arange(40) % 4
    mu, tau = (
        numpyro.sample("mu", dist.Normal(0, 2)),
        numpyro.sample("tau", dist.HalfNormal(1)),
    )
    with numpyro.plate("counties", 4):
        level = numpyro.sample("level", dist.Normal(mu, tau))
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(level[county] + slope * X[:, 0], sigma), obs=Y)


def ordinal():
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    base = dist.Normal(jnp.zeros(3), 2.0).to_event(1)
    cut = numpyro.sample("cut", dist.TransformedDistribution(base, OrderedTransform()))
    grades = np.digitize(Y, [-1.0, 0.0, 1.0])
    numpyro.sample("grade", dist.OrderedLogistic(slope * X[:, 0], cut), obs=grades)


@pytest.mark.slow
@pytest.mark.parametrize("model", [eight_schools, hierarchy, ordinal], ids=lambda one: one.__name__)
def test_draws_agree_with_those_of_numpyro(model):
    kernel = NUTS(model, target_accept_prob=0.95)
    chains = MCMC(
        kernel,
        num_warmup=1000,
        num_samples=2000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jax.random.key(1))
    posterior = follmer.fit(follmer.from_numpyro(model), key=jax.random.key(0), progress=False)
    assert_agrees(posterior, chains.get_samples(group_by_chain=True))
