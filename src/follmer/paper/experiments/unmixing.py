"""Unmixing of Indian Pines, and of scenes with known abundances: globals and locals.

The paper's three methods: SGLD with a schedule each for σ² and the abundances, N-SFS with one
coupled drift, and N-SFS with a decoupled, amortised one.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer import datasets, plots
from follmer.baselines import PolynomialDecay
from follmer.paper.experiments import figures
from follmer.paper.experiments.experiment import (
    Case,
    Draws,
    Method,
    Picture,
    Record,
    Trial,
    baseline,
    n_sfs,
)
from follmer.paper.experiments.hyperspectral import (
    Scene,
    model_data,
    pixel_purity,
    rms,
    scene,
    scores,
    simulated,
    unmixing_target,
)
from follmer.paper.experiments.quadrature import Exact, exact_posterior
from follmer.posterior.posterior import Posterior
from follmer.targets import StructuredTarget

SIMULATED, CROP, WHOLE = "simulated scene", "crop of Indian Pines", "Indian Pines"
GAMMAS = (0.5, 0.2, 0.1, 0.05, 0.01)  # their square roots
SGLD_A, SGLD_B = (0.01, 0.1, 0.3, 1.0, 10.0), (1.0, 10.0, 100.0, 1000.0)
# The abundances' schedule. On the small simulated scene, of the grid above a = 0.1 has the means
# nearest to the exact ones, whatever b is; b = 10 is the paper's.
_A, _B = 0.1, 10.0
_CORNER, _SIDE = (10, 20), 24  # of the crop
_HELD_OUT = 0.2
_FLOWS = ("n_sfs", "n_sfs_decoupled")
_NUM_DRAWS = 100
_PIXELS = 4  # in a batch of the paper preset
_PANEL = (2.3, 2.7)  # inches of an image under its title of three lines


class Study(NamedTuple):
    """A scene and what an exact sampler would say of it."""

    scene: Scene
    exact: Exact


def indian_pines(rows: slice = slice(None), columns: slice = slice(None)) -> Scene:
    """The image or a part of it, with three endmembers of the whole image."""
    cube = datasets.load("indian_pines").x
    spectra = cube.reshape(-1, cube.shape[-1])
    endmembers = spectra[pixel_purity(spectra, 3, key=jax.random.key(0))]
    part = cube[rows, columns]
    return scene(part.reshape(-1, cube.shape[-1]), endmembers, part.shape[:2])


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    if not tiny:
        # One drift for all 42,051 coordinates would train for hours.
        yield _case(WHOLE, _studied(indian_pines()), leave_out={"n_sfs"}, hold_out=True)
        crop = indian_pines(*(slice(start, start + _SIDE) for start in _CORNER))
        yield _case(CROP, _studied(crop))
    small = simulated(seed, (4, 4), 20) if tiny else simulated(seed)
    if seed == 0:
        yield from _sensitivity(_studied(small), tiny)
    # Large enough to tell coverages apart.
    large = small if tiny else simulated(seed, (32, 32))
    yield _case(SIMULATED, _studied(large), hold_out=True)


def _sensitivity(known: Study, tiny: bool) -> Iterator[Case]:
    """A small simulated scene with every γ and every schedule of SGLD."""
    for root in () if tiny else GAMMAS:
        gamma = {name: {"gamma": root**2} for name in _FLOWS}
        yield _case(of_gamma(root), known, leave_out={"sgld"}, options=gamma)
    for a in SGLD_A[:1] if tiny else SGLD_A:
        for b in SGLD_B[:1] if tiny else SGLD_B:
            schedule = {"sgld": {"step_size": schedules(known.scene, a, b)}}
            yield _case(of_schedule(a, b), known, leave_out=set(_FLOWS), options=schedule)


def schedules(scene: Scene, a: float = _A, b: float = _B) -> dict[str, PolynomialDecay]:
    """The abundances' schedule, and one of σ² for as many pixels and bands as there are."""
    return {
        "global": PolynomialDecay(4.0 / scene.spectra.size, b=1.0),
        "local": PolynomialDecay(a, b=b),
    }


def judged(draws: Draws, study: Study, hold_out: bool) -> dict[str, float]:
    """Scores of the abundances; their distance from the exact ones; those of pixels held out."""
    found = _abundances(draws.sample(draws.method.num_samples))
    mean = found.mean(axis=0)
    result = scores(found, study.scene) | {"abundance_error": rms(mean - study.exact.mean)}
    if hold_out and draws.posterior.target.has_locals:
        result["held_out_rmse"] = held_out_rmse(draws, study.scene, mean)
    return result


def held_out_rmse(draws: Draws, scene: Scene, mean: Float[np.ndarray, "pixels materials"]) -> float:
    """How far abundances of pixels that were left out are from `mean`, fitted with them.

    The method is fitted again without a fifth of the pixels, whose abundances the amortised drift
    then tells without training.
    """
    fit_key, draw_key = jax.random.split(draws.key)
    order = np.random.default_rng(0).permutation(len(scene.spectra))
    out, kept = np.split(order, [int(_HELD_OUT * len(order))])
    part = Scene(scene.spectra[kept], scene.endmembers, (1, len(kept)))
    posterior = draws.method.run(unmixing_target(part), fit_key)
    told = posterior.sample_local(
        draws.method.num_samples,
        key=draw_key,
        data=model_data(scene.spectra[out], scene.endmembers),
        num_steps=draws.method.num_steps,
    )
    return rms(_abundances({"local": told}).mean(axis=0) - mean[out])


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    authors = {"gamma": 0.2**2, "num_iterations": 2000, "learning_rate": 1e-5}
    coupled = n_sfs(preset, tiny, num_steps=100, **authors)["n_sfs"]
    # "Whole dataset" in the paper; pixels drawn at random have the same gradient on average.
    decoupled = n_sfs(preset, tiny, num_steps=100, batch_size=_PIXELS, **authors)["n_sfs"]
    if tiny and preset == "auto":
        decoupled = decoupled.given({"precondition": "identity"})
    sgld = baseline("sgld", tiny, num_iterations=10_000, thinning=25)["sgld"]
    every = {
        # The exact posterior is a better second opinion than MCMC moves.
        "n_sfs": _coupled(coupled.given({"audit": False})),
        "n_sfs_decoupled": decoupled._replace(weighted=False),
        "sgld": _coupled(sgld),
    }
    return {name: how._replace(num_samples=_NUM_DRAWS) for name, how in every.items()}


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    by_case = figures.by_case(trials)
    for label in (WHOLE, CROP, SIMULATED):
        if label in by_case:
            yield _composites(label, by_case[label])
    grids = {
        "n_sfs_decoupled": ([of_gamma(root) for root in GAMMAS], 5),
        "n_sfs": ([of_gamma(root) for root in GAMMAS], 5),
        "sgld": ([of_schedule(a, b) for a in SGLD_A for b in SGLD_B], len(SGLD_B)),
    }
    for method, (labels, columns) in grids.items():
        yield from _grid(method, labels, columns, trials, records)
    plain = [trial for trial in trials if trial.case.label in (WHOLE, CROP, SIMULATED)]
    yield from figures.training(preset, plain)


def _composites(label: str, trials: Sequence[Trial]) -> Picture:
    study = trials[0].case.data
    known = {} if study.scene.abundances is None else {"truth": study.scene.abundances}
    images = {**known, "exact posterior": study.exact.mean}
    images |= {plots.METHODS[one.method].label: _mean(one) for one in trials}
    figure, axes = plots.panels(list(images), columns=3, size=_PANEL)
    for panel, image in zip(axes, images.values(), strict=True):
        plots.composite(panel, _image(trials[0], image))
    speckle = scores(study.exact.mean[None], study.scene)["speckle"]
    return Picture(
        f"composites_{label.replace(' ', '_')}",
        f"Abundances, {label}",
        "False colours: red, green and blue are the mean abundances of the three materials. The "
        "exact posterior comes from quadrature, pixel by pixel; its speckle is "
        f"{speckle:.4f}. Dots that stand out from their neighbourhood, where it has none, are the "
        "sampler's.",
        figure,
    )


def _grid(
    method: str, labels: list[str], columns: int, trials: Sequence[Trial], records: Sequence[Record]
) -> Iterator[Picture]:
    """A panel for each setting of a method; a setting that diverged has an empty one."""
    tried = {one.settings["case"] for one in records if one.method == method}
    labels = [label for label in labels if label in tried]
    found = {one.case.label: one for one in trials if one.method == method}
    if not labels:
        return
    titles = [_title(label, found.get(label)) for label in labels]
    figure, axes = plots.panels(titles, columns=min(columns, len(labels)), size=_PANEL)
    for panel, label in zip(axes, labels, strict=True):
        trial = found.get(label)
        plots.composite(panel, None if trial is None else _image(trial, _mean(trial)))
    name = plots.METHODS[method].label
    scored = [found[label] for label in labels if label in found]
    yield Picture(
        f"sensitivity_{method}",
        f"Sensitivity of {name}",
        f"A small simulated scene by {name}, with the abundances' RMSE and the coverage of their "
        "90 % intervals. Images show means alone: panels that look the same need not be safe."
        f"{_coverage(scored)}",
        figure,
    )


def _coverage(trials: Sequence[Trial]) -> str:
    """A sentence on the settings whose intervals cover least and most, if there are any."""
    told = sorted((one.metrics["coverage_90"], one.case.label) for one in trials)
    if not told:
        return ""
    (least, at_least), (most, at_most) = told[0], told[-1]
    return (
        f" Over the settings the 90 % intervals cover from {least:.2f} ({at_least}) to {most:.2f} "
        f"({at_most}) of the true abundances."
    )


def _title(label: str, trial: Trial | None) -> str:
    if trial is None:
        return label
    told = trial.metrics
    return f"{label}\nRMSE {told['abundance_rmse']:.4f}\ncoverage {told['coverage_90']:.2f}"


def _image(
    trial: Trial, abundances: Float[np.ndarray, "pixels 3"]
) -> Float[np.ndarray, "rows columns 3"]:
    return abundances.reshape(*trial.case.data.scene.shape, 3)


def _mean(trial: Trial) -> Float[np.ndarray, "pixels materials"]:
    return _abundances(trial.draws.sample(trial.draws.method.num_samples)).mean(axis=0)


def _abundances(draws: Mapping[str, Any]) -> Float[np.ndarray, "draws pixels materials"]:
    return np.asarray(draws["local"]["abundances"])


def _coupled(method: Method) -> Method:
    """The method on one joint target, which knows nothing of the structure."""

    def run(target: StructuredTarget, key: PRNGKeyArray, **own: Any) -> Posterior:
        return method.run(target.joint(), key, **own)

    return method._replace(run=run)


def _studied(scene: Scene) -> Study:
    return Study(scene, exact_posterior(scene))


def _case(
    label: str,
    study: Study,
    *,
    leave_out: Set[str] = frozenset(),
    options: Mapping[str, Any] | None = None,
    hold_out: bool = False,
) -> Case:
    judge = functools.partial(judged, study=study, hold_out=hold_out)
    options = {"sgld": {"step_size": schedules(study.scene)}, **(options or {})}
    target = unmixing_target(study.scene)
    return Case(label, target, judge, study, frozenset(leave_out), options)


def of_gamma(root: float) -> str:
    return f"γ = {root:g}²"


def of_schedule(a: float, b: float) -> str:
    return f"a = {a:g}, b = {b:g}"
