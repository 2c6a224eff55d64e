import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer
from follmer import Diagnostics, FileError, InputError, Posterior, Target, mc_sfs


def log_density(theta):
    return norm.logpdf(theta["mu"], 0.5, 0.8) - theta["sigma"]


def small(**options):
    target = Target(log_density, {"mu": 0.0, "sigma": 1.0}, {"sigma": constraints.positive})
    return mc_sfs(target, **{"num_samples": 8, "num_steps": 3} | options)


@pytest.fixture(scope="module")
def stein():
    return small()


@pytest.fixture(scope="module")
def gradient():
    return small(variant="gradient")


@pytest.fixture(params=["stein", "gradient"])
def posterior(request):
    return request.getfixturevalue(request.param)


def test_it_is_a_posterior_without_training(stein):
    assert type(stein) is Posterior
    assert stein.history == {}


def test_draws_have_the_tree_and_support_of_the_target(posterior, key):
    draws = posterior.sample(200, key=key)
    assert {name: leaf.shape for name, leaf in draws.items()} == {"mu": (200,), "sigma": (200,)}
    assert jnp.all(draws["sigma"] > 0)


def test_draws_and_weights_of_one_key_belong_together(posterior, key):
    draws = posterior.weighted_sample(200, key=key)
    np.testing.assert_array_equal(posterior.sample(200, key=key)["mu"], draws.position["mu"])
    np.testing.assert_array_equal(posterior.log_weights(200, key=key), draws.log_weights)
    assert jnp.all(jnp.isfinite(draws.log_weights))


def test_variants_draw_differently(stein, gradient, key):
    assert jnp.all(stein.sample(200, key=key)["mu"] != gradient.sample(200, key=key)["mu"])


def test_num_steps_can_be_changed_after_the_fact(stein, key):
    changed = stein.sample(200, key=key, num_steps=5)
    built_so = small(num_steps=5).sample(200, key=key)
    np.testing.assert_array_equal(changed["mu"], built_so["mu"])


def test_every_answer_of_a_posterior_is_there(stein, key):
    assert isinstance(stein.diagnostics(key=key, num_samples=256), Diagnostics)
    assert stein.resample(64, key=key)["mu"].shape == (64,)
    one = stein.expectation(lambda theta: jnp.ones(()), key=key, num_samples=256)
    np.testing.assert_allclose(one, 1.0, rtol=1e-5)
    summary = stein.summary(key=key, num_samples=256)
    assert summary.splitlines()[-1].startswith("Verdict:")
    tree = stein.to_datatree(key=key, num_samples=256)
    assert set(tree["posterior"].data_vars) == {"mu", "sigma"}


def test_it_is_saved_and_loaded(stein, key, tmp_path):
    stein.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", stein.target).sample(200, key=key)
    np.testing.assert_array_equal(loaded["mu"], stein.sample(200, key=key)["mu"])


def test_all_its_settings_are_saved(tmp_path):
    posterior = small(gamma=2.0, variant="gradient", grid="geometric")
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", posterior.target)
    expected = {
        "num_samples": 8,
        "num_steps": 3,
        "gamma": 2.0,
        "variant": "gradient",
        "grid": "geometric",
    }
    assert loaded.sampler.describe() == posterior.sampler.describe() == expected
    assert expected.keys() == inspect.signature(mc_sfs).parameters.keys() - {"target"}


def test_a_grid_of_ones_own_must_be_passed_again(tmp_path):
    def grid(num_steps):
        return np.linspace(0, 1, num_steps + 1) ** 2

    posterior = small(grid=grid)
    posterior.save(tmp_path / "run")
    with pytest.raises(FileError, match="a grid of your own"):
        follmer.load(tmp_path / "run", posterior.target)
    loaded = follmer.load(tmp_path / "run", posterior.target, grid=grid)
    assert loaded.sampler.grid is grid


def test_double_precision(x64, key):
    draws = small().weighted_sample(200, key=key)
    assert draws.position["mu"].dtype == draws.log_weights.dtype == jnp.float64


def test_numpy_and_jax_numbers_are_options():
    posterior = small(num_steps=np.int64(3), gamma=jnp.float32(2.0))
    assert posterior.sampler.describe() == small(gamma=2.0).sampler.describe()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples must be a whole number"),
        ({"num_samples": 2.5}, "num_samples must be a whole number"),
        ({"num_steps": 0}, "num_steps must be a whole number"),
        ({"num_steps": True}, "num_steps must be a whole number"),
        ({"gamma": -1.0}, "gamma must be a finite number above 0"),
        ({"gamma": np.nan}, "gamma must be a finite number above 0"),
        ({"variant": "steim"}, r"(?s)variant='steim' is unknown.*'stein'\?"),
        ({"variant": None}, "(?s)variant=None is unknown.*gradient, stein"),
        ({"grid": "unifrm"}, r"(?s)grid='unifrm' is unknown.*'uniform'\?"),
        ({"grid": np.linspace(0, 1, 4)}, "(?s)is unknown.*function of num_steps"),
        ({"grid": lambda k: np.linspace(0, 1, k)}, r"grid returned shape \(3,\) for 3 steps"),
        ({"grid": lambda k: np.zeros(k + 1)}, "does not rise strictly"),
        ({"num_sample": 3}, r"(?s)'num_sample' is not an option.*'num_samples'\?"),
        ({"num_paths": 3}, "'num_paths' is not an option"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        small(**options)


def test_what_is_no_target_is_refused():
    with pytest.raises(InputError, match=r"target is function, not a follmer.Target"):
        mc_sfs(log_density)


def test_options_are_given_by_name(stein):
    with pytest.raises(InputError, match="cannot be called this way: too many positional"):
        mc_sfs(stein.target, 100)


def test_sampling_under_other_keys_differs(stein, key):
    first, second = jax.random.split(key)
    assert jnp.all(stein.sample(200, key=first)["mu"] != stein.sample(200, key=second)["mu"])
