"""Endmembers, scenes, scores and the unmixing model's exact posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from follmer import InputError
from follmer.paper.experiments import unmixing
from follmer.paper.experiments.hyperspectral import (
    pixel_purity,
    reduced,
    scene,
    scores,
    simulated,
    speckle,
    unmixing_target,
)
from follmer.paper.experiments.quadrature import exact_posterior


def mixtures(num_pixels=200, num_bands=12, seed=0):
    """Inner mixtures of three spectra, whose pure pixels stand first, each with a noisy copy."""
    rng = np.random.default_rng(seed)
    pure = rng.uniform(0.2, 0.8, size=(3, num_bands))
    shares = 0.1 + 0.7 * rng.dirichlet(np.ones(3), size=num_pixels)
    copies = pure + 1e-3 * rng.normal(size=pure.shape)
    return np.concatenate([pure, copies, shares @ pure]), pure


def test_the_purest_pixels_are_one_of_each_material(key):
    spectra, _ = mixtures()
    chosen = pixel_purity(spectra, 3, key=key)
    # Row m and row m + 3 are the pure pixel of material m and its copy.
    assert sorted(chosen % 3) == [0, 1, 2]
    assert (chosen < 6).all()


def test_endmembers_nearer_than_the_first_separation_are_found_by_a_smaller_one(key):
    # The third is nearer to the second than half of the greatest distance.
    spectra = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.9, 0.3, 0.0], [0.5, 0.1, 0.0]])
    assert set(pixel_purity(spectra, 3, key=key)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("spectra", "count", "says"),
    [
        (np.full((9, 4), 0.5), 5, "5 endmembers cannot be told apart by 4 bands"),
        (np.full((3, 9), 0.5), 4, "asked of 3 pixels"),
        (np.full((9, 4), np.nan), 2, "not finite at row 0, column 0"),
        (np.full((9, 4), 0.5), 2, "only 1 of the"),
        (np.full(9, 0.5), 2, "one row per pixel"),
        (np.full((9, 4), 0.5), 0, "count must be"),
    ],
)
def test_what_has_no_endmembers_is_refused(spectra, count, says, key):
    with pytest.raises(InputError, match=says):
        pixel_purity(spectra, count, key=key)


SPECTRA, PURE = mixtures(6)
EVEN = np.full((12, 3), 1 / 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"spectra": 100 * SPECTRA}, r"leave \[0, 1\] at row 0, column 0"),
        ({"endmembers": PURE.T}, r"endmembers have shape \(12, 3\)"),
        ({"endmembers": np.eye(13, 12)}, "13 endmembers cannot be told apart by 12 bands"),
        ({"endmembers": PURE[:1]}, "nothing to unmix"),
        ({"endmembers": PURE[[0, 1, 1]]}, "linearly dependent"),
        ({"endmembers": np.where(PURE > 0.5, np.nan, PURE)}, "endmembers are not finite"),
        ({"shape": (5, 2)}, "does not have 12 pixels"),
        ({"abundances": EVEN[:3]}, r"abundances have shape \(3, 3\)"),
        ({"abundances": 2 * EVEN}, "12 of 12 rows of abundances are outside the simplex"),
        ({"abundances": EVEN + np.array([0.5, -0.5, 0])}, r"row 0 is \[0.8333, -0.1667, 0.3333\]"),
        ({"abundances": np.where(np.arange(12)[:, None] == 7, np.nan, EVEN)}, "row 7 is"),
    ],
)
def test_scenes_of_wrong_parts_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        scene(**{"spectra": SPECTRA, "endmembers": PURE, **arguments})


def test_a_simulated_scene_is_smooth_and_as_the_prior_says():
    known = simulated(0, (40, 40), 50)
    assert known.spectra.shape == (1600, 50)
    # Uniform on the simplex, each share has mean 1/3; the first is exact but for its ranks.
    assert known.abundances[:, 0].mean() == pytest.approx(1 / 3, abs=1e-3)
    shuffled = np.random.default_rng(0).permutation(known.abundances)
    assert speckle(known.abundances, (40, 40)) < 0.1 * speckle(shuffled, (40, 40))
    noise = known.spectra - known.abundances @ known.endmembers
    size = np.linalg.norm(known.abundances, axis=1) * np.sqrt(known.variance)
    # 80,000 squares of standard normals.
    assert np.mean((noise / size[:, None]) ** 2) == pytest.approx(1, abs=4 * np.sqrt(2 / 80_000))
    assert not np.array_equal(simulated(1, (40, 40), 50).abundances, known.abundances)


def test_a_few_numbers_stand_for_all_bands():
    known = simulated(0, (3, 4), 30)
    pixels = reduced(known.spectra, known.endmembers)
    abundances = np.random.default_rng(1).dirichlet(np.ones(3), size=12)
    by_bands = np.sum((known.spectra - abundances @ known.endmembers) ** 2, axis=1)
    away = (pixels.fitted - abundances) @ pixels.factor.T
    np.testing.assert_allclose(np.sum(away**2, axis=1) + 30 * pixels.misfit, by_bands, rtol=1e-10)


def test_the_model_has_the_density_that_its_formula_says(x64):
    known = simulated(0, (2, 2), 30)
    target = unmixing_target(known).joint()
    rng = np.random.default_rng(1)
    theta = {
        "global": {"variance": jnp.asarray(0.01)},
        "local": {"abundances": jnp.asarray(rng.dirichlet(np.ones(3), size=4))},
    }
    x = target.unconstrain(theta)
    mean = np.asarray(theta["local"]["abundances"]) @ known.endmembers
    sd = 0.1 * np.linalg.norm(theta["local"]["abundances"], axis=1, keepdims=True)
    # The simplex of three shares has area 1/2 in two of them.
    by_hand = np.sum(norm.logpdf(known.spectra, mean, sd)) + 4 * np.log(2.0)
    log_det = target.space.constrain_with_log_det(x)[1]
    assert float(target.log_density(x) - log_det) == pytest.approx(by_hand, rel=1e-9)


def test_scores_of_draws_that_are_the_truth():
    known = simulated(0, (6, 6), 30)
    found = scores(np.stack([known.abundances] * 3), known)
    assert found["abundance_rmse"] < 1e-9
    assert found["coverage_90"] == 1
    assert found["speckle"] == pytest.approx(speckle(known.abundances, (6, 6)))
    shifted = scores(np.stack([known.abundances + 0.1] * 3), known)
    assert shifted["abundance_rmse"] == pytest.approx(0.1)
    assert shifted["coverage_90"] == 0
    unknown = known._replace(abundances=None)
    assert scores(known.abundances[None], unknown).keys() == {"speckle"}


def test_few_exact_draws_cover_as_often_as_they_say():
    known = simulated(0, (40, 40), 5)
    rng = np.random.default_rng(0)
    # The truth is one more draw of each pixel's own distribution.
    own = rng.normal(size=(40, 1600, 3))
    covered = scores(own, known._replace(abundances=rng.normal(size=(1600, 3))))["coverage_90"]
    assert covered == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 4800))


def test_speckle_sees_a_lone_pixel_and_no_edge():
    image = np.zeros((6, 6, 3))
    image[:, 3:] = 1.0
    assert speckle(image.reshape(-1, 3), (6, 6)) == 0
    image[2, 1] = 1.0
    assert speckle(image.reshape(-1, 3), (6, 6)) == pytest.approx(1 / 36)


def test_the_exact_posterior_knows_what_it_does_not_know():
    known = simulated(0, (20, 20), 50)
    exact = exact_posterior(known)
    # 20,000 bands tell σ² up to 1 %.
    assert exact.variance == pytest.approx(known.variance, rel=0.04)
    inside = (exact.lower <= known.abundances) & (known.abundances <= exact.upper)
    # Of 400 pixels, each counted once: neighbours share no noise.
    assert inside.mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 400))
    np.testing.assert_allclose(exact.mean.sum(axis=1), 1, atol=1e-5)


def test_the_exact_posterior_is_that_of_the_model():
    known = simulated(3, (1, 1), 10, variance=0.06**2)
    target = unmixing_target(known).joint()
    exact = exact_posterior(known)
    shares = np.random.default_rng(0).dirichlet(np.ones(3), size=100_000)

    @jax.jit
    @jax.vmap
    def log_likelihood(abundances):
        theta = {
            "global": {"variance": jnp.asarray(exact.variance)},
            "local": {"abundances": abundances[None]},
        }
        x = target.unconstrain(theta)
        return target.log_density(x) - target.space.constrain_with_log_det(x)[1]

    logs = np.asarray(log_likelihood(jnp.asarray(shares)), float)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ shares
    error = np.sqrt(np.sum((weights[:, None] * (shares - mean)) ** 2, axis=0))
    np.testing.assert_allclose(exact.mean[0], mean, atol=4 * error.max() + 1e-3)


def test_indian_pines_has_three_different_endmembers(with_data):
    with_data("unmixing")
    part = unmixing.indian_pines(slice(2), slice(3))
    assert part.spectra.shape == (6, 200)
    assert part.shape == (2, 3)
    away = np.linalg.norm(part.endmembers[:, None] - part.endmembers, axis=-1)
    assert away[np.triu_indices(3, 1)].min() > 1
