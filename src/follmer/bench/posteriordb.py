"""Twelve posteriors of posteriordb as NumPyro models, and their reference moments."""

import io
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, PyTree
from numpyro.distributions import constraints

from follmer.datasets.files import read
from follmer.errors import InputError, closest
from follmer.integrations import from_numpyro
from follmer.targets import Target
from follmer.targets.space import named_leaves

Data = dict[str, Any]
Model = Callable[[Data], None]


def build(name: str) -> Target:
    """The posterior of that name, given its data."""
    return from_numpyro(_model(name), data_of(name))


def data_of(name: str) -> Data:
    """The data of that posterior, as in posteriordb."""
    _model(name)
    return json.loads(read(f"posteriordb/{name}/data.json"))


def reference(name: str) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every scalar that posteriordb's reference draws name."""
    _model(name)
    with np.load(io.BytesIO(read(f"posteriordb/{name}/reference.npz"))) as file:
        return {
            scalar: (float(file[f"mean__{scalar}"]), float(file[f"sd__{scalar}"]))
            for scalar in file.files
            if "__" not in scalar
        }


def named_scalars(draws: PyTree) -> dict[str, Float[np.ndarray, " draws"]]:
    """Every scalar of a tree of draws under posteriordb's name: `sigma`, `beta[1]`, `C[1,2]`."""
    scalars = {}
    for name, values in named_leaves(draws):
        values = np.asarray(values)
        for place in np.ndindex(values.shape[1:]):
            index = ",".join(str(number + 1) for number in place)
            scalars[f"{name}[{index}]" if place else name] = values[:, *place]
    return scalars


def eight_schools(data: Data) -> None:
    """A hierarchical normal in its non-centred form."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", data["J"]):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, _array(data["sigma"])), obs=_array(data["y"]))


def kidscore_momhsiq(data: Data) -> None:
    columns = _columns(data, "mom_hs", "mom_iq")
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    _flat_regression([1.0, *columns], _array(data["kid_score"]), sigma)


def kidscore_interaction(data: Data) -> None:
    school, iq = _columns(data, "mom_hs", "mom_iq")
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    _flat_regression([1.0, school, iq, school * iq], _array(data["kid_score"]), sigma)


def logearn_interaction(data: Data) -> None:
    height, male = _columns(data, "height", "male")
    response = jnp.log(_array(data["earn"]))
    _flat_regression([1.0, height, male, height * male], response, _flat_positive("sigma"))


def logmesquite_logvas(data: Data) -> None:
    first, second, canopy = _columns(data, "diam1", "diam2", "canopy_height")
    total, density, group = _columns(data, "total_height", "density", "group")
    products = [first * second * canopy, first * second, first / second, total, density]
    columns = [1.0, *map(jnp.log, products), group]
    _flat_regression(columns, jnp.log(_array(data["weight"])), _flat_positive("sigma"))


def nes(data: Data) -> None:
    age = np.asarray(data["age_discrete"])
    columns = [
        1.0,
        *_columns(data, "real_ideo", "race_adj"),
        *(_array(age == category) for category in (2, 3, 4)),
        *_columns(data, "educ1", "gender", "income"),
    ]
    _flat_regression(columns, _array(data["partyid7"]), _flat_positive("sigma"))


def ar_k(data: Data) -> None:
    """Autoregression, given the first K values; beta[1] belongs to the most recent one."""
    order, y = data["K"], _array(data["y"])
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([order]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    lagged = jnp.stack([y[order - lag : len(y) - lag] for lag in range(1, order + 1)], axis=1)
    numpyro.sample("y", dist.Normal(alpha + lagged @ beta, sigma), obs=y[order:])


def garch11(data: Data) -> None:
    y = _array(data["y"])
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    alpha0 = _flat_positive("alpha0")
    alpha1 = numpyro.sample("alpha1", dist.Uniform(0.0, 1.0))
    # Flat on the triangle: a Uniform here would weigh by 1 / (1 − alpha1).
    below = constraints.interval(0.0, 1.0 - alpha1)
    beta1 = numpyro.sample("beta1", dist.ImproperUniform(below, (), ()))

    def step(variance: Array, previous: Array) -> tuple[Array, Array]:
        variance = alpha0 + alpha1 * (previous - mu) ** 2 + beta1 * variance
        return variance, variance

    first = jnp.square(_array(data["sigma1"]))
    _, later = jax.lax.scan(step, first, y[:-1])
    variance = jnp.concatenate([first[None], later])
    numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variance)), obs=y)


def gp_pois_regr(data: Data) -> None:
    """Poisson counts on a latent Gaussian process, whitened; needs 64-bit floats."""
    x = _array(data["x"])
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([data["N"]]).to_event(1))
    distance = (x[:, None] - x[None, :]) / rho
    covariance = alpha**2 * jnp.exp(-0.5 * distance**2) + 1e-10 * jnp.eye(len(x))
    f = numpyro.deterministic("f", jnp.linalg.cholesky(covariance) @ z)
    numpyro.sample("k", dist.Poisson(jnp.exp(f)), obs=jnp.asarray(data["k"]))


def low_dim_gauss_mix(data: Data) -> None:
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
    numpyro.factor("mu_prior", dist.Normal(0.0, 2.0).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Beta(5.0, 5.0))
    weights = dist.Categorical(probs=jnp.stack([theta, 1.0 - theta]))
    mixture = dist.MixtureSameFamily(weights, dist.Normal(mu, sigma))
    numpyro.sample("y", mixture, obs=_array(data["y"]))


def blr(data: Data) -> None:
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([data["D"]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    numpyro.sample("y", dist.Normal(_array(data["X"]) @ beta, sigma), obs=_array(data["y"]))


def hmm_example(data: Data) -> None:
    """Two hidden states, summed out by the forward algorithm."""
    theta1 = numpyro.sample("theta1", dist.Dirichlet(jnp.ones(2)))
    theta2 = numpyro.sample("theta2", dist.Dirichlet(jnp.ones(2)))
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.positive_ordered_vector, (), (2,)))
    numpyro.factor("mu_prior", dist.Normal(jnp.array([3.0, 10.0]), 1.0).log_prob(mu).sum())
    log_transition = jnp.log(jnp.stack([theta1, theta2]))
    log_emission = dist.Normal(mu, 1.0).log_prob(_array(data["y"])[:, None])

    def step(forward: Array, emission: Array) -> tuple[Array, None]:
        return emission + jax.nn.logsumexp(forward[:, None] + log_transition, axis=0), None

    forward, _ = jax.lax.scan(step, log_emission[0], log_emission[1:])
    numpyro.factor("y", jax.nn.logsumexp(forward))


POSTERIORS: dict[str, Model] = {
    "eight_schools-eight_schools_noncentered": eight_schools,
    "kidiq-kidscore_momhsiq": kidscore_momhsiq,
    "kidiq-kidscore_interaction": kidscore_interaction,
    "earnings-logearn_interaction": logearn_interaction,
    "mesquite-logmesquite_logvas": logmesquite_logvas,
    "nes1980-nes": nes,
    "arK-arK": ar_k,
    "garch-garch11": garch11,
    "gp_pois_regr-gp_pois_regr": gp_pois_regr,
    "low_dim_gauss_mix-low_dim_gauss_mix": low_dim_gauss_mix,
    "sblrc-blr": blr,
    "hmm_example-hmm_example": hmm_example,
}


def _model(name: str) -> Model:
    if name not in POSTERIORS:
        raise InputError(f"{name!r} is no posterior of the bench.", hint=closest(name, POSTERIORS))
    return POSTERIORS[name]


def _flat_regression(columns: list[Any], response: Array, sigma: Array) -> None:
    """Normal errors around the columns' combination; beta is flat."""
    rows = jnp.stack([jnp.broadcast_to(column, response.shape) for column in columns], axis=1)
    flat = dist.ImproperUniform(constraints.real_vector, (), (len(columns),))
    beta = numpyro.sample("beta", flat)
    numpyro.sample("y", dist.Normal(rows @ beta, sigma), obs=response)


def _flat_positive(name: str) -> Array:
    """Flat in the value itself, not in its logarithm."""
    return numpyro.sample(name, dist.ImproperUniform(constraints.positive, (), ()))


def _columns(data: Data, *names: str) -> list[Array]:
    return [_array(data[name]) for name in names]


def _array(values: Any) -> Array:
    """In the floating precision that is enabled, whole numbers too."""
    return jnp.asarray(values, dtype=float)
