"""What ArviZ is given, and what it makes of it."""

import arviz_stats
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from jax.scipy.stats import norm
from scipy import stats

from follmer import InputError, Posterior, Target, from_network, likelihoods
from follmer.drifts import GaussianMixture
from follmer.posterior.samplers import MixtureFlow
from follmer.targets import AbstractTarget
from follmer.targets.affine import from_covariance
from follmer.targets.observations import drawn

X = np.linspace(-1.0, 1.0, 12)
Y = 0.5 + 1.5 * X + 0.3 * np.random.default_rng(0).normal(size=12)
NOISE = 0.4


def line(slope=True):
    """A straight line, or a constant, with known noise: everything has a closed form."""
    size = 2 if slope else 1

    def mean(theta, batch):
        return theta["w"][0] + (theta["w"][1] * batch["x"] if slope else 0.0)

    return Target(
        log_prior=lambda theta: norm.logpdf(theta["w"]).sum(),
        log_likelihood=lambda theta, batch: norm.logpdf(batch["y"], mean(theta, batch), NOISE),
        data={"x": X, "y": Y},
        like={"w": jnp.zeros(size)},
    )


def exact(slope=True):
    design = np.stack([np.ones_like(X), X], 1)[:, : 2 if slope else 1]
    covariance = np.linalg.inv(np.eye(design.shape[1]) + design.T @ design / NOISE**2)
    return covariance @ design.T @ Y / NOISE**2, covariance


def gaussian_sampler(target: AbstractTarget, mean, covariance):
    root = np.linalg.cholesky(covariance)
    mixture = GaussianMixture(np.ones(1), np.asarray(mean)[None], root[None], target.dtype)
    return Posterior(target, MixtureFlow(target, mixture), progress=False)


@pytest.fixture(scope="module")
def proposal():
    """Draws that are shifted and too wide, so that the weights matter; in other coordinates."""
    mean, covariance = exact()
    affine = from_covariance(mean, 4.0 * covariance, "float32")
    whitened = line().whitened(affine)
    sampler = gaussian_sampler(whitened, np.array([0.2, 0.0]), np.eye(2)).sampler
    return Posterior(line(), sampler, progress=False)


def test_resampled_draws_have_the_posteriors_moments_without_weights(proposal, key):
    tree = proposal.to_datatree(key=key, num_samples=2000)
    assert tree["sample_stats"].attrs["resampled"] == 1
    np.testing.assert_array_equal(tree["sample_stats"]["log_weight"], 0.0)
    table = arviz_stats.summary(tree, fmt="xarray", round_to="none", kind="stats")
    mean, covariance = exact()
    ess = proposal.diagnostics(key=key, num_samples=8000).ess_fraction * 8000
    # Of so many proposals by weight, then of so many chosen.
    error = np.sqrt(np.diag(covariance) * (1 / ess + 1 / 2000))
    found = np.asarray(table["w"].sel(summary="mean"))
    assert np.all(np.abs(found - mean) < 4 * error)
    sd = np.asarray(table["w"].sel(summary="sd"))
    np.testing.assert_allclose(sd, np.sqrt(np.diag(covariance)), rtol=4 / np.sqrt(2 * ess))
    # The proposals themselves are far off.
    plain = proposal.to_datatree(key=key, num_samples=2000, resampled=False)
    assert np.all(plain["posterior"]["w"].values.std((0, 1)) > 1.5 * np.sqrt(np.diag(covariance)))


def test_weights_that_are_not_sound_are_left_to_the_reader(key):
    """A proposal much narrower than the posterior: draws chosen by weight would be few."""
    mean, covariance = exact()
    narrow = gaussian_sampler(line(), mean, 0.02 * covariance)
    tree = narrow.to_datatree(key=key, num_samples=500)
    draws = narrow.weighted_sample(500, key=key)
    assert tree["sample_stats"].attrs["resampled"] == 0
    np.testing.assert_allclose(tree["sample_stats"]["log_weight"][0], draws.log_weights, rtol=1e-5)
    np.testing.assert_array_equal(tree["posterior"]["w"][0], draws.position["w"])
    forced = narrow.to_datatree(key=key, num_samples=500, resampled=True)
    assert forced["sample_stats"].attrs["resampled"] == 1
    assert len(np.unique(forced["posterior"]["w"].values[0, :, 0])) < 500


def test_lp_is_the_log_density_in_the_targets_own_coordinates(proposal, key):
    tree = proposal.to_datatree(key=key, num_samples=30)
    w = tree["posterior"]["w"].values[0].astype(float)
    residuals = Y - w[:, :1] - w[:, 1:] * X
    expected = stats.norm.logpdf(w).sum(1) + stats.norm.logpdf(residuals, 0, NOISE).sum(1)
    np.testing.assert_allclose(tree["sample_stats"]["lp"][0], expected, rtol=1e-4)


def test_log_likelihoods_are_those_of_each_row(proposal, key):
    tree = proposal.to_datatree(key=key, num_samples=30, log_likelihood=True)
    w = tree["posterior"]["w"].values[0].astype(float)
    expected = stats.norm.logpdf(Y, w[:, :1] + w[:, 1:] * X, NOISE)
    np.testing.assert_allclose(tree["log_likelihood"]["log_likelihood"][0], expected, rtol=1e-4)
    np.testing.assert_allclose(tree["observed_data"]["y"], Y, rtol=1e-6)


def exact_loo(slope):
    """The log density of each row under the posterior of all others, summed."""
    design = np.stack([np.ones_like(X), X], 1)[:, : 2 if slope else 1]
    total = 0.0
    for i in range(len(X)):
        rest, row = np.delete(design, i, 0), design[i]
        covariance = np.linalg.inv(np.eye(len(row)) + rest.T @ rest / NOISE**2)
        mean = covariance @ rest.T @ np.delete(Y, i) / NOISE**2
        sd = np.sqrt(NOISE**2 + row @ covariance @ row)
        total += stats.norm.logpdf(Y[i], row @ mean, sd)
    return total


# ArviZ's own use of pandas.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_loo_and_compare_of_arviz_agree_with_the_closed_form(key):
    trees = {}
    for name, slope in (("line", True), ("constant", False)):
        posterior = gaussian_sampler(line(slope), *exact(slope))
        trees[name] = posterior.to_datatree(key=key, num_samples=4000, log_likelihood=True)
        loo = arviz_stats.loo(trees[name], pointwise=True)
        logs = trees[name]["log_likelihood"]["log_likelihood"].values[0]
        # 1/E[1/p] of each row: the relative error of the mean of 1/p.
        inverse = np.exp(-logs)
        errors = inverse.std(0) / inverse.mean(0) / np.sqrt(len(inverse))
        # Rows share their draws, so their errors may add up.
        assert abs(loo.elpd - exact_loo(slope)) < 4 * np.sum(errors)
    table = arviz_stats.compare(trees)
    assert list(table.index) == ["line", "constant"]


def network(likelihood, y):
    net = eqx.nn.Linear(1, 2 if likelihood == "categorical" else 1, key=jax.random.key(0))
    return from_network(net, data=(X[:, None], y), likelihood=likelihood)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (likelihoods.Normal(sd=0.5), Y),
        ("normal", Y),
        ("bernoulli", (Y > 0.5).astype(int)),
        ("categorical", (Y > 0.5).astype(int)),
        ("poisson", np.arange(12) % 4),
    ],
    ids=["known noise", "normal", "bernoulli", "categorical", "poisson"],
)
def test_networks_have_observations_covariates_and_replicates(likelihood, y, key):
    target = network(likelihood, y)
    posterior = gaussian_sampler(target, np.zeros(target.dim), 0.1 * np.eye(target.dim))
    tree = posterior.to_datatree(
        key=key, num_samples=20, log_likelihood=True, posterior_predictive=True
    )
    np.testing.assert_allclose(tree["observed_data"]["y"], y, rtol=1e-6)
    np.testing.assert_allclose(tree["constant_data"]["x"], X[:, None], rtol=1e-6)
    assert tree["posterior_predictive"]["y"].shape == (1, 20, 12)
    assert tree["log_likelihood"]["y"].shape == (1, 20, 12)
    assert np.isfinite(tree["posterior_predictive"]["y"]).all()


@pytest.mark.parametrize(
    ("likelihood", "output", "law"),
    [
        (likelihoods.Normal(sd=2.0), 3.0, stats.norm(3.0, 2.0)),
        (likelihoods.Poisson(), np.log(3.5), stats.poisson(3.5)),
        (likelihoods.Bernoulli(), 1.0, stats.bernoulli(1 / (1 + np.exp(-1.0)))),
    ],
    ids=["normal", "poisson", "bernoulli"],
)
def test_replicates_follow_the_likelihood(likelihood, output, law, key):
    count = 4000
    y = np.asarray(drawn(likelihood, jnp.full(count, output, jnp.float32), key), float)
    if law.dist.name == "norm":
        assert stats.kstest(y, law.cdf).pvalue > 1e-3
        return
    values, counts = np.unique(y, return_counts=True)
    np.testing.assert_array_equal(values, np.round(values))
    shares = law.pmf(values)
    # Four standard deviations of a count.
    assert np.all(np.abs(counts - count * shares) < 4 * np.sqrt(count * shares * (1 - shares)) + 1)


def test_axes_and_places_are_named_as_asked(proposal, key):
    names = ["intercept", "slope"]
    tree = proposal.to_datatree(
        key=key, num_samples=10, dims={"w": ["term"]}, coords={"term": names}
    )
    assert tree["posterior"]["w"].dims == ("chain", "draw", "term")
    assert list(tree["posterior"]["w"].sel(term="slope").coords["term"].values.ravel()) == ["slope"]


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_files_of_xarray_bring_everything_back(proposal, key, tmp_path, kind):
    pytest.importorskip("h5netcdf" if kind == "netcdf" else "zarr")
    tree = proposal.to_datatree(key=key, num_samples=20, log_likelihood=True)
    path = tmp_path / f"draws.{kind}"
    if kind == "netcdf":
        tree.to_netcdf(path, engine="h5netcdf")
        back = xarray.open_datatree(path, engine="h5netcdf")
    else:
        tree.to_zarr(path, consolidated=False)
        back = xarray.open_datatree(path, engine="zarr", consolidated=False)
    with back:
        assert set(back.children) == set(tree.children)
        for name in tree.children:
            xarray.testing.assert_equal(back[name].to_dataset(), tree[name].to_dataset())
        assert back["sample_stats"].attrs["khat"] == tree["sample_stats"].attrs["khat"]


def test_arviz_plots_draws_it(proposal, key):
    arviz_plots = pytest.importorskip("arviz_plots")
    tree = proposal.to_datatree(key=key, num_samples=100)
    figure = arviz_plots.plot_dist(tree, backend="matplotlib")
    assert figure is not None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("log_likelihood", "(?s)no data.*log_likelihood="),
        ("posterior_predictive", "(?s)cannot make new observations.*from_numpyro"),
    ],
)
def test_what_a_bare_density_cannot_tell_is_refused(option, message, key):
    bare = Target(lambda theta: norm.logpdf(theta).sum(), jnp.zeros(2))
    posterior = gaussian_sampler(bare, np.zeros(2), np.eye(2))
    with pytest.raises(InputError, match=message):
        posterior.to_datatree(key=key, num_samples=10, **{option: True})
