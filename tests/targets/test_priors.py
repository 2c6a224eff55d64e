import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from follmer import InputError, priors

PARAMETERS = {"w": jnp.array([[0.3, -1.2, 2.0]]), "b": jnp.array([0.5])}
VALUES = np.array([0.3, -1.2, 2.0, 0.5])


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        (priors.Normal(), stats.norm(0, 1)),
        (priors.Normal(0.5), stats.norm(0, 0.5)),
        (priors.Laplace(0.5), stats.laplace(0, 0.5)),
        (priors.Normal({"w": 0.5, "b": 2.0}), stats.norm(0, [0.5, 0.5, 0.5, 2.0])),
        (
            priors.Normal({"w": np.array([1.0, 2.0, 3.0]), "b": 4.0}),
            stats.norm(0, [1.0, 2.0, 3.0, 4.0]),
        ),
        (priors.FanIn("out_in"), stats.norm(0, [*[3**-0.5] * 3, 1.0])),
        (priors.FanIn("in_out", scale=2.0), stats.norm(0, [2.0, 2.0, 2.0, 2.0])),
    ],
)
def test_a_prior_is_normalised_and_scaled_as_said(prior, reference):
    np.testing.assert_allclose(prior(PARAMETERS), reference.logpdf(VALUES).sum(), rtol=1e-5)


def test_an_unknown_scale_is_integrated_out():
    prior, dof, scale = priors.UnknownScale(0.7, 3.0), 3.0, 0.7
    # s² = dof scale² / χ²: the mean of normal densities over the quantiles of χ².
    places = (np.arange(100_000) + 0.5) / 100_000
    sds = scale * np.sqrt(dof / stats.chi2(dof).ppf(places))
    weights = np.prod([stats.norm(0, sds).pdf(w) for w in VALUES[:3]], axis=0).mean()
    expected = np.log(weights) + stats.norm(0, scale).logpdf(VALUES[3])
    np.testing.assert_allclose(prior(PARAMETERS), expected, rtol=1e-4)
    assert np.isclose(prior({"b": PARAMETERS["b"]}), stats.norm(0, scale).logpdf(0.5))


@pytest.mark.parametrize(
    ("layout", "shape", "fan_in"),
    [
        ("out_in", (8, 3), 3),
        ("out_in", (8, 3, 5, 5), 75),
        ("out_in", (8, 1, 1), 1),  # the bias of an Equinox convolution
        ("in_out", (3, 8), 3),
        ("in_out", (5, 5, 3, 8), 75),
        ("in_out", (8,), 1),
    ],
)
def test_fan_in_counts_what_feeds_one_output(layout, shape, fan_in):
    found = priors.FanIn(layout)(jnp.zeros(shape))
    expected = np.prod(shape) * stats.norm.logpdf(0.0, 0.0, fan_in**-0.5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: priors.Normal(0.0), "sd must be"),
        (lambda: priors.Laplace({"w": 1.0, "b": -1.0}), "scale must be"),
        (lambda: priors.Normal(np.array([1.0, np.inf])), "sd must be"),
        (lambda: priors.FanIn("out_in", 0.0), "scale must be"),
        (lambda: priors.FanIn("outin"), "'out_in'"),
        (lambda: priors.UnknownScale(-1.0), "scale must be"),
        (lambda: priors.UnknownScale(dof=0.0), "dof must be"),
    ],
)
def test_scales_must_be_positive_and_layouts_known(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("sd", [{"w": 1.0}, {"w": np.ones(4), "b": 1.0}])
def test_scales_that_do_not_fit_the_parameters_are_refused(sd):
    with pytest.raises(InputError, match="do not fit"):
        priors.Normal(sd)(PARAMETERS)
