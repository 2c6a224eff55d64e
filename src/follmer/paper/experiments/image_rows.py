"""The rows of the images' tables: what is made of one ensemble, trained flows, SGLD and SGD.

`points`, `ensemble`, `n_sfs`, `n_sfs_calibrated` and `ensemble_cold` come from the same descents,
and the middle three from one run of chains: each part is made once in a run (`Parts`).
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.baselines import PolynomialDecay
from follmer.fitting.fit import PAPER
from follmer.fitting.request import as_schedule
from follmer.fitting.training import train_briefly
from follmer.judging import PredictiveAudit
from follmer.judging.audit import predictions_audited
from follmer.mcmc.ensembles import Ensemble, Schedule, point_estimates, run_ensemble
from follmer.nsfs import NSFS
from follmer.paper.experiments.experiment import Method, baseline
from follmer.paper.experiments.lenet import LeNet
from follmer.paper.experiments.parts import Parts
from follmer.plans.ensemble import METHOD, schedule_for
from follmer.plans.fresh_draws import flow_floor, narrowest_flow, sampler_of
from follmer.posterior.along_chains import ChainFlow
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import AbstractSampler, StoredDraws
from follmer.process import Process
from follmer.targets import Target, from_network, priors
from follmer.targets.affine import diagonal
from follmer.tools.keys import KeyRows, as_keys, key_rows, named_key
from follmer.tools.programs import compiled
from follmer.tools.progress import Bar

# The temperature of the chains that are said to be cold.
TEMPERATURE = 0.1
# Chains of the cold row have this share of the others' steps: they move less.
_COLD_SHARE = 1 / 2
# The scale of the fan-in prior of one row: on training rows of CIFAR10 that are left out, points
# under 2 are better than under 1 and 4 by accuracy and both likelihoods.
_FAN_IN = 2.0
# The flow that STL trains: paths, rows of a batch, iterations, and rate in units of its widths.
_STL_PATHS, _STL_BATCH, _STL_ITERATIONS, _STL_RATE = 8, 128, 1500, 0.05
# Draws of a trained flow that are kept, and that are simulated at once.
_DRAWS, _DRAWS_AT_ONCE = 100, 20


def auto_rows(
    tiny: bool, network: LeNet, sgld_a: float, power: float | None = None
) -> dict[str, Method]:
    """The rows of the library's own way; a calibrated one where a power is known."""
    makers: dict[str, Callable[[_Asked], Posterior]] = {
        "points": _points,
        "points_fan_in": functools.partial(_points_fan_in, network=network),
        "ensemble": _ensemble,
        "n_sfs": _n_sfs,
        "ensemble_cold": _cold,
        "n_sfs_stl": _stl,
    }
    settings: dict[str, dict[str, Any]] = {name: {} for name in makers}
    settings["points_fan_in"]["prior"] = f"fan-in, scale {_FAN_IN:g}"
    settings["ensemble_cold"]["temperature"] = TEMPERATURE
    settings["n_sfs_stl"] = {"objective": "stl", "num_iterations": _STL_ITERATIONS}
    found = {
        name: Method(
            _sharing(make, tiny), settings[name], 8 if "points" in name else 100, shares=True
        )
        for name, make in makers.items()
    }
    if power is not None:
        make = functools.partial(_calibrated, power=power)
        found["n_sfs_calibrated"] = Method(_sharing(make, tiny), {"power": power}, shares=True)
    return {**found, **_baselines(tiny, sgld_a)}


def paper_rows(tiny: bool, drift: str, gamma: float, sgld_a: float) -> dict[str, Method]:
    """The authors' flows; on MNIST the drift has a thousand weights for each of LeNet5's."""
    short = {"num_iterations": 4, "drift_options": {"width": 8}} if tiny else {}
    authors = {
        **{name: value for name, value in PAPER.items() if name != "precondition"},
        "drift": drift,
        "gamma": gamma,
        "batch_size": 32,
        "num_iterations": 18_750,
        **short,
    }
    found = {}
    for name, objective in (("n_sfs", "det"), ("n_sfs_stl", "stl")):
        told = {**authors, "objective": objective, "learning_rate": 1e-5}

        def made(
            target: Target, key: PRNGKeyArray, told: Mapping[str, Any] = told, **own: Any
        ) -> Posterior:
            rate = optax.constant_schedule(1e-5)
            options = {**told, **own, "learning_rate": rate}
            return _trained(target, NSFS(target, **options), key, num_steps=None if tiny else 100)

        found[name] = Method(made, told)
    return {**found, **_baselines(tiny, sgld_a)}


def _baselines(tiny: bool, sgld_a: float) -> dict[str, Method]:
    # The paper's a; a larger b, without which first steps are beyond what the curvature allows.
    decay = PolynomialDecay(sgld_a, b=1000.0)
    rows = {"batch_size": 32 if tiny else 128}
    return {
        **baseline("sgld", tiny, step_size=decay, num_iterations=10_000, thinning=50, **rows),
        **baseline("sgd", tiny, num_iterations=6000, **rows),
    }


class _Asked(NamedTuple):
    """What a row is made for, and the parts that it shares with others."""

    target: Target
    key: PRNGKeyArray
    schedule: Schedule
    parts: Parts


def _sharing(make: Callable[[_Asked], Posterior], tiny: bool) -> Callable[..., Posterior]:
    def made(
        target: Target, key: PRNGKeyArray, num_iterations: int | None = None, *, parts: Parts
    ) -> Posterior:
        parts.begin(target, key, num_iterations)
        schedule = Schedule(4, 40, 80, 2, 32, 32) if tiny else schedule_for(target)
        if num_iterations is not None:
            kept = max(schedule.num_kept * num_iterations // schedule.num_descent_steps, 20)
            schedule = schedule._replace(
                num_descent_steps=num_iterations, num_steps=kept * schedule.thinning
            )
        return make(_Asked(target, key, schedule, parts))

    return made


def _descended(asked: _Asked) -> Float[Array, "members dim"]:
    return asked.parts.part("points", lambda: _descents(asked, asked.target))


def _descents(asked: _Asked, target: Target) -> Float[Array, "members dim"]:
    with Bar(asked.schedule.num_descent_steps, name="descents", unit="step") as bar:
        return point_estimates(target, asked.schedule, asked.key, bar.advance)[0]


def _chains(asked: _Asked) -> Ensemble:
    target, key, schedule, parts = asked
    points = _descended(asked)
    return parts.part("chains", lambda: run_ensemble(target, schedule, key, points=points))


def _points(asked: _Asked) -> Posterior:
    return _averaged(asked, asked.target, _descended(asked))


def _points_fan_in(asked: _Asked, network: LeNet) -> Posterior:
    """The same starts and batches under another prior."""
    data = (asked.target.data["x"], asked.target.data["y"])
    prior = priors.FanIn("out_in", _FAN_IN)
    target = from_network(network, data=data, likelihood="categorical", prior=prior)
    words = f"prior sd {_FAN_IN:g}/√(inputs of a unit), {_FAN_IN:g} for biases: another model"
    return _averaged(asked, target, _descents(asked, target), words)


def _averaged(
    asked: _Asked, target: Target, points: Float[Array, "members dim"], *words: str
) -> Posterior:
    schedule, ends = asked.schedule, np.asarray(points)[:, None]
    how = (
        f"{schedule.num_members} point estimates by {schedule.num_descent_steps} steps of Adam on "
        f"batches of {schedule.batch_size}, averaged: no posterior"
    )
    return _posterior(target, StoredDraws(ends, "points", exact=False), how, *words)


def _ensemble(asked: _Asked) -> Posterior:
    draws = _chains(asked).draws
    sampler = StoredDraws(draws, "ensemble", exact=False)
    found = _posterior(asked.target, sampler, _words(asked.schedule, draws))
    audit_key = named_key(asked.key, "audit")
    return asked.parts.part("audit", lambda: predictions_audited(found, audit_key))


def _n_sfs(asked: _Asked) -> Posterior:
    target, key, schedule, parts = asked
    draws = _chains(asked).draws
    floor = parts.part("floor", lambda: flow_floor(target, draws))
    flow = parts.part(
        "flow", lambda: sampler_of(target, draws, METHOD, named_key(key, "flow"), floor)
    )
    words = ["fresh draws of a flow along the chains"]
    if not isinstance(flow, ChainFlow):
        flow = narrowest_flow(target, draws, floor)
        words.append(
            "no flow along the chains predicts the training rows as well as they do (PSIS-LOO): "
            "this is the narrowest"
        )
    audit = _ensemble(asked).audit
    found = _posterior(target, flow, _words(schedule, draws), *words)
    return found if audit is None else found.with_audit(audit)


def _calibrated(asked: _Asked, power: float) -> Posterior:
    """`n_sfs`, its averaged class probabilities raised to a power."""
    found = _n_sfs(asked)
    assert isinstance(found.audit, PredictiveAudit)
    words = f"averaged class probabilities to the power {power:g}, chosen by training rows left out"
    return found.with_audit(found.audit._replace(sharpness=power)).with_notes(words)


def _cold(asked: _Asked) -> Posterior:
    target, key, schedule, parts = asked
    points = _descended(asked)
    kept = max(int(_COLD_SHARE * schedule.num_kept), 20)
    cold = schedule._replace(temperature=TEMPERATURE, num_steps=kept * schedule.thinning)
    cold_key = named_key(key, "cold")
    draws = parts.part("cold", lambda: run_ensemble(target, cold, cold_key, points=points)).draws
    words = f"temperature {TEMPERATURE}: draws of a density that is sharper than the posterior"
    return _posterior(
        target, StoredDraws(draws, "cold ensemble", exact=False), _words(cold, draws), words
    )


def _stl(asked: _Asked) -> Posterior:
    """A Gaussian process around one chain, its means and widths trained by sticking the landing."""
    target, key, schedule, _ = asked
    first = _chains(asked).draws[0]
    affine = diagonal(first.mean(axis=0), np.maximum(first.std(axis=0), 1e-6), target.dtype)
    short = schedule.num_descent_steps < _STL_ITERATIONS
    algorithm = NSFS(
        target.whitened(affine),
        objective="stl",
        drift="zero",
        num_steps=1,
        num_paths=_STL_PATHS,
        batch_size=min(_STL_BATCH, schedule.batch_size or _STL_BATCH),
        num_iterations=schedule.num_descent_steps if short else _STL_ITERATIONS,
        learning_rate=_STL_RATE,
    )
    found = _trained(target, algorithm, named_key(key, "stl"), None)
    return found.with_notes("begins as independent coordinates with the moments of one chain")


def _trained(
    target: Target, algorithm: NSFS, key: PRNGKeyArray, num_steps: int | None
) -> Posterior:
    """Draws of a trained flow, stored: to weigh each would take all the data."""
    settings = as_schedule(max(algorithm.num_iterations // 20, 1), None, (), True, None)
    run = train_briefly(algorithm, named_key(key, "training"), settings)
    assert run.best is not None
    count = min(_DRAWS_AT_ONCE, _DRAWS)
    keys = key_rows(named_key(key, "draws"), _DRAWS)
    parts = [
        _ends(algorithm.process, run.best, keys[start : start + count], num_steps)
        for start in range(0, _DRAWS, count)
    ]
    draws = np.concatenate(parts)
    affine = algorithm.target.affine
    draws = draws if affine is None else np.asarray(affine.rows(draws), target.dtype)
    words = (
        f"{_DRAWS} draws of a flow trained for {algorithm.num_iterations} iterations, not weighed"
    )
    found = _posterior(target, StoredDraws(draws[None], "n_sfs", exact=False), words)
    found.history.update(run.history)
    return found


@compiled
def _ends(
    process: Process, parameters: Any, rows: KeyRows, num_steps: int | None
) -> Float[Array, "draws dim"]:
    """Ends of paths; their weights, by one row of the data, are not used."""
    row = jax.tree.map(lambda leaf: jnp.asarray(leaf[:1]), process.target.data)
    return process.simulate(parameters, as_keys(rows), num_steps, row)[0]


def _posterior(target: Target, sampler: AbstractSampler, *words: str) -> Posterior:
    return Posterior(target, sampler, notes=words)


def _words(schedule: Schedule, draws: np.ndarray) -> str:
    chains, kept, _ = draws.shape
    return (
        f"{chains} chains of {schedule.num_steps} steps from {schedule.num_descent_steps} steps of "
        f"Adam, {kept} states kept of each (approximate: stochastic-gradient Hamiltonian dynamics "
        f"on batches of {schedule.batch_size})"
    )
