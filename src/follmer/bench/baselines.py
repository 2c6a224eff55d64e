"""What a user would try beside follmer, each with one setting for every target.

All act on `target.log_density`, the flat density on R^dim, and are given the same few draws.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer import baselines
from follmer.judging import ChainDiagnostics, diagnose
from follmer.targets import Target

# One budget for every target.
NUM_DRAWS = 4096
NUM_STEPS = 3000
NUM_PARTICLES = 16
LEARNING_RATE = 0.05
NUM_CHAINS = 4
NUM_WARMUP = 500
NUM_SAMPLES = 1000
# Densities evaluated at once; bounds memory.
_CHUNK = 64
_MAX_MAP_STEPS = 1000


class Result(NamedTuple):
    """Draws of one method and what they say; None where the method cannot say it.

    `ess_fraction` is the weights', or for Markov chains that of the worst coordinate.
    """

    draws: PyTree  # as the target reports them, with a leading axis
    log_weights: Float[Array, " draws"] | None
    seconds: float  # compilation included
    gradient_evaluations: int | None
    elbo: float | None = None
    log_evidence: float | None = None
    log_evidence_se: float | None = None
    ess_fraction: float | None = None
    khat: float | None = None
    verdict: str | None = None
    note: str = ""


class Baseline(NamedTuple):
    """A method and the targets for which it is not silly."""

    run: Callable[[Target, PRNGKeyArray], Result]
    min_dim: int = 1
    max_dim: int | None = None
    max_work: int | None = None  # data points × dimensions of one gradient

    def why_not(self, target: Target) -> str | None:
        """The reason to leave this target out, if there is one."""
        if target.dim < self.min_dim:
            return f"skipped: needs at least {self.min_dim} dimensions"
        if self.max_dim is not None and target.dim > self.max_dim:
            return f"skipped: more than {self.max_dim} dimensions"
        if self.max_work is not None and (target.num_data or 0) * target.dim > self.max_work:
            return "skipped: its gradients are too dear for this many of them"
        return None


def weighted(
    draws: PyTree,
    log_weights: Float[Array, " draws"],
    seconds: float,
    gradient_evaluations: int | None,
    note: str = "",
) -> Result:
    """A result whose numbers follow from its log weights.

    They are blind to modes that no draw visits, so alone they are no verdict.
    """
    found = diagnose(log_weights)
    return Result(
        draws,
        log_weights,
        seconds,
        gradient_evaluations,
        found.elbo,
        found.log_evidence,
        found.log_evidence_se,
        found.ess_fraction,
        found.khat,
        note=note,
    )


def mean_field(target: Target, key: PRNGKeyArray, *, num_steps: int = NUM_STEPS) -> Result:
    """NumPyro's AutoNormal."""
    from numpyro.infer.autoguide import AutoNormal

    return _variational(AutoNormal, target, key, num_steps)


def full_rank(target: Target, key: PRNGKeyArray, *, num_steps: int = NUM_STEPS) -> Result:
    """NumPyro's AutoMultivariateNormal."""
    from numpyro.infer.autoguide import AutoMultivariateNormal

    return _variational(AutoMultivariateNormal, target, key, num_steps)


def flow(target: Target, key: PRNGKeyArray, *, num_steps: int = NUM_STEPS) -> Result:
    """NumPyro's AutoIAFNormal: here better than AutoBNAFNormal, in a quarter of its time."""
    from numpyro.infer.autoguide import AutoIAFNormal

    return _variational(AutoIAFNormal, target, key, num_steps)


def laplace(target: Target, key: PRNGKeyArray) -> Result:
    """A normal at the mode found from 0, with the Hessian's curvature, and its weights."""
    start_key, draw_key = jax.random.split(key)
    began = time.perf_counter()
    # Symmetric targets have a saddle at 0 itself.
    start = 1e-3 * jax.random.normal(start_key, (target.dim,), target.dtype)
    mode, num_gradients = _ascend(target, start)
    curvature = np.asarray(_hessian(target, mode), np.float64)
    values, vectors = np.linalg.eigh(-0.5 * (curvature + curvature.T))
    # Flat and upward directions get a wide, finite scale.
    values = np.maximum(values, 1e-8 * (np.abs(values).max() or 1.0))
    factor = jnp.asarray(vectors / np.sqrt(values), target.dtype)
    log_det = -0.5 * float(np.sum(np.log(values)))
    noise = jax.random.normal(draw_key, (NUM_DRAWS, target.dim), target.dtype)
    x = mode + noise @ factor.T
    log_normal = -0.5 * jnp.sum(noise**2, axis=1) - 0.5 * target.dim * np.log(2 * np.pi) - log_det
    log_weights = _log_densities(target, x) - log_normal
    draws = jax.block_until_ready(_reported(target, x))
    # A Hessian costs about one gradient per column.
    return weighted(draws, log_weights, time.perf_counter() - began, num_gradients + target.dim)


def nuts(
    target: Target,
    key: PRNGKeyArray,
    *,
    num_warmup: int = NUM_WARMUP,
    num_samples: int = NUM_SAMPLES,
) -> Result:
    """`follmer.nuts`; the chains know nothing of the evidence."""
    run_key, draw_key = jax.random.split(key)
    began = time.perf_counter()
    posterior = baselines.nuts(
        target,
        key=run_key,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=NUM_CHAINS,
        progress=False,
    )
    draws = jax.block_until_ready(posterior.sample(NUM_CHAINS * num_samples, key=draw_key))
    seconds = time.perf_counter() - began
    found = posterior.diagnostics(key=draw_key)
    assert isinstance(found, ChainDiagnostics)
    note = f"R-hat {found.rhat:.2f}"
    if found.divergences:
        note += f", divergences: {found.divergences}"
    return Result(
        draws,
        None,
        seconds,
        posterior.gradient_evaluations,
        ess_fraction=found.ess_fraction,
        note=note,
    )


BASELINES: dict[str, Baseline] = {
    "mean_field": Baseline(mean_field),
    "full_rank": Baseline(full_rank, max_dim=500),
    "flow": Baseline(flow, min_dim=2, max_dim=200),
    "laplace": Baseline(laplace, max_dim=3000),
    "nuts": Baseline(nuts, max_dim=2000, max_work=300_000),
}


def _model(target: Target) -> Callable[[], None]:
    """The flat density as a NumPyro model: an improper vector and a factor."""
    import numpyro
    from numpyro.distributions import ImproperUniform, constraints

    def model() -> None:
        x = numpyro.sample("x", ImproperUniform(constraints.real_vector, (), (target.dim,)))
        # A target may be a NumPyro model itself, whose sites are no business of this one.
        with numpyro.handlers.block():
            log_density = target.log_density(x.astype(target.dtype))
        numpyro.factor("density", log_density)

    return model


def _variational(
    guide_type: Callable[..., Any], target: Target, key: PRNGKeyArray, num_steps: int
) -> Result:
    import optax
    from numpyro.infer import SVI, Trace_ELBO, init_to_uniform

    fit_key, draw_key = jax.random.split(key)
    model = _model(target)
    guide = guide_type(model, init_loc_fn=init_to_uniform(radius=0.1))
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, num_steps))
    svi = SVI(model, guide, optimiser, Trace_ELBO(num_particles=NUM_PARTICLES))
    began = time.perf_counter()
    # Steps that are not finite are skipped, as follmer skips them.
    fitted = svi.run(fit_key, num_steps, progress_bar=False, stable_update=True)
    x, log_guide = _guide_draws(guide, fitted.params, draw_key)
    log_weights = _log_densities(target, x) - log_guide
    draws = jax.block_until_ready(_reported(target, x))
    return weighted(draws, log_weights, time.perf_counter() - began, num_steps * NUM_PARTICLES)


def _guide_draws(guide: Any, parameters: Any, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Draws of a guide and their log density under it."""
    from numpyro import handlers

    def draw(key: PRNGKeyArray) -> tuple[Array, Array]:
        seeded = handlers.substitute(handlers.seed(guide, key), data=parameters)
        sites = handlers.trace(seeded).get_trace()
        terms = []
        for site in sites.values():
            if site["type"] == "sample":
                # Flows keep the forward pass, as they have no cheap inverse.
                known = site["intermediates"]
                site_log_prob = site["fn"].log_prob
                value = site["value"]
                terms.append(site_log_prob(value, known) if known else site_log_prob(value))
        return sites["x"]["value"], sum(map(jnp.sum, terms), jnp.zeros(()))

    keys = jax.random.split(key, NUM_DRAWS)
    return jax.jit(lambda keys: jax.lax.map(draw, keys, batch_size=_CHUNK))(keys)


def _log_densities(target: Target, x: Float[Array, "draws dim"]) -> Float[Array, " draws"]:
    x = x.astype(target.dtype)
    return jax.jit(lambda x: jax.lax.map(target.log_density, x, batch_size=_CHUNK))(x)


def _reported(target: Target, x: Float[Array, "draws dim"]) -> PyTree:
    return jax.jit(jax.vmap(target.constrain))(x.astype(target.dtype))


def _ascend(target: Target, start: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], int]:
    """A mode by L-BFGS, and the gradients it took."""
    import optax

    def loss(x: Float[Array, " dim"]) -> Float[Array, ""]:
        return -target.log_density(x)

    optimiser = optax.lbfgs(memory_size=50)
    value_and_gradient = optax.value_and_grad_from_state(loss)

    def body(carry: Any) -> Any:
        x, state, count, _, steps = carry
        value, gradient = value_and_gradient(x, state=state)
        updates, state = optimiser.update(
            gradient, state, x, value=value, grad=gradient, value_fn=loss
        )
        count += state[-1].info.num_linesearch_steps
        moved = optax.apply_updates(x, updates)
        # A step that moves nothing, or nowhere, is the last.
        moving = jnp.isfinite(moved).all() & (jnp.abs(moved - x) > 1e-6 * (1 + jnp.abs(x))).any()
        return jnp.where(moving, moved, x), state, count, moving, steps + 1

    def goes_on(carry: Any) -> Any:
        return carry[3] & (carry[4] < _MAX_MAP_STEPS)

    first = (start, optimiser.init(start), jnp.zeros((), int), jnp.array(True), 0)
    mode, _, count, _, _ = jax.jit(lambda carry: jax.lax.while_loop(goes_on, body, carry))(first)
    return mode, int(count)


def _hessian(target: Target, x: Float[Array, " dim"]) -> Float[Array, "dim dim"]:
    def column(direction: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jax.jvp(jax.grad(target.log_density), (x,), (direction,))[1]

    identity = jnp.eye(target.dim, dtype=target.dtype)
    return jax.jit(lambda rows: jax.lax.map(column, rows, batch_size=_CHUNK))(identity)
