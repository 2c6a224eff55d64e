"""What experiments share: cases and how draws are judged, methods by preset."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import optax
from jaxtyping import PRNGKeyArray, PyTree

from follmer.baselines import PolynomialDecay, mc_sfs, nuts, sgd, sgld
from follmer.fitting.fit import PAPER, fit
from follmer.posterior.posterior import Posterior
from follmer.targets import StructuredTarget, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS = ("auto", "paper")
METHODS = (
    "n_sfs",
    "n_sfs_calibrated",
    "n_sfs_stl",
    "n_sfs_decoupled",
    "mc_sfs",
    "ensemble",
    "ensemble_cold",
    "points",
    "points_fan_in",
    "sgld",
    "sgd",
    "nuts",
)


class Method(NamedTuple):
    """How a posterior is made, and how it is asked.

    `num_samples` draws make predictions, on paths of `num_steps` steps where it is a flow, by
    their weights where `weighted` and the weights are sound. `num_judged` draws tell how even
    those are.
    """

    run: Callable[..., Posterior]  # of a target and a key; a case's own options by name
    settings: Mapping[str, Any]
    num_samples: int = 100
    num_steps: int | None = None
    weighted: bool = False
    num_judged: int = 1024
    shares: bool = False  # whether `run` takes the run's `Parts`, as `parts`
    # Nothing is trained, every draw pays: its seconds are those of the draws that are judged.
    is_timed_by_draws: bool = False

    def given(self, options: Mapping[str, Any]) -> "Method":
        """The same method with some options in place of its own."""
        return self._replace(
            run=functools.partial(self.run, **options),
            settings={**self.settings, **told(options)},
        )


class Draws(NamedTuple):
    """A posterior with the way to ask it: what `judge` and the figures see."""

    posterior: Posterior
    method: Method
    weighted: bool
    key: PRNGKeyArray

    def predict(self, x: Any, y: Any = None, quantiles: Sequence[float] = ()) -> Any:
        """`Posterior.predict` as the method asks it."""
        return self.posterior.predict(
            x,
            y=y,
            quantiles=quantiles,
            key=self.key,
            num_samples=self.method.num_samples,
            num_steps=self.method.num_steps,
            weighted=self.weighted,
        )

    def sample(self, num_samples: int) -> PyTree:
        """Plain draws, chosen by weight where the method goes by weights."""
        ask = self.posterior.resample if self.weighted else self.posterior.sample
        return ask(num_samples, key=self.key, num_steps=self.method.num_steps)


class Case(NamedTuple):
    """One problem of an experiment: its target, and the metrics of draws of it."""

    label: str
    target: Target | StructuredTarget
    judge: Callable[[Draws], dict[str, float]]
    data: Any = None  # what the figures show beside draws
    leave_out: frozenset[str] = frozenset()  # methods that would take hours here
    options: Mapping[str, Mapping[str, Any]] = {}  # of some methods, in place of their own


class Trial(NamedTuple):
    """One case by one method and seed."""

    case: Case
    method: str
    draws: Draws
    metrics: dict[str, float]


class Record(NamedTuple):
    """One case of an experiment by one method and seed, as `results.json` holds it.

    What failed has no metrics and an `error` among its settings.
    """

    experiment: str
    preset: str
    method: str
    seed: int
    metrics: dict[str, float | None]
    seconds: float
    settings: dict[str, Any]


class Picture(NamedTuple):
    """A figure of an experiment with its words; `name` is that of its file, without a suffix."""

    name: str
    title: str
    caption: str
    figure: "Figure"


def n_sfs(
    preset: str, tiny: bool, num_steps: int, learning_rate: float = 1e-4, **authors: Any
) -> dict[str, Method]:
    """The library's default; or the authors' setting, plain and sticking the landing.

    `num_steps` is the paper preset's number of steps when sampling, not always the printed one;
    `learning_rate` is the authors' constant rate.
    """
    short = {"num_iterations": 20, "drift_options": {"width": 8}} if tiny else {}
    if preset == "auto":
        quick = {"precondition": "prior", "audit": False, "num_steps": 4, "num_paths": 8}
        options = {**quick, "drift": "mlp", **short} if tiny else {}
        return {"n_sfs": Method(_fitted(options), options, 100 if tiny else 1000, None, True)}
    found = {}
    for name, objective in (("n_sfs", "det"), ("n_sfs_stl", "stl")):
        told = {**PAPER, "patience": None, **authors, "objective": objective, **short}
        options = {**told, "learning_rate": optax.constant_schedule(learning_rate)}
        told["learning_rate"] = learning_rate
        found[name] = Method(_fitted(options), told, 100, num_steps)
    return found


def baseline(name: str, tiny: bool, **options: Any) -> dict[str, Method]:
    """One of the other samplers, with its options."""
    run: Callable[..., Posterior] = _BASELINES[name]
    if tiny:
        options |= _TINY[name]

    def made(target: Target, key: PRNGKeyArray, **own: Any) -> Posterior:
        if name == "mc_sfs":
            return run(target, **{**options, **own})
        return run(target, key=key, **_with_rows({**options, **own}, target))

    num_samples = 1000 if name == "nuts" else 100
    method = Method(made, told(options), num_samples)
    if name == "mc_sfs":
        # A draw of MC-SFS takes as long as a thousand others.
        method = method._replace(num_judged=100, is_timed_by_draws=True)
    return {name: method}


def authors_sgld(
    tiny: bool, a: float, b: float, num_iterations: int, batch_size: int
) -> dict[str, Method]:
    """SGLD by the schedule that the paper prints, its last 100 iterations kept."""
    kept = {} if tiny else {"burn_in": num_iterations - 100, "thinning": 1}
    options = {"num_iterations": num_iterations, "batch_size": batch_size, **kept}
    return baseline("sgld", tiny, step_size=PolynomialDecay(a, b), **options)


def told(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a record holds them."""
    return {key: value if _plain(value) else repr(value) for key, value in options.items()}


_BASELINES: dict[str, Callable[..., Posterior]] = {
    "mc_sfs": mc_sfs,
    "sgld": sgld,
    "sgd": sgd,
    "nuts": nuts,
}
_TINY: dict[str, dict[str, Any]] = {
    "mc_sfs": {"num_samples": 8, "num_steps": 4},
    "sgld": {"num_iterations": 200, "thinning": 1},
    "sgd": {"num_iterations": 20},
    "nuts": {"num_warmup": 20, "num_samples": 100, "num_chains": 1},
}


def _fitted(options: Mapping[str, Any]) -> Callable[..., Posterior]:
    return lambda target, key, **own: fit(target, key=key, **_with_rows({**options, **own}, target))


def _with_rows(options: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The options with a batch of all rows where there are fewer than it asks for."""
    size = options.get("batch_size")
    fewer = size is not None and size >= (target.num_data or 0)
    return {**options, "batch_size": None} if fewer else dict(options)


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | None)
