"""The numbers of the pages are those of the records in docs/results."""

import json
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from benchmarks import printed

from follmer.bench.targets import CASES
from follmer.bench.verdicts import VerdictRecord, promises
from follmer.paper.experiments import gaussian_mixture
from follmer.paper.report.published import published

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
        and one["metrics"]
    ]
    assert found, f"no record of {folder}, {method}, {preset}, {case!r}"
    return np.array(found)


def told(number, digits):
    """As the pages write numbers: .85, −.3257, −346.0."""
    text = f"{abs(number):.{digits}f}"
    text = text.removeprefix("0") if digits else text
    return ("−" if number < 0 else "") + text


class Claim(NamedTuple):
    """A row of a page, by a word that it holds, and what it must say by the records."""

    page: str
    row: str
    says: list[str]


def paper_claims():
    rows = "experiments_words.md"
    failed = [one for one in records("step_function_paper") if one["settings"].get("error")]
    assert len(failed) == 3, "the pages say three"
    shares = np.array([one["shares"] for one in bench("mixture_modes")])
    found = (shares >= gaussian_mixture.FOUND * 0.5).all(axis=1)
    assert (len(found), found.sum()) == (10, 6), "the pages say six of ten"
    for side, own in zip(("left", "right"), shares.T, strict=True):
        yield Claim(rows, f"| {side} |", [" | ".join(told(share, 2) for share in own)])


def unmixing_claims():
    def of(metric, method, case):
        return values("unmixing", metric, method, "auto", case)[0]

    for name, method in (("N-SFS, decoupled", "n_sfs_decoupled"), ("N-SFS, coupled", "n_sfs")):
        says = [told(of("abundance_rmse", method, "simulated scene"), 4)]
        says += [told(of("coverage_90", method, "simulated scene"), 3)]
        yield Claim("structured.md", f"| {name} |", says)
    simulated = [("abundance_rmse", 4), ("coverage_90", 3), ("speckle", 4)]
    says = [" | ".join(told(of(one, "sgld", "simulated scene"), count) for one, count in simulated)]
    says += [told(of("abundance_error", "sgld", "Indian Pines"), 4)]
    yield Claim("structured.md", "| SGLD, a = .1, b = 10 |", says)
    columns = [("abundance_rmse", 4), ("abundance_error", 4), ("coverage_90", 2), ("speckle", 4)]
    for a in ("0.01", "0.1", "0.3", "1"):
        case = f"a = {a}, b = 10"
        says = [" | ".join(told(of(one, "sgld", case), count) for one, count in columns)]
        yield Claim("structured.md", f"| {case.replace('= 0', '= ')} ", says)
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


def network_leads():
    """By how much the default's LPD is above the better of SGD's and the deep ensemble's."""
    by_split = defaultdict(dict)
    for one in bench("networks"):
        by_split[one["set"], one["split"]][one["method"]] = one["lpd"]
    return np.array([one.pop("follmer") - max(one.values()) for one in by_split.values()])


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
    both = {(one["posterior"], one["method"]): one["seconds"] for one in bench("posteriordb")}
    ratios = [both[one["posterior"], "follmer"] / both[one["posterior"], "nuts"] for one in ours]
    times = f"{told(np.median(ratios), 2)} times NUTS's time (median; at most {max(ratios):.2f})"
    yield Claim(
        page, "Stan's reference posteriors", [f"{agree.replace('posteriors ', '')}, in {times}"]
    )
    leads = network_leads()
    yield Claim(page, "networks on UCI", [f"{sum(leads > 0)} splits of {len(leads)}"])
    yield Claim(
        "benchmarks_words.md",
        "LPD is above that of SGD",
        [f"each of these {len(leads)} splits, by {told(min(leads), 3)} at least"],
    )
    on_banana = defaultdict(dict)
    for one in bench("networks_classes"):
        on_banana[one["set"], one["split"]][one["method"]] = one["lpd"]
    leads = [one.pop("follmer") - max(one.values()) for one in on_banana.values()]
    assert sum(lead < 0 for lead in leads) == 1, "the pages say one split"
    yield Claim("benchmarks_words.md", "above it:", [f"SGD is {told(-min(leads), 3)} above it"])
    covered = defaultdict(list)
    for one in bench("networks"):
        covered[one["set"], one["method"]].append(one["coverage"])
    energy, concrete = (
        told(np.mean(covered[name, "follmer"]), 3) for name in ("energy", "concrete")
    )
    says = [f"cover {energy} of energy's rows and {concrete} of concrete's"]
    yield Claim("benchmarks_words.md", "of energy's rows and", says)
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


CLAIMS = [*paper_claims(), *unmixing_claims(), *bench_claims()]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page}: {claim.row[:40]}")
def test_a_row_says_what_its_records_say(claim):
    rows = [row for row in (DOCS / claim.page).read_text().splitlines() if claim.row in row]
    assert len(rows) == 1, f"{len(rows)} rows hold {claim.row!r}"
    for text in claim.says:
        assert text in rows[0], f"by the records: {text}"


def test_the_ways_of_sampling_are_told_as_measured():
    (found,) = bench("paper_sampling")
    page = " ".join((DOCS / "experiments.md").read_text().split())
    own = " and ".join(told(found[name][0], 2) for name in ("own_20", "own_143"))
    assert f"the error of the predictive mean is {own}; by our kept statistics" in page
    assert f"in 20 steps {told(found['kept_20'][0], 2)}, and in 143 the draws run away" in page
    assert found["kept_143"][0] > 1e3


def test_what_the_page_of_experiments_says_in_words_is_so():
    dims = [f"d = {2**power}" for power in range(5, 11)]
    place = ("linear_regression", "predictive_mean_mae")
    ours, sgld = (
        [values(*place, method, "paper", dim).mean() for dim in dims]
        for method in ("n_sfs", "sgld")
    )
    printed, their_sgld, their_mc_sfs = (
        [published("linear_regression", dim)[method]["predictive_mean_mae"].mean for dim in dims]
        for method in ("n_sfs", "sgld", "mc_sfs")
    )
    assert np.less(ours, printed).all(), "our errors are below the published ones, for every d"
    assert np.less(sgld, np.divide(their_sgld, 4)).all(), "less than a quarter"
    assert np.less(ours, their_mc_sfs).all()
    # Behind a point estimate, on the step function.
    for where in ("", "_inside", "_outside"):
        place = ("step_function", f"log_predictive_density{where}")
        assert values(*place).mean() < values(*place, "sgd").mean()
    assert values("step_function", "mse").mean() > values("step_function", "mse", "sgd").mean()
    place = ("banana", "log_predictive_density")
    assert values(*place).mean() > max(values(*place, one).mean() for one in ("sgld", "sgd"))
    # All modes by default, and one that NUTS trusts where it has not seen the others.
    for modes in (2, 4):
        assert (values("gaussian_mixture", "modes_found", case=f"{modes} modes") == modes).all()
    trusted = [
        one["metrics"]["modes_found"]
        for one in records("gaussian_mixture")
        if (one["method"], one["settings"].get("verdict")) == ("nuts", "trustworthy")
    ]
    assert trusted == [1.0, 1.0]
    place = ("weight_marginals", "weight_sd_inside")
    assert values(*place).mean() > values(*place, "sgld").mean()
    logs = {
        one: values("weight_marginals", "log_posterior", one).mean()
        for one in ("points", "ensemble", "n_sfs")
    }
    for name in ("ensemble", "n_sfs"):
        assert 1000 < logs["points"] - logs[name] < 2000


def test_the_wide_limit_is_told_as_computed():
    found = bench("wide_limit")
    mse, inside, outside = (
        np.mean([one[name] for one in found])
        for name in ("mse", "density inside", "density outside")
    )
    page = " ".join((DOCS / "experiments.md").read_text().split())
    assert f"prints an MSE of {told(mse, 3)} on the same five data sets" in page
    assert f"of {told(inside, 2)} inside the data's range and {told(outside, 2)} outside" in page
    assert len(found) == 5


def test_the_costs_of_draws_are_told_as_measured():
    found = bench("mc_sfs_cost")
    theirs = {(one["steps"], one["samples"]): one["draws"] for one in found if "steps" in one}
    auto, paper = [one["fit"] + one["draws"] for one in found if one["method"] == "n_sfs"]
    page = " ".join((DOCS / "experiments.md").read_text().split())
    assert f"1000 samples take {theirs[100, 1000]:.0f} s by MC-SFS" in page
    assert f"N-SFS takes {auto:.1f} s in all by default, and {paper:.0f} s in the paper" in page


def test_approximate_truths_are_those_of_the_reference_runs():
    """After new runs of benchmarks/reference_evidence.py: the constants of bench/targets.py."""
    reference = {one["target"]: one for one in bench("reference_evidence")}
    assert reference.keys() == {name for name, case in CASES.items() if case.approximate}
    for name, one in reference.items():
        assert CASES[name].log_evidence == pytest.approx(one["log_evidence"], abs=0.001)
    page = (DOCS / "benchmarks_words.md").read_text().lower()
    for name, one in reference.items():
        start = f"| {name.replace('_', ' ')} |"
        (row,) = [row for row in page.splitlines() if row.startswith(start)]
        assert f"{told(one['log_evidence'], 3)} ± {told(one['log_evidence_se'], 3)}" in row


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


def test_what_benchmarks_printed_stands_in_the_pages_as_it_was_kept():
    """After a new record: python -m benchmarks.printed."""
    shown = list(printed.pages())
    assert {"speed.md", "experiments.md", "devices.md"} <= {page.name for page in shown}
    for page in shown:
        text = page.read_text()
        assert printed.rewritten(text) == text, page.name
