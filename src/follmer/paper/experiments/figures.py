"""What the experiments' figures share: a panel for each method, training curves."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from follmer import plots
from follmer.paper.experiments.experiment import Picture, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def by_case(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials of each case, by its label."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.case.label, []).append(trial)
    return found


def panels(trials: Sequence[Trial], **options: Any) -> "tuple[Figure, list[Axes]]":
    """A figure with a panel for each trial, under the name of its method."""
    return plots.panels([plots.METHODS[trial.method].label for trial in trials], **options)


def training(preset: str, trials: Sequence[Trial]) -> Iterator[Picture]:
    """ELBO and ESS of the trained flows, a row for each case; nothing where none was trained."""
    trained = by_case(list(filter(_was_trained, trials)))
    if not trained:
        return
    titles = [title for case in trained for title in (case, "")]
    figure, axes = plots.panels(titles, columns=2)
    for place, own in enumerate(trained.values()):
        histories = {trial.method: trial.draws.posterior.history for trial in own}
        plots.training(axes[2 * place : 2 * place + 2], histories)
    expected = {
        "auto": "A good fit ends flat, with an ESS near 100 %.",
        "paper": "With the authors' γ draws are often narrower than the posterior: then the ESS "
        "stays near 0 however long the training. A high ESS says nothing of modes that no draw "
        "visits.",
    }
    yield Picture(
        "training",
        "Training",
        "The evidence lower bound (ELBO) and the effective sample size (ESS) of fresh draws while "
        f"the drift is trained. {expected[preset]}",
        figure,
    )


def _was_trained(trial: Trial) -> bool:
    """Whether a flow was; one that starts as the posterior is only looked at."""
    history = trial.draws.posterior.history
    return "evaluation_elbo" in history and len(history["loss"]) > 0
