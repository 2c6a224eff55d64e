"""The numbers of the pages are those of the records in docs/results."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from follmer.bench.verdicts import VerdictRecord, promises

DOCS = Path(__file__).parent.parent / "docs"


@cache
def records(folder):
    return json.loads((DOCS / "results" / folder / "results.json").read_text())


@cache
def bench(name):
    return json.loads((DOCS / "results" / "bench" / f"{name}.json").read_text())["results"]


def values(folder, metric, method="n_sfs", preset="auto", case=""):
    """One number per seed."""
    found = [
        one["metrics"][metric]
        for one in records(folder)
        if (one["method"], one["preset"], one["settings"]["case"]) == (method, preset, case)
    ]
    assert found, f"no record of {folder}, {method}, {preset}, {case!r}"
    return np.array(found)


def told(number, digits):
    """As the pages write numbers: .85, −.3257, −346.0."""
    text = f"{abs(number):.{digits}f}"
    text = text.removeprefix("0") if digits else text
    return ("−" if number < 0 else "") + text


def mean(digits, *where, **which):
    return told(values(*where, **which).mean(), digits)


def spread(digits, *where, **which):
    """Mean ± standard deviation over the seeds."""
    found = values(*where, **which)
    return f"{told(found.mean(), digits)} ± {told(found.std(ddof=1), digits)}"


class Claim(NamedTuple):
    """A row of a page, by a word that it holds, and what it must say by the records."""

    page: str
    row: str
    says: list[str]


def default_claims():
    rows = "experiments.md"
    regressions = [f"d = {2**i}" for i in range(5, 12)]
    ratios = {
        metric: [values("linear_regression", metric, case=one).mean() for one in regressions]
        for metric in ("predictive_mean_ratio", "predictive_std_ratio")
    }
    mixture = {
        (metric, case): ("gaussian_mixture", metric, "n_sfs", "auto", case)
        for metric in ("mode_weight_error", "log_evidence")
        for case in ("2 modes", "4 modes")
    }
    yield Claim(
        rows,
        "--methods n_sfs` | errors of the predictive mean",
        [
            f"{told(min(found), 2)} to {told(max(found), 2)}".replace("0.", ".")
            for found in ratios.values()
        ],
    )
    yield Claim(
        rows,
        "gaussian_mixture --seeds 5",
        [
            spread(4, *where) if where[1] != "log_evidence" else spread(3, *where)
            for where in mixture.values()
        ],
    )
    for folder, digits in (
        ("a9a", {"accuracy": 4, "ece": 4, "gibbs_log_likelihood": 4, "log_predictive_density": 4}),
        ("banana", {"accuracy": 4, "ece": 4, "log_predictive_density": 3}),
    ):
        says = [spread(count, folder, metric) for metric, count in digits.items()]
        others = [
            ", ".join(
                mean(count, folder, metric, method=method) for metric, count in digits.items()
            )
            for method in ("sgld", "sgd")
        ]
        yield Claim(rows, f"follmer reproduce {folder} --seeds 5", says + others)
    yield Claim(
        rows,
        "follmer reproduce ica --seeds 2",
        [
            spread(4, "ica", "gibbs_log_likelihood"),
            mean(3, "ica", "gibbs_log_likelihood", method="sgd"),
        ],
    )
    density = "log_predictive_density"
    yield Claim(
        rows,
        "follmer reproduce step_function --seeds 5",
        [
            spread(3, "step_function", "mse"),
            spread(3, "step_function", "coverage_90"),
            spread(2, "step_function", density),
            *[spread(2, "step_function", f"{density}_{where}") for where in ("inside", "outside")],
            *[spread(2, "step_function", density, method=one) for one in ("sgld", "sgd")],
        ],
    )


def paper_claims():
    rows, preset = "experiments.md", {"preset": "paper"}
    yield Claim(
        rows,
        "linear_regression --preset paper",
        [
            f"{mean(2, 'linear_regression', 'predictive_mean_mae', case=f'd = {dim}', **preset)}"
            for dim in (32, 256, 512, 1024, 2048)
        ],
    )
    for folder, digits in (
        ("a9a_paper", {"accuracy": 4, "ece": 4, "gibbs_log_likelihood": 4}),
        ("step_function_paper", {"mse": 4, "gibbs_log_likelihood": 1, "coverage_90": 3}),
        ("banana_paper", {"accuracy": 4, "ece": 3, "log_predictive_density": 3}),
        ("ica_paper", {"gibbs_log_likelihood": 2}),
    ):
        says = [spread(count, folder, metric, **preset) for metric, count in digits.items()]
        yield Claim(rows, f"results/{folder}/report.html", says)


def unmixing_claims():
    def of(metric, method, case):
        return values("unmixing", metric, method, "auto", case)[0]

    for name, method in (("N-SFS, decoupled", "n_sfs_decoupled"), ("N-SFS, coupled", "n_sfs")):
        says = [told(of("abundance_rmse", method, "simulated scene"), 4)]
        says += [told(of("coverage_90", method, "simulated scene"), 3)]
        yield Claim("structured.md", f"| {name} |", says)
    gammas = [f"γ = {root}²" for root in (0.5, 0.2, 0.1, 0.05, 0.01)]
    for name, method in (("decoupled", "n_sfs_decoupled"), ("coupled", "n_sfs")):
        for words, metric, digits in (
            ("RMSE", "abundance_rmse", 4),
            ("coverage of 90 %", "coverage_90", 2),
        ):
            says = [" | ".join(told(of(metric, method, case), digits) for case in gammas)]
            yield Claim("structured.md", f"| {name}: {words} |", says)
    ends = [told(of("coverage_90", "n_sfs", gammas[place]), 2) for place in (0, -1)]
    yield Claim("results/index.md", "Coupled drift, unmixing", [f"from {ends[0]} to {ends[1]}"])


def bench_claims():
    found = promises([VerdictRecord(**one) for one in bench("verdicts")])
    trusted, wrong = found["trusted"], round(found["trusted_and_wrong"] * found["trusted"])
    assert wrong == 1, "the pages say one"
    page = "results/index.md"
    yield Claim(page, "random targets of known truth", [f"{len(bench('verdicts'))} random"])
    yield Claim(page, "random targets of known truth", [f"{trusted:.0f} were called"])
    ours = [one for one in bench("posteriordb") if one["method"] == "follmer"]
    agree = f"{sum(one['reached'] for one in ours)} of {len(ours)} posteriors agree"
    yield Claim(page, "reference draws judge both samplers", [agree])
    page = "../README.md"
    yield Claim(page, "random targets of known truth", [f"{trusted:.0f} called"])
    yield Claim(page, "Stan's reference posteriors", [agree.replace("posteriors ", "")])
    both = {(one["target"], one["method"]): one for one in bench("modes")}
    wells = [name for name, method in both if method == "nuts" and name != "funnel"]
    for name in wells:
        visited, all_of_them = both[name, "follmer"]["modes_found"].split(" of ")
        assert visited == all_of_them
    others = ", ".join(both[name, "nuts"]["modes_found"] for name in wells)
    yield Claim(page, "wells and mixtures", [f"NUTS finds {others}"])
    funnel = both["funnel", "follmer"]
    error = told(abs(funnel["log_evidence"] - funnel["truth"]), 3)
    says = [f"{error} ± {told(funnel['log_evidence_se'], 3)}"]
    yield Claim(page, "funnel, 10-d", says)


CLAIMS = [*default_claims(), *paper_claims(), *unmixing_claims(), *bench_claims()]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page}: {claim.row[:40]}")
def test_a_row_says_what_its_records_say(claim):
    rows = [row for row in (DOCS / claim.page).read_text().splitlines() if claim.row in row]
    assert len(rows) == 1, f"{len(rows)} rows hold {claim.row!r}"
    for text in claim.says:
        assert text in rows[0], f"by the records: {text}"


def test_the_pictures_of_the_benchmarks_are_those_of_the_records():
    """After new records: python docs/figures/benchmarks.py."""
    counts = Counter(one["verdict"] for one in bench("verdicts"))
    texts = {
        "verdicts": [f"{kind} ({count})" for kind, count in counts.items()],
        "modes": [one["modes_found"] for one in bench("modes") if one["modes_found"]],
        "evidence": [one["target"] for one in [*bench("gaussians"), *bench("logistic")]],
        "posteriordb": [one["posterior"].split("-")[0] for one in bench("posteriordb")],
    }
    for name, wanted in texts.items():
        drawn = Counter(re.findall(r">([^<>]+)</text>", (DOCS / f"figures/{name}.svg").read_text()))
        for text, count in Counter(wanted).items():
            # Names of both methods share a line, and two posteriors the name of their data.
            assert drawn[text] >= 1 if name in ("evidence", "posteriordb") else drawn[text] == count
