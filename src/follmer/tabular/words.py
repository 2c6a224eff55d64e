"""A model of a table in words, from the header of its file."""

from collections import Counter
from typing import Any

from follmer.tabular.scores import INTERVALS, Scores

_MEANINGS = {
    "trustworthy": "The predictions can be used as they are.",
    "use the weights": "The predictions can be used: they are averaged by importance weights.",
    "good for predictions": "The predictions can be used; single weights of the network mean "
    "nothing by themselves.",
    "no proof of quality": "Nothing speaks against the predictions, and nothing proves them: trust "
    "what held-out rows show.",
    "do not use": "How sure these predictions are should not be relied on.",
}
# The width of the first column of names.
_WIDTH = 12


def described(header: dict[str, Any]) -> str:
    """Lines for the terminal, ending in the verdict."""
    facts, outcome = header["facts"], header["outcome"]
    kinds = Counter(column["kind"] for column in header["schema"]["columns"])
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    lines = [
        _line("target", f"{outcome['name']} of {facts['file']}"),
        _line("task", f"{outcome['task']} ({outcome['why']})"),
        *([_line("classes", ", ".join(outcome["classes"]))] if outcome["classes"] else []),
        _line("model", f"{facts['model']}, seed {facts['seed']}"),
        _line("rows", f"{facts['training rows']} fitted, {facts['held-out rows']} held out"),
        _line("columns", f"{sum(kinds.values())} used: {listed}"),
    ]
    lines += [
        _line("left out", f"{one['name']}: {one['why']}") for one in header["schema"]["dropped"]
    ]
    lines += [_line("note", remark) for remark in header["remarks"]]
    lines += [_line(name, words) for name, words in scored(header)]
    return "\n".join([*lines, "", verdict(header)])


def verdict(header: dict[str, Any]) -> str:
    """The verdict as sentences, with the reason where it is against using the model."""
    told = f"Verdict: {header['verdict']}. {meaning(header['verdict'])}"
    return told if header["usable"] else f"{told} Why: {header['advice']}."


def meaning(name: str) -> str:
    """What a verdict says of a table's predictions."""
    return _MEANINGS.get(name, "")


def scored(header: dict[str, Any]) -> list[tuple[str, str]]:
    """What held-out rows say, each with a name; that there are none where there are none."""
    if header["scores"] is None:
        return [("held out", "no rows, so nothing is known of how new rows are predicted")]
    found = Scores.from_json(header["scores"])
    density = f"{found.log_density:.3f} ± {found.log_density_se:.3f} nats per held-out row"
    told = [("ln p(y)", f"{density}; {found.baseline_log_density:.3f} without any column")]
    if header["outcome"]["classes"]:
        right = f"{1 - found.error:.1%} of the most probable classes came true"
        told.append(("accuracy", f"{right}; {1 - found.baseline_error:.1%} without any column"))
        told.append(
            (
                "calibration",
                f"confidence is off by {found.calibration_error:.1%}; "
                f"{found.calibration_floor:.1%} where every probability is true",
            )
        )
        return told
    told.append(
        (
            "error",
            f"{found.error:.4g} (root mean square); {found.baseline_error:.4g} without any column",
        )
    )
    shares = [
        f"{share:.0%} in {level:.0%} intervals"
        for level, share in zip(INTERVALS, found.coverage, strict=True)
    ]
    told.append(("coverage", ", ".join(shares)))
    return told


def _line(name: str, words: str) -> str:
    return f"{name:<{_WIDTH}}{words}"
