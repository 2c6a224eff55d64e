"""Hyperspectral images as mixtures of materials: scenes, endmembers, the model, scores."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer import metrics
from follmer.errors import InputError
from follmer.targets import StructuredTarget
from follmer.targets.data import first_place
from follmer.tools.checks import as_key, options_checked, positive_int

# Abundances of 32-bit numbers sum to one this nearly.
_TOLERANCE = 1e-4
# Projections held at once.
_AT_ONCE = 100

Spectra = Float[np.ndarray, "pixels bands"]
Endmembers = Float[np.ndarray, "materials bands"]
Abundances = Float[np.ndarray, "pixels materials"]


class Scene(NamedTuple):
    """An image as rows of pixels, its materials' spectra, and the truth where it is known."""

    spectra: Spectra
    endmembers: Endmembers
    shape: tuple[int, int]
    abundances: Abundances | None = None
    variance: float | None = None


class Reduced(NamedTuple):
    """All that the likelihood sees of pixels: their least-squares abundances and the misfit left.

    |y − Mᵀa|² = |F (fitted − a)|² + bands · misfit, with `factor` F; a few numbers stand for
    hundreds of bands.
    """

    fitted: Abundances
    misfit: Float[np.ndarray, " pixels"]
    factor: Float[np.ndarray, "materials materials"]
    num_bands: int


@options_checked
def pixel_purity(
    spectra: Spectra, count: int, *, key: PRNGKeyArray, num_projections: int = 2000
) -> Int[np.ndarray, " count"]:
    """The rows of `count` pure and different pixels, by the Pixel Purity Index.

    A pixel's index is the number of random directions along which it is the least or the greatest.
    The purest is taken first, then the next pure ones that are far from those taken: by half of the
    greatest distance from the first one, or where too few are, by half of that again.
    """
    spectra = _checked_spectra(spectra)
    num_pixels, num_bands = spectra.shape
    count = positive_int("count", count)
    num_projections = positive_int("num_projections", num_projections)
    _check_count(count, num_bands)
    if count > num_pixels:
        raise InputError(f"{count} endmembers were asked of {num_pixels} pixels.")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(as_key(key))))
    centred = spectra - spectra.mean(axis=0)
    purity = np.zeros(num_pixels, int)
    for start in range(0, num_projections, _AT_ONCE):
        directions = rng.normal(size=(num_bands, min(_AT_ONCE, num_projections - start)))
        along = centred @ (directions / np.linalg.norm(directions, axis=0))
        for extreme in (along.argmin(axis=0), along.argmax(axis=0)):
            np.add.at(purity, extreme, 1)
    purest = np.argsort(-purity, kind="stable")[: np.count_nonzero(purity)]
    distances = np.linalg.norm(spectra[purest] - spectra[purest[0]], axis=1)
    separation = distances.max() / 2
    # Beyond these halvings what is taken for different is rounding.
    for _ in range(10):
        chosen = _apart(spectra, purest, count, separation)
        if len(chosen) == count:
            return np.array(chosen)
        separation /= 2
    raise InputError(
        f"only {len(chosen)} of the {len(purest)} pure pixels differ; {count} endmembers were "
        "asked for.",
        cause="the pixels repeat a few spectra, or there were few projections",
        hint="a smaller count; more num_projections",
    )


@options_checked
def scene(
    spectra: Spectra,
    endmembers: Endmembers,
    shape: tuple[int, int] | None = None,
    *,
    abundances: Abundances | None = None,
    variance: float | None = None,
) -> Scene:
    """A scene of checked parts: spectra in [0, 1], as many endmembers as the bands can tell apart.

    Without a `shape` the pixels are one row.
    """
    spectra = _checked_spectra(spectra)
    outside = (spectra < 0) | (spectra > 1)
    if outside.any():
        raise InputError(
            f"spectra leave [0, 1] at {first_place(outside)}: {spectra[outside][0]:g}.",
            cause="raw counts or radiances",
            hint="(spectra - spectra.min()) / np.ptp(spectra), of the whole image",
        )
    endmembers = np.asarray(endmembers, float)
    num_bands = spectra.shape[1]
    if endmembers.ndim != 2 or endmembers.shape[1] != num_bands:
        raise InputError(
            f"endmembers have shape {endmembers.shape}; spectra of {num_bands} bands want "
            f"(materials, {num_bands}).",
            cause="the materials are in columns, or of another sensor",
            hint="endmembers.T",
        )
    _check_count(len(endmembers), num_bands)
    if len(endmembers) < 2:
        raise InputError("one endmember leaves nothing to unmix.", hint="two or more")
    if not np.isfinite(endmembers).all():
        raise InputError(f"endmembers are not finite at {first_place(~np.isfinite(endmembers))}.")
    if np.linalg.matrix_rank(endmembers) < len(endmembers):
        raise InputError(
            "the endmembers are linearly dependent, so abundances cannot be told apart.",
            cause="a material was given twice",
        )
    shape = (1, len(spectra)) if shape is None else shape
    if math.prod(shape) != len(spectra):
        raise InputError(f"an image of shape {shape} does not have {len(spectra)} pixels.")
    if abundances is not None:
        abundances = checked_abundances(abundances, (len(spectra), len(endmembers)))
    return Scene(spectra, endmembers, shape, abundances, variance)


def checked_abundances(abundances: Any, shape: tuple[int, int]) -> Abundances:
    """Abundances on the simplex, one row per pixel, or an error that says where they leave it."""
    abundances = np.asarray(abundances, float)
    if abundances.shape != shape:
        raise InputError(
            f"abundances have shape {abundances.shape}; {shape[0]} pixels of {shape[1]} materials "
            f"want {shape}."
        )
    # Comparisons with NaN are false.
    bad = ~((abundances >= -_TOLERANCE).all(axis=1) & np.isfinite(abundances).all(axis=1))
    bad |= ~(np.abs(abundances.sum(axis=1) - 1) <= _TOLERANCE)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{np.sum(bad)} of {len(bad)} rows of abundances are outside the simplex; row {row} is "
            f"{abundances[row].round(4).tolist()}.",
            cause="abundances are shares: none below 0, all of a pixel together 1",
            hint="abundances / abundances.sum(axis=1, keepdims=True), where none is negative",
        )
    return abundances


def simulated(
    seed: int, shape: tuple[int, int] = (16, 16), num_bands: int = 200, variance: float = 0.03**2
) -> Scene:
    """A scene drawn from the model: smooth abundances of three smooth spectra.

    Abundances are as the prior says, uniform on the simplex, over the scene as a whole; noise and
    contrast are about those of Indian Pines.
    """
    rng = np.random.default_rng(seed)
    wave = np.linspace(0, 1, num_bands)
    angles = 2 * np.pi * rng.uniform(size=(3, 3, 1))
    rates = rng.uniform(0.5, 3.0, size=(3, 3, 1))
    curves = np.mean(np.sin(2 * np.pi * rates * wave + angles), axis=1)
    endmembers = 0.5 + 0.35 * curves / np.abs(curves).max(axis=1, keepdims=True)
    first, second = (_smooth_uniform(rng, shape) for _ in range(2))
    largest = 1 - np.sqrt(first)
    rest = 1 - largest
    abundances = np.stack([largest, rest * second, rest * (1 - second)], axis=1)
    sd = np.sqrt(variance) * np.linalg.norm(abundances, axis=1, keepdims=True)
    noise = rng.normal(size=(len(abundances), num_bands))
    spectra = abundances @ endmembers + sd * noise
    return scene(spectra, endmembers, shape, abundances=abundances, variance=variance)


def reduced(spectra: Spectra, endmembers: Endmembers) -> Reduced:
    """The pixels in the coordinates of the endmembers."""
    basis, factor = np.linalg.qr(np.asarray(endmembers, float).T)
    spectra = np.asarray(spectra, float)
    inside = spectra @ basis
    misfit = np.mean((spectra - inside @ basis.T) ** 2, axis=1)
    return Reduced(np.linalg.solve(factor, inside.T).T, misfit, factor, len(basis))


def unmixing_target(scene: Scene) -> StructuredTarget:
    """The Normal Compositional Model: y_p ~ N(Mᵀa_p, |a_p|² σ² I), σ² ~ U(0,1), a_p ~ U(simplex).

    σ² is shared, under "variance"; each pixel has its own "abundances". Its data are those of
    `model_data`.
    """
    from numpyro.distributions import constraints

    num_materials, num_bands = scene.endmembers.shape
    factor = jnp.asarray(reduced(scene.spectra[:1], scene.endmembers).factor)
    log_volume = math.lgamma(num_materials)

    def log_likelihood(local: Any, shared: Any, pixel: Any) -> Float[Array, ""]:
        abundances = local["abundances"]
        variance = jnp.sum(abundances**2) * shared["variance"]
        away = factor @ (pixel["fitted"] - abundances)
        misfit = jnp.sum(away**2) / num_bands + pixel["misfit"]
        return -0.5 * num_bands * (jnp.log(2 * jnp.pi * variance) + misfit / variance)

    return StructuredTarget(
        log_prior_global=lambda shared: jnp.zeros_like(shared["variance"]),
        log_prior_local=lambda local, shared: jnp.asarray(log_volume, factor.dtype),
        log_likelihood=log_likelihood,
        data=model_data(scene.spectra, scene.endmembers),
        like_global={"variance": jnp.zeros(())},
        like_local={"abundances": jnp.zeros(num_materials)},
        constraints={
            "global": {"variance": constraints.interval(0.0, 1.0)},
            "local": {"abundances": constraints.simplex},
        },
    )


def model_data(spectra: Spectra, endmembers: Endmembers) -> dict[str, Array]:
    """Pixels as `unmixing_target` takes them, new ones for `sample_local(data=…)` too."""
    pixels = reduced(spectra, endmembers)
    return {"fitted": jnp.asarray(pixels.fitted), "misfit": jnp.asarray(pixels.misfit)}


def scores(draws: Float[np.ndarray, "draws pixels materials"], scene: Scene) -> dict[str, float]:
    """How good draws of the abundances are; against the truth where the scene has it.

    `speckle` is the mean distance of a pixel's mean abundance from the median of its 3 × 3
    neighbourhood.
    """
    mean = draws.mean(axis=0)
    found = {"speckle": speckle(mean, scene.shape)}
    if scene.abundances is not None:
        # Of n exact draws, these quantiles leave a tenth outside on average, whatever n.
        lower, upper = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
        found |= {
            "abundance_rmse": rms(mean - scene.abundances),
            "coverage_90": metrics.interval_coverage(lower, upper, scene.abundances),
        }
    return found


def speckle(mean: Abundances, shape: tuple[int, int]) -> float:
    """The mean absolute difference of pixels from the median of their 3 × 3 neighbourhoods."""
    image = mean.reshape(*shape, -1)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    return float(np.mean(np.abs(image - np.median(windows, axis=(-2, -1)))))


def rms(differences: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.asarray(differences, float) ** 2)))


def _apart(
    spectra: Spectra, purest: Int[np.ndarray, " pixels"], count: int, separation: float
) -> list[int]:
    chosen = [int(purest[0])]
    for pixel in purest[1:]:
        away = np.linalg.norm(spectra[chosen] - spectra[pixel], axis=1)
        if len(chosen) < count and away.min() > separation:
            chosen.append(int(pixel))
    return chosen


def _smooth_uniform(
    rng: np.random.Generator, shape: tuple[int, int]
) -> Float[np.ndarray, " pixels"]:
    """A smooth random field whose values are spread evenly over (0, 1)."""
    rows, columns = (np.linspace(0, np.pi, size) for size in shape)
    field = np.zeros(shape)
    for down in range(4):
        for across in range(4):
            size = rng.normal() / (1 + down**2 + across**2)
            field += size * np.outer(np.cos(down * rows), np.cos(across * columns))
    return (np.argsort(np.argsort(field.ravel())) + 0.5) / field.size


def _checked_spectra(spectra: Any) -> Spectra:
    spectra = np.asarray(spectra, float)
    if spectra.ndim != 2 or 0 in spectra.shape:
        raise InputError(
            f"spectra have shape {spectra.shape}; one row per pixel and one column per band are "
            "wanted.",
            hint="cube.reshape(-1, cube.shape[-1])",
        )
    bad = ~np.isfinite(spectra)
    if bad.any():
        raise InputError(
            f"spectra are not finite at {first_place(bad)}.",
            cause="dead pixels, or bands that were masked out",
            hint="leave those pixels or bands out",
        )
    return spectra


def _check_count(count: int, num_bands: int) -> None:
    if count > num_bands:
        raise InputError(
            f"{count} endmembers cannot be told apart by {num_bands} bands.",
            cause="more endmembers than bands, or a transposed image",
            hint=f"at most {num_bands} endmembers; one row per pixel, one column per band",
        )
