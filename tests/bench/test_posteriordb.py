import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.bench import posteriordb
from follmer.bench.posteriordb import POSTERIORS, build, data_of, named_scalars, reference
from follmer.datasets.files import data_file
from follmer.errors import FileError, InputError

LOG_ROOT = 0.5 * np.log(2 * np.pi)


@pytest.fixture(autouse=True)
def folder(x64):
    try:
        data_file("posteriordb/README.md")
    except FileError:
        pytest.skip("posteriordb is not here: set FOLLMER_DATA to the folder that holds it")


def normal(y, mean, sd):
    return np.sum(-0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - LOG_ROOT)


def numbers(name):
    return {key: np.asarray(value, float) for key, value in data_of(name).items()}


def interaction(beta, sigma):
    data = numbers("kidiq-kidscore_interaction")
    school, iq = data["mom_hs"], data["mom_iq"]
    mean = beta[0] + beta[1] * school + beta[2] * iq + beta[3] * school * iq
    return normal(data["kid_score"], mean, sigma) - np.log(1 + (sigma / 2.5) ** 2)


def earnings(beta, sigma):
    data = numbers("earnings-logearn_interaction")
    slope = beta[1] + beta[3] * data["male"]
    mean = beta[0] + slope * data["height"] + beta[2] * data["male"]
    return normal(np.log(data["earn"]), mean, sigma)


def nes(beta, sigma):
    data = numbers("nes1980-nes")
    age = np.concatenate([[0.0], beta[3:6]])[data["age_discrete"].astype(int) - 1]
    mean = beta[0] + beta[1] * data["real_ideo"] + beta[2] * data["race_adj"] + age
    mean += beta[6] * data["educ1"] + beta[7] * data["gender"] + beta[8] * data["income"]
    return normal(data["partyid7"], mean, sigma)


def blr(beta, sigma):
    data = numbers("sblrc-blr")
    prior = -0.5 * np.sum(np.square(beta)) / 100 - 0.5 * sigma**2 / 100
    return normal(data["y"], data["X"] @ beta, sigma) + prior


def autoregression(alpha, beta, sigma):
    y = numbers("arK-arK")["y"]
    mean = [alpha + sum(beta[k] * y[t - 1 - k] for k in range(5)) for t in range(5, len(y))]
    prior = -0.5 * (alpha**2 + np.sum(np.square(beta))) / 100
    return normal(y[5:], np.array(mean), sigma) + prior - np.log(1 + (sigma / 2.5) ** 2)


REGRESSIONS = {
    "kidiq-kidscore_interaction": interaction,
    "earnings-logearn_interaction": earnings,
    "nes1980-nes": nes,
    "sblrc-blr": blr,
    "arK-arK": autoregression,
}


def vectors(scalars):
    """`beta[1]`, `beta[2]`, … gathered into beta."""
    values = {}
    for name, value in scalars.items():
        values.setdefault(name.split("[")[0], []).append(value)
    return {
        name: np.array(value) if f"{name}[1]" in scalars else value[0]
        for name, value in values.items()
    }


@pytest.mark.parametrize("name", POSTERIORS)
def test_every_reference_name_is_a_draw(name):
    target = build(name)
    both = jax.jit(lambda x: (jax.vmap(target.constrain)(x), jax.vmap(target.log_density)(x)))
    draws, log_densities = both(jnp.zeros((2, target.dim)))
    scalars = named_scalars(draws)
    assert reference(name).keys() <= scalars.keys()
    assert all(column.shape == (2,) for column in scalars.values())
    assert np.all(np.isfinite(log_densities))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_are_the_hand_written_ones(name):
    target, moments = build(name), reference(name)

    def both(shift):
        theta = vectors({scalar: mean + shift * sd for scalar, (mean, sd) in moments.items()})
        free = {**theta, "sigma": np.log(theta["sigma"])}
        log_jacobian = np.log(theta["sigma"])
        return target.log_density(target.unconstrain(free)), (
            REGRESSIONS[name](**theta) + log_jacobian
        )

    (here, expected_here), (there, expected_there) = both(0.0), both(0.5)
    np.testing.assert_allclose(there - here, expected_there - expected_here, rtol=1e-9)


def test_garch_is_flat_on_the_triangle():
    target, data = build("garch-garch11"), numbers("garch-garch11")

    def expected(mu, alpha0, alpha1, beta1):
        variances = [data["sigma1"] ** 2]
        for previous in data["y"][:-1]:
            variances.append(alpha0 + alpha1 * (previous - mu) ** 2 + beta1 * variances[-1])
        share = beta1 / (1 - alpha1)
        log_jacobian = np.log(alpha0 * alpha1 * (1 - alpha1) * share * (1 - share) * (1 - alpha1))
        return normal(data["y"], mu, np.sqrt(variances)) + log_jacobian

    for theta in ((5.0, 1.5, 0.55, 0.3), (5.1, 1.0, 0.8, 0.1)):
        mu, alpha0, alpha1, beta1 = theta
        free = {
            "mu": mu,
            "alpha0": np.log(alpha0),
            "alpha1": np.log(alpha1 / (1 - alpha1)),
            "beta1": np.log(beta1 / (1 - alpha1 - beta1)),
        }
        x = target.unconstrain(free)
        np.testing.assert_allclose(target.log_density(x), expected(*theta), rtol=1e-10)
        np.testing.assert_allclose(target.constrain(x)["beta1"], beta1, rtol=1e-10)


def test_scalars_are_named_from_one():
    draws = {"a": np.zeros(3), "b": np.arange(12.0).reshape(3, 2, 2)}
    scalars = named_scalars(draws)
    assert list(scalars) == ["a", "b[1,1]", "b[1,2]", "b[2,1]", "b[2,2]"]
    np.testing.assert_array_equal(scalars["b[2,1]"], [2.0, 6.0, 10.0])


@pytest.mark.parametrize("function", ["build", "data_of", "reference"])
def test_an_unknown_posterior_is_refused(function):
    with pytest.raises(InputError, match=r"(?s)'arK' is no posterior.*arK-arK"):
        getattr(posteriordb, function)("arK")
