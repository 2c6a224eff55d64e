"""What the experiments on images are made of: networks, rotated digits, shared work."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.paper.experiments import cifar10, mnist, weight_marginals
from follmer.paper.experiments.images import angles_of_test, entropy, rotated
from follmer.paper.experiments.lenet import digits_network, photographs_network
from follmer.paper.experiments.parts import Parts
from follmer.paper.report.published import published


@pytest.mark.parametrize(
    ("network", "shape", "count"),
    [(digits_network, (1, 28, 28), 44_426), (photographs_network, (3, 32, 32), 62_006)],
)
def test_the_networks_have_the_papers_numbers_of_parameters(network, shape, count):
    made = network(jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(made, eqx.is_array))) == count
    outputs = jax.eval_shape(made, jnp.zeros(shape))
    assert outputs.shape == (10,)


def test_digits_turn_about_their_middle():
    image = np.zeros((1, 1, 28, 28), np.float32)
    image[0, 0, 4:10, 13:15] = 1.0
    assert np.array_equal(rotated(image, 0.0), image)
    quarter = rotated(image, 90.0)
    np.testing.assert_allclose(np.abs(quarter.sum() - image.sum()), 0.0, atol=1e-3)
    # What stood above the middle stands beside it.
    assert quarter[0, 0, 13:15].sum() == pytest.approx(image.sum(), rel=1e-3)
    assert rotated(image, np.array([10.0])).dtype == image.dtype


def test_the_test_set_is_rotated_alike_in_every_run():
    angles = angles_of_test(10_000)
    assert np.array_equal(angles, angles_of_test(10_000))
    assert 29.9 < np.abs(angles).max() <= 30.0


def test_entropy_of_predictions():
    found = entropy(np.array([[1.0, 0.0], [0.5, 0.5]]))
    np.testing.assert_allclose(found, [0.0, np.log(2.0)], atol=1e-12)


def test_parts_are_made_once_for_a_target_and_their_seconds_are_told():
    parts, made = Parts(), []
    first, second = object(), object()

    def part():
        made.append(len(made))
        return made[-1]

    for target, wanted in ((first, 0), (first, 0), (second, 1)):
        parts.begin(target, jax.random.key(0))
        assert parts.part("points", part) == wanted
    assert parts.earlier == 0.0
    parts.begin(second, jax.random.key(0))
    parts.part("points", part)
    seconds = parts.earlier
    assert seconds > 0.0
    # Asked for twice, counted once.
    parts.part("points", part)
    assert parts.earlier == seconds
    parts.begin(second, jax.random.key(1))
    assert parts.part("points", part) == 2


def test_rotated_digits_stand_beside_the_papers_own_numbers():
    assert published("mnist", "rotated by up to 30°")["n_sfs"]["accuracy"].mean == 0.9479
    assert published("mnist", "test set")["n_sfs"]["accuracy"].mean == 0.9889


def test_rows_of_other_models_and_calibrated_ones_say_so():
    rows = cifar10.methods("auto", True)
    assert rows["n_sfs_calibrated"].settings == {"power": 1.3}
    assert rows["points_fan_in"].settings == {"prior": "fan-in, scale 2"}
    assert rows["points"].num_samples == rows["points_fan_in"].num_samples == 8
    # No power was measured for digits.
    assert rows.keys() - mnist.methods("auto", True).keys() == {"n_sfs_calibrated"}


def test_how_much_wider_is_told_as_a_number():
    rows = {
        "n_sfs": {"weight_sd": 0.3, "weight_sd_inside": 0.06},
        "sgld": {"weight_sd": 0.02, "weight_sd_inside": 0.02},
    }
    assert "15.0 times SGLD's" in weight_marginals._wider(rows)
    assert "3.0 times inside" in weight_marginals._wider(rows)
    assert weight_marginals._wider({"n_sfs": rows["n_sfs"]}) == ""
