"""The table for the terminal: the numbers by hand, the paper's beside them, and what is missing."""

import math

import pytest

from follmer.paper import report
from follmer.paper.report import names
from follmer.paper.report.published import published
from follmer.plots import METHODS
from made_up import record


def tables(records):
    """Rows of cells by the heading of their table."""
    found, title = {}, None
    for line in report.comparison(records).splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("|"):
            found.setdefault(title, []).append(
                [cell.strip() for cell in line.strip("|").split("|")]
            )
    return {
        title: [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]
        for title, lines in found.items()
    }


def only(rows, **wanted):
    (row,) = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return row


def test_a_row_is_the_mean_and_the_sample_sd_over_seeds(records):
    rows = tables(records)["Banana-shaped classes"]
    row = only(rows, method="N-SFS", setting="auto")
    # Two seeds, 0.89 and 0.91: the sample sd is |0.91 − 0.89|/√2.
    assert row["accuracy ↑"] == f"0.900 ± {0.02 / math.sqrt(2):.3f}"
    assert row["ECE ↓"] == f"0.0250 ± {0.01 / math.sqrt(2):.4f}"
    assert row["seeds"] == "2"
    assert row["verdict"] == "trustworthy"


def test_one_seed_has_no_spread(records):
    row = only(tables(records)["Banana-shaped classes"], method="N-SFS", setting="paper")
    assert row["accuracy ↑"] == "0.88"
    assert row["ECE ↓"] == ""


def test_the_papers_numbers_stand_below_ours_as_printed(records):
    rows = tables(records)["Banana-shaped classes"]
    places = [(row["method"], row["setting"]) for row in rows]
    assert places == [
        ("N-SFS", "auto"),
        ("N-SFS", "paper"),
        ("N-SFS", "published"),
        ("SGLD", "auto"),
        ("SGLD", "published"),
        ("SGD", "published"),
    ]
    assert rows[2]["accuracy ↑"] == "0.8928 ± 0.0056"
    assert rows[5]["accuracy ↑"] == "0.8800 ± 0.0063"


def test_the_papers_numbers_are_found_by_dimension(records):
    rows = tables(records)["Linear regression"]
    assert {row["case"] for row in rows} == {"d = 64"}
    assert only(rows, method="MC-SFS", setting="published")["pred. mean MAE ↓"] == "5.88"


@pytest.mark.parametrize("case", ["d = 65", "", "four modes"])
def test_a_case_that_the_paper_has_not_has_no_published_numbers(case):
    assert published("linear_regression", case) == {}


def test_the_papers_log_likelihood_is_the_gibbs_one_and_ica_has_its_name_here():
    found = published("ica", "")["n_sfs"]
    assert found.keys() == {"gibbs_log_likelihood"}
    assert found["gibbs_log_likelihood"][:2] == (-5.111, 0.1288)


@pytest.mark.parametrize("name", names.EXPERIMENTS)
def test_published_methods_and_metrics_have_names_here(name):
    for method, metrics in published(name, "d = 32").items():
        assert method in METHODS
        assert metrics.keys() <= names.METRICS.keys()


def test_unknown_experiments_methods_and_metrics_are_shown_too():
    (row,) = tables([record("mine", "hmc", r_hat=1.01)])["mine"]
    assert (row["method"], row["r_hat"]) == ("hmc", "1.01")


def test_seeds_without_a_value_are_counted():
    records = [
        record("banana", seed=0, accuracy=0.8),
        record("banana", seed=1, accuracy=None),
        record("banana", seed=2),
    ]
    row = tables(records)["Banana-shaped classes"][0]
    assert row["accuracy ↑"] == "0.8 (1 of 3)"


def test_values_that_are_not_finite_are_shown_as_they_are():
    records = [record("banana", seed=s, accuracy=v) for s, v in enumerate([0.5, math.inf])]
    assert tables(records)["Banana-shaped classes"][0]["accuracy ↑"] == "inf ± nan"


def test_verdicts_that_differ_are_counted():
    records = [
        record("banana", seed=s, accuracy=0.8, settings={"verdict": verdict})
        for s, verdict in enumerate(["trustworthy", "do not use", "trustworthy"])
    ]
    row = tables(records)["Banana-shaped classes"][0]
    assert row["verdict"] == "trustworthy (2 of 3), do not use (1 of 3)"


def test_a_method_that_measured_nothing_says_why():
    text = report.comparison([record("a9a", ece=None, settings={"notes": ["failed: it diverged"]})])
    assert "- N-SFS, auto: nothing measured: failed: it diverged" in text


def test_a_method_that_measured_nothing_and_says_nothing_is_still_told():
    assert "- N-SFS, auto: nothing measured" in report.comparison([record("a9a", ece=None)])


def test_seeds_that_failed_are_counted_with_their_reason():
    failed = {"case": "d = 64", "error": "NonFiniteError: it diverged"}
    records = [
        record("linear_regression", seed=0, predictive_mean_mae=0.1, settings={"case": "d = 64"}),
        record("linear_regression", seed=1, settings=failed),
        record("linear_regression", "sgld", settings=failed),
    ]
    text = report.comparison(records)
    assert "- N-SFS, auto, d = 64: 1 of 2 failed: NonFiniteError: it diverged" in text
    assert "- SGLD, auto, d = 64: nothing measured: NonFiniteError: it diverged" in text


def test_footnotes_follow_the_table_of_their_experiment():
    text = report.comparison([record("a9a", accuracy=0.8), record("ica", elbo=1.0)])
    assert text.index("misprint") < text.index("## Independent components")
    assert text.index("10 ln 2") > text.index("## Independent components")


def test_no_records_are_an_empty_text():
    assert report.comparison([]) == ""
