"""Every target by every method: one record each."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree
from scipy.special import logsumexp

from follmer.bench.baselines import BASELINES, Result, weighted
from follmer.bench.targets import CASES, Case
from follmer.errors import InputError, in_a_line
from follmer.fitting.fit import fit
from follmer.judging import Verdict, pareto_smooth
from follmer.paper.experiments.gaussian_mixture import FOUND, mode_masses
from follmer.paper.experiments.linear_regression import NUM_DRAWS as NUM_PREDICTIVE_DRAWS
from follmer.paper.experiments.linear_regression import Regression
from follmer.targets import Target
from follmer.tools.checks import known_names
from follmer.tools.keys import named_key
from follmer.tools.progress import Progress

METHODS = ("follmer", *BASELINES)
POSTERIORDB_METHODS = ("follmer", "nuts", "mean_field")
NUM_DRAWS = 10_000
# Draws that a held-out row's density averages over.
NUM_PREDICTIVE = 1000
# Draws out of which weights choose one predictive set.
_POOL = 2 * NUM_PREDICTIVE_DRAWS


class Record(NamedTuple):
    """One target by one method; None where nothing can be said.

    `mode_weight_error` is the largest |weight in a mode's basin − 1/number of modes|;
    `predictive_ratio` the worse of the errors of predictive mean and standard deviation from 100
    draws, over those expected from 100 exact posterior draws; `log_predictive_density` that of a
    held-out row, averaged over draws plainly unless the verdict is to use the weights.
    """

    target: str
    method: str
    dim: int | None = None
    elbo: float | None = None
    log_evidence: float | None = None
    log_evidence_se: float | None = None
    truth: float | None = None
    truth_is_approximate: bool = False
    ess_fraction: float | None = None
    khat: float | None = None
    verdict: str | None = None
    modes_found: str | None = None
    mode_weight_error: float | None = None
    predictive_ratio: float | None = None
    log_predictive_density: float | None = None
    seconds: float | None = None
    gradient_evaluations: int | None = None
    note: str = ""


class PosteriordbRecord(NamedTuple):
    """One posterior of posteriordb by one method, against Stan's reference draws.

    `location_error` is the worst |mean − reference|/sd; the spreads are the least and greatest
    sd/reference; `reached` asks for errors up to .1 and spreads from .9 to 1.1.
    """

    posterior: str
    method: str
    dim: int | None = None
    location_error: float | None = None
    worst: str | None = None
    spread_min: float | None = None
    spread_max: float | None = None
    reached: bool = False
    verdict: str | None = None
    seconds: float | None = None
    gradient_evaluations: int | None = None
    note: str = ""


def run(
    names: Sequence[str],
    *,
    seed: int = 0,
    methods: Sequence[str] = METHODS,
    progress: Progress = lambda line: None,
) -> Iterator[Record]:
    """One record per target and method; what fails says so in its record."""
    known_names("target", names, CASES)
    known_names("method", methods, METHODS)
    return (
        record
        for name in names
        for record in _records(name, CASES[name], methods, jax.random.key(seed), progress)
    )


def run_posteriordb(
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    methods: Sequence[str] = POSTERIORDB_METHODS,
    progress: Progress = lambda line: None,
) -> Iterator[PosteriordbRecord]:
    """Likewise for the posteriors of posteriordb (all, or those named); needs 64-bit floats."""
    from follmer.bench.posteriordb import POSTERIORS

    names = tuple(POSTERIORS) if names is None else names
    known_names("posterior", names, POSTERIORS)
    known_names("method", methods, METHODS)
    if jnp.result_type(float) != jnp.float64:
        raise InputError(
            "posteriordb needs double precision.",
            cause="several of its models have raw, badly scaled predictors",
            hint="jax.config.update('jax_enable_x64', True) before anything else",
        )
    return (
        record
        for name in names
        for record in _posteriordb_records(name, methods, jax.random.key(seed), progress)
    )


def default_fit(target: Target, key: PRNGKeyArray) -> Result:
    """`follmer.fit` as it comes, and its weighted draws."""
    began = time.perf_counter()
    posterior = fit(target, key=key, progress=False)
    draws, log_weights = posterior.weighted_sample(NUM_DRAWS, key=named_key(key, "draws"))
    seconds = time.perf_counter() - began
    note = "; ".join(posterior.notes)
    verdict = None if posterior.verdict is None else posterior.verdict.value
    spent = posterior.gradient_evaluations
    if not posterior.sampler.weighs:
        return Result(draws, log_weights, seconds, spent, verdict=verdict, note=note)
    # As it was judged when it was fitted, whatever these draws say.
    return weighted(draws, log_weights, seconds, spent, note)._replace(verdict=verdict)


def predictive_ratio(result: Result, known: Regression, rng: np.random.Generator) -> float:
    """Errors of predictions by 100 draws over those by 100 exact draws, the worse of two."""
    draws, weights = _flat(result.draws), _weights(result)
    num_sets = max(len(draws) // _POOL, 1)
    own = [
        known.errors(draws[_resampled(chosen, weights[chosen], rng, NUM_PREDICTIVE_DRAWS)])
        for chosen in np.array_split(rng.permutation(len(draws)), num_sets)
    ]
    return float(np.max(np.mean(own, axis=0) / np.array(known.expected_errors())))


def held_out_density(target: Target, result: Result, x: np.ndarray, y: np.ndarray) -> float:
    """The mean log predictive density of held-out rows, from draws chosen by their weights."""
    predictive = target.predictive
    assert predictive is not None
    weighs = result.verdict == Verdict.USE_WEIGHTS.value
    weights = _weights(result if weighs else result._replace(log_weights=None))
    places = np.arange(len(weights))
    chosen = _resampled(places, weights, np.random.default_rng(0), NUM_PREDICTIVE)

    rows, answers = jnp.asarray(x), jnp.asarray(y)

    def log_densities(theta: PyTree) -> jax.Array:
        return predictive.likelihood_at(theta).log_prob(predictive.outputs(theta, rows), answers)

    thetas = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], result.draws)
    logs = jax.jit(lambda thetas: jax.lax.map(log_densities, thetas, batch_size=8))(thetas)
    return float(np.mean(logsumexp(np.asarray(logs, float), axis=0) - np.log(len(chosen))))


def _records(
    name: str, case: Case, methods: Sequence[str], key: PRNGKeyArray, progress: Progress
) -> Iterator[Record]:
    try:
        target, truth = case.build(), case.true_log_evidence()
    except Exception as error:
        yield from (Record(name, method, note=_told(error)) for method in methods)
        return
    for method in methods:
        progress(f"{name}: {method}")
        record = Record(name, method, target.dim, truth=truth)
        record = record._replace(truth_is_approximate=case.approximate)
        try:
            result = _attempt(target, method, key)
            record = record._replace(**_known(case, target, result, record))
        except Exception as error:
            record = record._replace(note=_told(error))
        yield record


def _posteriordb_records(
    name: str, methods: Sequence[str], key: PRNGKeyArray, progress: Progress
) -> Iterator[PosteriordbRecord]:
    from follmer.bench import posteriordb

    try:
        target, reference = posteriordb.build(name), posteriordb.reference(name)
    except Exception as error:
        yield from (PosteriordbRecord(name, method, note=_told(error)) for method in methods)
        return
    for method in methods:
        progress(f"{name}: {method}")
        record = PosteriordbRecord(name, method, target.dim)
        try:
            result = _attempt(target, method, key)
            scalars = posteriordb.named_scalars(result.draws)
            # NumPyro's guide is used as it comes, without weights.
            weights = _weights(result) if method == "follmer" else None
            record = record._replace(
                **_against(reference, scalars, weights), **_shared(result, record)
            )
        except Exception as error:
            record = record._replace(note=_told(error))
        yield record


class _SkippedError(Exception):
    """The method is not for this target."""


def _attempt(target: Target, method: str, key: PRNGKeyArray) -> Result:
    if method == "follmer":
        return default_fit(target, key)
    if reason := BASELINES[method].why_not(target):
        raise _SkippedError(reason)
    return BASELINES[method].run(target, key)


def _told(error: Exception) -> str:
    if isinstance(error, _SkippedError):
        return str(error)
    return f"failed: {in_a_line(error)}"


def _shared(result: Result, record: Record | PosteriordbRecord) -> dict[str, Any]:
    """The fields that a result and a record have in common."""
    return {name: value for name, value in result._asdict().items() if name in record._fields}


def _known(case: Case, target: Target, result: Result, record: Record) -> dict[str, Any]:
    """What the result says, and how it stands to the case's truths."""
    fields = _shared(result, record)
    if case.modes is not None:
        modes = case.modes()
        masses, share = mode_masses(_flat(result.draws), modes, _weights(result)), 1 / len(modes)
        fields["modes_found"] = f"{np.sum(masses >= FOUND * share)} of {len(modes)}"
        fields["mode_weight_error"] = float(np.max(np.abs(masses - share)))
    if case.regression is not None:
        rng = np.random.default_rng(0)
        fields["predictive_ratio"] = predictive_ratio(result, case.regression(), rng)
    if case.held_out is not None:
        fields["log_predictive_density"] = held_out_density(target, result, *case.held_out())
    return fields


def _against(
    reference: dict[str, tuple[float, float]],
    scalars: dict[str, np.ndarray],
    weights: np.ndarray | None,
) -> dict[str, Any]:
    """Worst errors of means and standard deviations against the reference's."""
    locations, spreads = {}, []
    for name, (mean, sd) in reference.items():
        values = np.asarray(scalars[name], float)
        own_mean = float(np.average(values, weights=weights))
        own_sd = float(np.sqrt(np.average((values - own_mean) ** 2, weights=weights)))
        locations[name] = abs(own_mean - mean) / sd
        spreads.append(own_sd / sd)
    worst = max(locations, key=lambda name: np.nan_to_num(locations[name], nan=np.inf))
    return {
        "location_error": locations[worst],
        "worst": worst,
        "spread_min": min(spreads),
        "spread_max": max(spreads),
        "reached": locations[worst] <= 0.1 and min(spreads) >= 0.9 and max(spreads) <= 1.1,
    }


def _flat(draws: PyTree) -> np.ndarray:
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(draws)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _weights(result: Result) -> np.ndarray:
    if result.log_weights is None:
        count = len(jax.tree.leaves(result.draws)[0])
        return np.full(count, 1 / count)
    return np.exp(pareto_smooth(result.log_weights)[0])


def _resampled(
    chosen: np.ndarray, weights: np.ndarray, rng: np.random.Generator, count: int
) -> np.ndarray:
    """So many of the chosen, systematically by weight."""
    points = (np.arange(count) + rng.uniform()) / count
    places = np.searchsorted(np.cumsum(weights / weights.sum()), points)
    return chosen[np.minimum(places, len(chosen) - 1)]
