"""The verdict, calibrated: random targets of known truth, and what was said of their posteriors."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.bench.families import FAMILIES, Known, random_target
from follmer.errors import in_a_line
from follmer.fitting.fit import fit
from follmer.judging import Diagnostics, Verdict, pareto_smooth
from follmer.judging.weights import moments, scalars
from follmer.tools.checks import known_names, positive_int
from follmer.tools.keys import named_keys
from follmer.tools.progress import Progress
from follmer.tools.tables import markdown

# Draws by which answers are compared with the truth.
NUM_DRAWS = 10_000
# Errors from which an answer is wrong: of ln Z in nats, of a mean in standard deviations, of a
# standard deviation relative to itself.
_WRONG = {"log_evidence": 0.1, "mean": 0.15, "sd": 0.15}
# The worst lies that are told by name.
_NUM_TOLD = 10
# In place of a verdict, where the fit raised an error.
FAILED = "failed"


class VerdictRecord(NamedTuple):
    """One random target: the verdict, and the largest errors of plain and of weighted answers."""

    number: int
    family: str
    dim: int
    verdict: str
    log_evidence_error: float | None = None
    plain_mean_error: float | None = None
    plain_sd_error: float | None = None
    mean_error: float | None = None
    sd_error: float | None = None
    seconds: float | None = None
    gradient_evaluations: int | None = None
    note: str = ""

    @property
    def plain_excess(self) -> float:
        """The worst error of plain answers, as a multiple of what is wrong."""
        return self._excess(self.plain_mean_error, self.plain_sd_error)

    @property
    def weighted_excess(self) -> float:
        """Likewise of weighted answers."""
        return self._excess(self.mean_error, self.sd_error)

    def _excess(self, mean: float | None, sd: float | None) -> float:
        errors = zip((self.log_evidence_error, mean, sd), _WRONG.values(), strict=True)
        return max(np.inf if error is None else abs(error) / limit for error, limit in errors)


def run_verdicts(
    num_targets: int = 200,
    families: Sequence[str] = (),
    *,
    seed: int = 0,
    progress: Progress = lambda line: None,
) -> Iterator[VerdictRecord]:
    """The default fit of so many random targets, of these families or all, beside the truth."""
    known_names("family", families, FAMILIES)
    for index in range(positive_int("num_targets", num_targets)):
        known = random_target(index, seed, families)
        progress(f"{index + 1} of {num_targets}: {known.family}")
        record = VerdictRecord(index, known.family, known.target.dim, FAILED)
        try:
            yield _judged(known, record, jax.random.key(index))
        except Exception as error:
            yield record._replace(note=in_a_line(error))


def _judged(known: Known, record: VerdictRecord, key: PRNGKeyArray) -> VerdictRecord:
    fit_key, draw_key, evidence_key = named_keys(key, "fit", "draws", "evidence")
    began = time.perf_counter()
    posterior = fit(known.target, key=fit_key, progress=False)
    seconds = time.perf_counter() - began
    draws = posterior.weighted_sample(NUM_DRAWS, key=draw_key)
    values, log_weights = scalars(draws.position)[1], np.asarray(draws.log_weights, float)
    plain = _errors(known, values, np.full(NUM_DRAWS, 1.0 / NUM_DRAWS))
    weighted = _errors(known, values, np.exp(pareto_smooth(log_weights)[0]))
    found = posterior.diagnostics(key=evidence_key)
    assert isinstance(found, Diagnostics)
    assert posterior.verdict is not None
    return record._replace(
        verdict=posterior.verdict.value,
        log_evidence_error=found.log_evidence - known.log_evidence,
        plain_mean_error=plain[0],
        plain_sd_error=plain[1],
        mean_error=weighted[0],
        sd_error=weighted[1],
        seconds=seconds,
        gradient_evaluations=posterior.gradient_evaluations,
    )


def _errors(known: Known, values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The largest errors of a mean, in standard deviations, and of a standard deviation."""
    mean, sd = moments(values, weights)
    shifts, spreads = np.abs(mean - known.mean) / known.sd, np.abs(sd / known.sd - 1.0)
    return float(shifts.max()), float(spreads.max())


def verdict_table(records: Sequence[VerdictRecord]) -> str:
    """Verdicts × right or wrong, the shares that the verdicts promise, and the worst lies."""
    rows = []
    for verdict in [*(one.value for one in Verdict), FAILED]:
        own = [record for record in records if record.verdict == verdict]
        plain = [record.plain_excess <= 1.0 for record in own]
        weighted = [record.weighted_excess <= 1.0 for record in own]
        if own:
            rows.append(
                {
                    "verdict": verdict,
                    "targets": str(len(own)),
                    "plain right": str(sum(plain)),
                    "weighted right": str(sum(weighted)),
                }
            )
    lines = [markdown(rows, left={"verdict"}), "", *_promises(records)]
    lies = _lies(records)
    if lies:
        lines += [
            "",
            "Worst of what was trusted and is wrong:",
            "",
            markdown(lies, left={"family"}),
        ]
    failed = [record for record in records if record.verdict == FAILED]
    lines += [f"target {record.number} ({record.family}): {record.note}" for record in failed]
    return "\n".join(lines)


def promises(records: Sequence[VerdictRecord]) -> dict[str, float]:
    """Shares: trusted and wrong, right and refused, right and usable; and what it took."""
    trusted = [one for one in records if one.verdict == Verdict.TRUSTWORTHY.value]
    right = [one for one in records if one.weighted_excess <= 1.0]
    usable = {Verdict.TRUSTWORTHY.value, Verdict.USE_WEIGHTS.value}
    refused = [one for one in right if one.verdict == Verdict.DO_NOT_USE.value]
    used = [one for one in right if one.verdict in usable]
    seconds = [one.seconds for one in records if one.seconds is not None]
    wrong = [one.plain_excess for one in trusted if one.plain_excess > 1.0]
    return {
        "trusted": len(trusted),
        "trusted_and_wrong": len(wrong) / max(len(trusted), 1),
        "worst_trusted": max((one.plain_excess for one in trusted), default=0.0),
        "right_and_refused": len(refused) / max(len(right), 1),
        "right_and_usable": len(used) / max(len(records), 1),
        "median_seconds": float(np.median(seconds)) if seconds else float("nan"),
        "longest_seconds": float(np.max(seconds)) if seconds else float("nan"),
    }


def _promises(records: Sequence[VerdictRecord]) -> list[str]:
    found = promises(records)
    return [
        f"trustworthy, and wrong: {found['trusted_and_wrong']:.1%} of {found['trusted']:.0f}, the "
        f"worst by {found['worst_trusted']:.1f} × the limits",
        f"right, and called “do not use”: {found['right_and_refused']:.1%}",
        f"right and usable: {found['right_and_usable']:.1%} of {len(records)}",
        f"seconds: median {found['median_seconds']:.1f}, at most {found['longest_seconds']:.1f}",
    ]


def _lies(records: Sequence[VerdictRecord]) -> list[dict[str, str]]:
    trusted = [(one.plain_excess, one) for one in records if one.verdict == "trustworthy"]
    weighed = [(one.weighted_excess, one) for one in records if one.verdict == "use the weights"]
    lies = sorted([pair for pair in trusted + weighed if pair[0] > 1.0], key=lambda pair: -pair[0])
    return [
        {
            "target": str(one.number),
            "family": one.family,
            "dim": str(one.dim),
            "verdict": one.verdict,
            "ln Z error": f"{one.log_evidence_error:+.3f}",
            "plain mean, sd": f"{one.plain_mean_error:.2f}, {one.plain_sd_error:.2f}",
            "weighted mean, sd": f"{one.mean_error:.2f}, {one.sd_error:.2f}",
        }
        for _, one in lies[:_NUM_TOLD]
    ]
