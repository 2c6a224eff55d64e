"""What experiments and metrics are called, and which metrics a reader looks at first."""

from collections.abc import Iterable
from typing import NamedTuple

from follmer.plots import METHODS

PUBLISHED = "published"


class Experiment(NamedTuple):
    title: str
    what: str
    headline: tuple[str, ...]  # the metrics shown first


class Metric(NamedTuple):
    label: str
    better: str = ""  # an arrow towards the better values, where there is one
    words: str = ""  # the label without its abbreviations

    @property
    def spoken(self) -> str:
        return self.words or self.label


EXPERIMENTS = {
    "linear_regression": Experiment(
        "Linear regression",
        "The posterior is known in closed form, so every error shows; the dimension grows.",
        ("predictive_mean_mae", "predictive_std_mae"),
    ),
    "a9a": Experiment(
        "Logistic regression on a9a",
        "Does a person earn more than 50,000 a year? 123 binary features, 32,561 rows, a Laplace "
        "prior.",
        ("accuracy", "ece"),
    ),
    "ica": Experiment(
        "Independent components of MEG",
        "An unmixing matrix for ten channels of a magnetoencephalogram.",
        ("gibbs_log_likelihood", "log_predictive_density"),
    ),
    "step_function": Experiment(
        "A step function",
        "A network of two hidden layers fits a noisy step and is asked about places far from the "
        "data.",
        ("mse", "coverage_90"),
    ),
    "banana": Experiment(
        "Banana-shaped classes",
        "A network of two hidden layers tells two classes in the plane apart.",
        ("accuracy", "ece"),
    ),
    "gaussian_mixture": Experiment(
        "A mixture with distant modes",
        "Are all modes found, and with the right share of the draws?",
        ("mode_weight_error", "modes_found"),
    ),
    "unmixing": Experiment(
        "Hyperspectral unmixing",
        "How much of three materials is in each pixel? Indian Pines, 21,025 pixels of 200 bands, "
        "and scenes simulated from the model, whose abundances are known.",
        ("abundance_rmse", "speckle"),
    ),
    "mnist": Experiment(
        "Digits: LeNet5 on MNIST",
        "A network of 44,426 weights reads handwritten digits: 60,000 train, 10,000 test it, as "
        "they are and rotated.",
        ("accuracy", "ece", "log_predictive_density"),
    ),
    "cifar10": Experiment(
        "Photographs: LeNet5 on CIFAR10",
        "A network of 62,006 weights tells photographs of ten classes apart: 50,000 train, 10,000 "
        "test it.",
        ("accuracy", "ece", "log_predictive_density"),
    ),
    "weight_marginals": Experiment(
        "How wide are the weights?",
        "Draws of LeNet5's weights on MNIST: their spread, and the log posterior at them.",
        ("weight_sd", "log_posterior"),
    ),
}
METRICS = {
    "accuracy": Metric("accuracy", "↑"),
    "ece": Metric("ECE", "↓", "expected calibration error"),
    "ece_floor": Metric("ECE floor"),
    "brier": Metric("Brier", "↓", "Brier score"),
    "mse": Metric("MSE", "↓", "mean squared error"),
    "coverage_90": Metric("coverage of 90 %", "", "coverage of 90 % intervals"),
    "gibbs_log_likelihood": Metric("Gibbs log lik.", "↑", "Gibbs log likelihood"),
    "gibbs_log_likelihood_inside": Metric("Gibbs log lik., inside", "↑"),
    "gibbs_log_likelihood_outside": Metric("Gibbs log lik., outside", "↑"),
    "gibbs_log_likelihood_normalised": Metric("Gibbs log lik., normalised", "↑"),
    "log_predictive_density": Metric("log pred. density", "↑", "log predictive density"),
    "log_predictive_density_inside": Metric("log pred. density, inside", "↑"),
    "log_predictive_density_outside": Metric("log pred. density, outside", "↑"),
    "predictive_mean_mae": Metric("pred. mean MAE", "↓", "error of the predictive mean"),
    "predictive_mean_ratio": Metric("pred. mean, × exact", "↓"),
    "predictive_std_mae": Metric("pred. sd MAE", "↓", "error of the predictive sd"),
    "predictive_std_ratio": Metric("pred. sd, × exact", "↓"),
    "modes_found": Metric("modes found", "↑"),
    "mode_weight_error": Metric("mode weight error", "↓"),
    "abundance_rmse": Metric("abundance RMSE", "↓", "error of the abundances"),
    "abundance_error": Metric("RMS from exact", "↓", "distance from the exact posterior mean"),
    "speckle": Metric("speckle", "↓"),
    "held_out_rmse": Metric("held-out RMSE", "↓", "distance of amortised from fitted abundances"),
    "weight_sd": Metric("sd of a weight", "", "standard deviation of a weight, median"),
    "weight_sd_inside": Metric("sd inside a chain"),
    "log_posterior": Metric("log posterior", "", "mean log posterior, without its constant"),
    "log_posterior_sd": Metric("its sd"),
    "elbo": Metric("ELBO", "↑"),
    "log_evidence": Metric("ln Z"),
    "ess_fraction": Metric("ESS", "↑"),
    "khat": Metric("k-hat", "↓"),
}


def experiment(name: str) -> Experiment:
    return EXPERIMENTS.get(name) or Experiment(name, "", ())


def metric(name: str) -> Metric:
    return METRICS.get(name) or Metric(name)


def method(name: str) -> str:
    return METHODS[name].label if name in METHODS else name


def ordered(found: Iterable[str], known: Iterable[str]) -> list[str]:
    """What was found, once each: the known names in their order, then the others in theirs."""
    found, known = dict.fromkeys(found), list(known)
    return [name for name in known if name in found] + [n for n in found if n not in known]
