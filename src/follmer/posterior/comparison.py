"""Which of several models the data speak for: evidence, Bayes factors, leave-one-out."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.errors import InputError, closest
from follmer.judging import Diagnostics, Judgement, judge
from follmer.posterior.posterior import Posterior
from follmer.targets.observations import observed_data, outcomes
from follmer.tools.checks import as_key, options_checked, positive_int
from follmer.tools.keys import named_key

# Nats of the Bayes factor from which its evidence has these names (Kass and Raftery 1995, whose
# table is in twice the nats).
_GRADES = (
    (5.0, "very strong evidence"),
    (3.0, "strong evidence"),
    (1.0, "positive evidence"),
    (0.0, "evidence not worth more than a bare mention"),
)
_DRAWS = 2000


class LeaveOneOut(NamedTuple):
    """The log predictive density of every observation given all others, by Pareto smoothing."""

    elpd: float
    se: float
    pointwise: Float[np.ndarray, " observations"]
    num_unsound: int  # rows whose k̂ is too large for so many draws


class Comparison(NamedTuple):
    """Models side by side, in the order in which they were given.

    `log_evidence` ± `log_evidence_se` is ln Z (nan for chains, which know nothing of it);
    `probabilities` those of the models given the data; `leave_one_out` what each says of data that
    it has not seen, None where a target's data are not known row by row. `print` shows all of it in
    words.
    """

    names: tuple[str, ...]
    log_evidence: Float[np.ndarray, " models"]
    log_evidence_se: Float[np.ndarray, " models"]
    probabilities: Float[np.ndarray, " models"]
    judgements: tuple[Judgement, ...]
    leave_one_out: tuple[LeaveOneOut | None, ...]

    def log_bayes_factor(self, one: str, other: str) -> tuple[float, float]:
        """ln of the Bayes factor for `one` over `other`, and its standard error."""
        i, j = (self._place(name) for name in (one, other))
        error = np.hypot(self.log_evidence_se[i], self.log_evidence_se[j]) if i != j else 0.0
        return float(self.log_evidence[i] - self.log_evidence[j]), float(error)

    @property
    def by_evidence(self) -> list[str]:
        """The names of the models whose evidence is known, the best first."""
        known = [i for i in range(len(self.names)) if np.isfinite(self.log_evidence[i])]
        return [self.names[i] for i in sorted(known, key=lambda i: -self.log_evidence[i])]

    @property
    def by_leave_one_out(self) -> list[str]:
        """The names of the models with leave-one-out densities, the best first."""
        known = [(-one.elpd, i) for i, one in enumerate(self.leave_one_out) if one is not None]
        return [self.names[i] for _, i in sorted(known)]

    def elpd_difference(self, one: str, other: str) -> tuple[float, float]:
        """The elpd of `one` less that of `other`, and the standard error over observations."""
        found = [self.leave_one_out[self._place(name)] for name in (one, other)]
        if found[0] is None or found[1] is None:
            raise InputError(f"there is no leave-one-out density of {one} and {other}.")
        gaps = found[0].pointwise - found[1].pointwise
        return float(gaps.sum()), float(gaps.std() * np.sqrt(gaps.size))

    def __str__(self) -> str:
        lines = [*self._table(), "", *self._of_evidence(), *self._of_leave_one_out()]
        for name, judged in zip(self.names, self.judgements, strict=True):
            if not judged.verdict.is_usable:
                lines.append(f"note: {name}: {judged.name}. {judged.advice}")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        width = max(map(len, (*self.names, "model"))) + 2
        heading = f"{'ln Z':>12}{'±':>8}{'probability':>13}{'elpd LOO':>12}{'±':>8}"
        lines = [f"{'model':<{width}}{heading}"]
        for i, name in enumerate(self.names):
            loo = self.leave_one_out[i]
            cells = f"{self.log_evidence[i]:>12.2f}{self.log_evidence_se[i]:>8.2f}"
            cells += f"{self.probabilities[i]:>13.3f}"
            cells += "" if loo is None else f"{loo.elpd:>12.2f}{loo.se:>8.2f}"
            lines.append(f"{name:<{width}}{cells}")
        return lines

    def _of_evidence(self) -> list[str]:
        best, *others = self.by_evidence or [""]
        lines = []
        for other in others:
            nats, error = self.log_bayes_factor(best, other)
            size = f"{np.exp(nats):.3g}" if nats < 20 else f"e^{nats:.0f}"
            lines.append(
                f"{grade(nats, error)} for {best} over {other}: Bayes factor {size} "
                f"(ln {nats:.2f} ± {error:.2f})."
            )
        return [line[0].upper() + line[1:] for line in lines]

    def _of_leave_one_out(self) -> list[str]:
        best, *others = self.by_leave_one_out or [""]
        lines = []
        for other in others:
            gap, error = self.elpd_difference(best, other)
            clear = "predicts better than" if gap > 2 * error else "cannot be told apart from"
            lines.append(f"By leave-one-out, {best} {clear} {other}: {gap:.2f} ± {error:.2f} nats.")
        for name, one in zip(self.names, self.leave_one_out, strict=True):
            if one is not None and one.num_unsound:
                lines.append(
                    f"note: {name}: leave-one-out rests on few draws at {one.num_unsound} of "
                    f"{one.pointwise.size} observations (by their k̂)"
                )
        return lines

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"there is no model {name!r}.", hint=closest(name, self.names))
        return self.names.index(name)


@options_checked
def compare(
    posteriors: Sequence[Posterior],
    *,
    key: PRNGKeyArray,
    names: Sequence[str] | None = None,
    prior: Sequence[float] | None = None,
    num_samples: int = _DRAWS,
) -> Comparison:
    """The models' evidence, Bayes factors and probabilities, and leave-one-out beside them.

    **Arguments:**

    - `posteriors`: of models of the same observations. Their evidence compares only if every model
      keeps its constants and has proper priors.
    - `names`: of the models; "model 1", … by default.
    - `prior`: the models' probabilities before the data; equal by default.
    - `num_samples`: draws from which each is judged.
    """
    posteriors, names = _checked(posteriors, names)
    num_samples, key = positive_int("num_samples", num_samples), as_key(key)
    before = _as_prior(prior, len(posteriors))
    _check_same_observations(posteriors, names)
    found = [
        one.diagnostics(key=named_key(key, f"evidence {i}"), num_samples=num_samples)
        for i, one in enumerate(posteriors)
    ]
    missing = float("nan")
    weighed = [one if isinstance(one, Diagnostics) else None for one in found]
    logs = np.array([missing if one is None else one.log_evidence for one in weighed])
    errors = np.array([missing if one is None else one.log_evidence_se for one in weighed])
    left_out = tuple(
        _leave_one_out(one, named_key(key, f"draws {i}"), num_samples)
        for i, one in enumerate(posteriors)
    )
    _check_same_number(left_out, names)
    judged = tuple(judge(one, post.audit) for one, post in zip(found, posteriors, strict=True))
    return Comparison(names, logs, errors, _probabilities(logs + np.log(before)), judged, left_out)


def grade(nats: float, error: float) -> str:
    """What a Bayes factor of so many nats is called; two names where its error leaves it open."""
    low, high = nats - 2 * error, nats + 2 * error
    if low < 0:
        return "no clear evidence"
    names = [next(name for least, name in _GRADES if value >= least) for value in (low, high)]
    if names[0] == names[1]:
        return names[0]
    return f"{names[0]}, or {names[1]},"


def _probabilities(logs: Float[np.ndarray, " models"]) -> Float[np.ndarray, " models"]:
    """Normalised over all models; not a number where one of them is not known."""
    if not np.isfinite(logs).all():
        return np.full_like(logs, np.nan)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _leave_one_out(posterior: Posterior, key: PRNGKeyArray, count: int) -> LeaveOneOut | None:
    import arviz_stats

    target = posterior.target
    if target.has_locals or not observed_data(target)[0]:
        return None
    tree = posterior.to_datatree(key=key, num_samples=count, log_likelihood=True)
    with warnings.catch_warnings():
        # Of rows whose k̂ is too large; they are counted.
        warnings.simplefilter("ignore", UserWarning)
        parts = [
            arviz_stats.loo(tree, var_name=name, pointwise=True)
            for name in tree["log_likelihood"].data_vars
        ]
    pointwise = np.concatenate([np.ravel(one.elpd_i) for one in parts])
    unsound = sum(int(np.sum(np.asarray(one.pareto_k) > one.good_k)) for one in parts)
    spread = float(pointwise.std() * np.sqrt(pointwise.size))
    return LeaveOneOut(float(pointwise.sum()), spread, pointwise, unsound)


def _checked(
    posteriors: Sequence[Posterior], names: Sequence[str] | None
) -> tuple[list[Posterior], tuple[str, ...]]:
    posteriors = list(posteriors)
    if len(posteriors) < 2 or not all(isinstance(one, Posterior) for one in posteriors):
        raise InputError(
            "compare takes a list of at least two posteriors.",
            hint="follmer.compare([one, other], names=['one', 'other'], key=key)",
        )
    chosen = [f"model {i + 1}" for i in range(len(posteriors))] if names is None else list(names)
    if len(chosen) != len(posteriors) or len(set(chosen)) != len(chosen):
        raise InputError(
            f"names are {chosen}: as many different ones as the {len(posteriors)} posteriors are "
            "wanted."
        )
    return posteriors, tuple(map(str, chosen))


def _as_prior(prior: Sequence[float] | None, count: int) -> Float[np.ndarray, " models"]:
    if prior is None:
        return np.full(count, 1.0 / count)
    values = np.asarray(prior, float)
    if values.shape != (count,) or not np.all(np.isfinite(values) & (values > 0)):
        raise InputError(f"prior must be {count} numbers above 0, one per model, not {prior!r}.")
    return values / values.sum()


def _check_same_observations(posteriors: list[Posterior], names: tuple[str, ...]) -> None:
    """Raise where two models were plainly given other observations."""
    known = {
        name: np.sort(values)
        for name, one in zip(names, posteriors, strict=True)
        if (values := outcomes(one.target)) is not None
    }
    first = next(iter(known), "")
    for name, values in known.items():
        if values.shape != known[first].shape or not np.allclose(values, known[first]):
            raise InputError(
                f"{name} and {first} were given other observations.",
                cause="evidence and leave-one-out compare only over the same observations, on the "
                "same scale",
                hint="fit every model to the same y",
            )


def _check_same_number(found: Sequence[LeaveOneOut | None], names: tuple[str, ...]) -> None:
    counts = {
        name: one.pointwise.size for name, one in zip(names, found, strict=True) if one is not None
    }
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise InputError(
            f"the models have other numbers of observations ({listing}).",
            cause="evidence and leave-one-out are sums over observations, and compare only over "
            "the same ones",
        )
