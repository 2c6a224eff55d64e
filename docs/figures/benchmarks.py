"""Pictures of the benchmarks: python docs/figures/benchmarks.py draws docs/results/bench/*.json."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from follmer import plots
from follmer.bench.verdicts import VerdictRecord

FOLDER = Path(__file__).parent
RECORDS = FOLDER.parent / "results" / "bench"
OURS, NUTS = plots.METHODS["n_sfs"].colour, plots.METHODS["nuts"].colour
# Errors below this are drawn here: on a logarithmic axis there is no zero.
LEAST = 1e-3


def records(*names: str) -> list[dict[str, Any]]:
    files = [json.loads((RECORDS / f"{name}.json").read_text()) for name in names]
    return [record for file in files for record in file["results"]]


def verdicts() -> Figure:
    """Every random target's worst plain error, by its verdict."""
    found = [VerdictRecord(**record) for record in records("verdicts")]
    kinds = list(dict.fromkeys(one.verdict for one in found))
    figure, (axes,) = plots.panels(["Worst error of plain draws"])
    rng = np.random.default_rng(0)
    for place, kind in enumerate(kinds):
        errors = [one.plain_excess for one in found if one.verdict == kind]
        places = place + rng.uniform(-0.3, 0.3, len(errors))
        axes.plot(np.maximum(errors, LEAST), places, "o", color=OURS, alpha=0.6, mew=0)
    axes.axvline(1.0, linestyle="--", color=plots.METHODS["sgld"].colour, linewidth=1)
    labels = [f"{kind} ({sum(one.verdict == kind for one in found)})" for kind in kinds]
    axes.set_yticks(range(len(kinds)), labels)
    axes.set(
        xscale="log", xlabel="as a multiple of what counts as wrong", ylim=(len(kinds) - 0.5, -0.5)
    )
    return figure


def modes() -> Figure:
    """The share of modes that were visited, by both samplers."""
    figure, (axes,) = plots.panels(["Modes visited: N-SFS (blue) and NUTS"])
    found = [one for one in records("modes") if one["modes_found"]]
    targets = list(dict.fromkeys(one["target"] for one in found))
    for one in found:
        is_ours = one["method"] == "follmer"
        visited, all_of_them = map(int, one["modes_found"].split(" of "))
        place = targets.index(one["target"]) + (-0.2 if is_ours else 0.2)
        colour = OURS if is_ours else NUTS
        axes.barh(place, visited / all_of_them, height=0.36, color=colour)
        axes.text(
            visited / all_of_them + 0.01, place, one["modes_found"], va="center", color=colour
        )
    axes.set_yticks(range(len(targets)), targets)
    axes.set(xlim=(0, 1.25), ylim=(len(targets) - 0.5, -0.5), xlabel="share")
    axes.set_xticks([0, 0.5, 1])
    return figure


def evidence() -> Figure:
    """Errors of ln Z with two standard errors; hollow where the truth is another run's estimate."""
    names = ("modes", "gaussians", "regressions", "logistic", "large")
    ours = [one for one in records(*names) if one["method"] == "follmer"]
    found = [one for one in ours if one["truth"] is not None]
    figure, (axes,) = plots.panels(["Error of ln Z, with two standard errors"])
    for place, one in enumerate(found):
        fill = "none" if one["truth_is_approximate"] else OURS
        error = one["log_evidence"] - one["truth"]
        bar = 2 * one["log_evidence_se"]
        look = {"color": OURS, "markerfacecolor": fill, "capsize": 2.5}
        axes.errorbar(error, place, xerr=bar, fmt="o", **look)
    axes.axvline(0.0, linestyle="--", color=plots.METHODS["exact"].colour, linewidth=1)
    labels = [one["target"].replace("linear_regression", "regression") for one in found]
    axes.set_yticks(range(len(found)), labels, fontsize=7)
    axes.set(xlabel="nats", ylim=(len(found) - 0.5, -0.5))
    return figure


def posteriordb() -> Figure:
    """The worst error of a mean against Stan's reference draws, by both samplers."""
    found = records("posteriordb")
    names = list(dict.fromkeys(one["posterior"] for one in found))
    figure, (axes,) = plots.panels(["Worst error of a mean: N-SFS (●), NUTS (■)"])
    for one in found:
        is_ours = one["method"] == "follmer"
        shape, colour = ("o", OURS) if is_ours else ("s", NUTS)
        axes.plot(one["location_error"], names.index(one["posterior"]), shape, color=colour)
    axes.set_yticks(range(len(names)), [name.split("-")[0] for name in names], fontsize=8)
    axes.set(xlabel="reference standard deviations", xlim=(0, None))
    axes.set(ylim=(len(names) - 0.5, -0.5))
    return figure


def mc_sfs_cost() -> Figure:
    """Seconds of draws of MC-SFS by steps × samples; N-SFS with its training, and without."""
    stored = json.loads((RECORDS / "mc_sfs_cost.json").read_text())
    named = {name: plots.METHODS[name] for name in ("mc_sfs", "n_sfs")}
    title = f"Linear regression, d = {stored['dim']}: {stored['num_draws']} draws"
    figure, (axes,) = plots.panels([title], size=(7.4, 3.9))
    theirs = [one for one in stored["results"] if one["method"] == "mc_sfs"]
    for samples, shape in zip(sorted({one["samples"] for one in theirs}), "osD", strict=True):
        own = [one for one in theirs if one["samples"] == samples]
        axes.plot(
            [one["steps"] * one["samples"] for one in own],
            [one["draws"] for one in own],
            marker=shape,
            color=named["mc_sfs"].colour,
            label=f"MC-SFS, {samples} samples",
        )
    for one in (one for one in stored["results"] if one["method"] == "n_sfs"):
        style = "-" if one["preset"] == "auto" else "--"
        for what, seconds in (
            ("fit and draws", one["fit"] + one["draws"]),
            ("draws", one["draws"]),
        ):
            axes.axhline(
                seconds,
                linestyle=style,
                linewidth=1.8 if what == "draws" else 1.0,
                color=named["n_sfs"].colour,
                label=f"N-SFS ({one['preset']}), {what}",
            )
    axes.set(xscale="log", yscale="log", xlabel="steps × samples", ylabel="seconds")
    plots.legend(axes)
    return figure


def time_to_quality() -> Figure:
    """Seconds, compilation included, and the error of ln Z, or what held-out rows lose."""
    stored = records("time_to_quality", "nested", "held_out")
    targets = list(dict.fromkeys(one["target"] for one in stored))
    methods = list(dict.fromkeys(one["method"] for one in stored))
    shapes = dict(zip(methods, "os^vDPX*", strict=False))
    figure, panels = plots.panels(targets)
    for axes, target in zip(panels, targets, strict=True):
        own = {one["method"]: one for one in stored if one["target"] == target}
        errors, words = _errors(own)
        for method, error in errors.items():
            colour = OURS if method == "follmer" else plots.METHODS["exact"].colour
            seconds = own[method]["seconds"]
            axes.plot(seconds, max(error, LEAST), shapes[method], color=colour, label=method)
        axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel=words)
        axes.set(xlim=(0.5, 1000), ylim=(0.5 * LEAST, 2000))
    # Beside the first row, to the right of all.
    plots.legend(panels[2])
    return figure


def _errors(own: dict[str, dict[str, Any]]) -> tuple[dict[str, float], str]:
    """Each method's error on one target, and what it is an error of."""
    densities = {name: one.get("log_predictive_density") for name, one in own.items()}
    known = {name: value for name, value in densities.items() if value is not None}
    if known:
        best = max(known.values())
        return {name: best - value for name, value in known.items()}, "LPD, nats below the best"
    errors = {
        name: abs(one["log_evidence"] - one["truth"])
        for name, one in own.items()
        if one["log_evidence"] is not None
    }
    return errors, "error of ln Z, nats"


def main() -> None:
    for draw in (verdicts, modes, evidence, posteriordb, mc_sfs_cost, time_to_quality):
        print(plots.save(draw(), FOLDER / f"{draw.__name__}.svg").name)


if __name__ == "__main__":
    main()
