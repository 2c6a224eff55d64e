"""The training loop: history, callbacks, stopping, checkpoints, interrupts, non-finite steps."""

import gc
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from follmer import (
    NSFS,
    PAPER,
    FileError,
    InputError,
    NonFiniteError,
    Posterior,
    Report,
    Target,
    fit,
)
from follmer.fitting.training import initial_state, step_keys
from follmer.objectives import det
from follmer.process import Process, process_options
from follmer.tools import progress
from follmer.tools.keys import named_key

KEY = jax.random.key(0)
# Four chunks of 5 iterations and a last one of 3.
SMALL = {
    "key": KEY,
    "num_steps": 3,
    "num_paths": 4,
    "num_iterations": 23,
    "chunk_size": 5,
    "step_rule": "euler_maruyama",
    "drift": "mlp",
    "drift_options": {"width": 4, "depth": 1},
    "progress": False,
    "precondition": "identity",
    "audit": False,
}
FIT_OPTIONS = ("key", "chunk_size", "progress", "precondition", "audit")
ALGORITHM_OPTIONS = {name: value for name, value in SMALL.items() if name not in FIT_OPTIONS}
FILE = "checkpoint.follmer"


def log_normal(x, mean, sd):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, mean, sd))


class Affine(eqx.Module):
    """A drift that compiles fast."""

    rate: jax.Array
    shift: jax.Array

    def __init__(self, dim=2):
        self.rate = jnp.zeros(())
        self.shift = jnp.zeros(dim)

    def __call__(self, t, x):
        return self.shift - self.rate * x


AFFINE = {**SMALL, "drift_options": {}, "check": False}
AFFINE_DRIFT = {"drift": Affine(), "drift_options": {}}


@pytest.fixture(scope="module")
def target():
    return Target(lambda x: log_normal(x, 1.0, 0.5), like=jnp.zeros(2))


@pytest.fixture(scope="module")
def whole(target):
    """An uninterrupted run, and what its callback saw."""
    reports = []
    return fit(target, **SMALL, callbacks=[reports.append]), reports


def parameters(posterior):
    return posterior.sampler.parameters


def assert_same(one, two):
    """Equal bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def assert_same_posterior(one, two):
    assert_same(parameters(one), parameters(two))
    assert_same(one.history, two.history)
    assert_same(one.sample(4, key=KEY), two.sample(4, key=KEY))
    assert_same(one.log_weights(4, key=KEY), two.log_weights(4, key=KEY))


def stop_at(iteration):
    return lambda report: report.iteration >= iteration


def interrupt_at(iteration):
    def callback(report):
        if report.iteration >= iteration:
            raise KeyboardInterrupt

    return callback


def interrupted(target, **options):
    with pytest.warns(UserWarning, match="interrupted at iteration"):
        return fit(target, **options)


def broken_for_some_keys(drift, problem, key):
    loss, log_weights = det(drift, problem, key)
    return jnp.where(jax.random.bernoulli(key, 0.3), jnp.nan, loss), log_weights


def always_broken(drift, problem, key):
    loss, log_weights = det(drift, problem, key)
    return loss * jnp.nan, log_weights


def test_fit_returns_a_posterior_of_the_target(target, whole):
    posterior, _ = whole
    assert isinstance(posterior, Posterior)
    assert posterior.target is target
    assert posterior.notes == ()
    assert posterior.sample(6, key=KEY).shape == (6, 2)


def test_history_has_one_row_per_iteration_and_per_evaluation(whole):
    history = whole[0].history
    for name in ("loss", "elbo", "gradient_norm", "skipped"):
        assert history[name].shape == (23,)
        assert np.isfinite(history[name]).all()
    for name in ("elbo", "ess"):
        assert history[f"evaluation_{name}"].shape == (5,)
    np.testing.assert_array_equal(history["evaluation_iteration"], [5, 10, 15, 20, 23])
    assert np.all(history["evaluation_ess"] > 0)
    assert np.all(history["evaluation_ess"] <= 1)


def test_callback_is_called_once_per_chunk_with_a_report(whole):
    posterior, reports = whole
    assert all(isinstance(report, Report) for report in reports)
    assert [report.iteration for report in reports] == [5, 10, 15, 20, 23]
    assert [int(report.state.iteration) for report in reports] == [5, 10, 15, 20, 23]
    history = posterior.history
    assert [report.elbo for report in reports] == history["evaluation_elbo"].tolist()
    assert [report.ess_fraction for report in reports] == history["evaluation_ess"].tolist()
    assert [report.loss for report in reports] == history["loss"][[4, 9, 14, 19, 22]].tolist()


def test_fit_repeats_the_algorithms_own_steps(target):
    posterior = fit(target, **{**AFFINE, "drift": Affine(), "num_iterations": 3, "patience": None})
    algorithm = NSFS(target, **{**ALGORITHM_OPTIONS, **AFFINE_DRIFT, "num_iterations": 3})
    train_key = named_key(KEY, "training 0")
    state, step = initial_state(algorithm, train_key), jax.jit(algorithm.step)
    for i in range(3):
        state, info = step(state, step_keys(named_key(train_key, "steps"), i)[1])
        np.testing.assert_allclose(posterior.history["loss"][i], info.loss, rtol=1e-5)
    for found, expected in zip(
        jax.tree.leaves(parameters(posterior)), jax.tree.leaves(state.average), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_training_raises_the_elbo(target):
    posterior = fit(
        target, **{**AFFINE, "drift": Affine(), "num_iterations": 60, "learning_rate": 0.1}
    )
    trained = posterior.log_weights(512, key=KEY)
    # Untrained: minus the divergence of N(0, 1) from N(1, 0.5²) in each of two dimensions.
    untrained = -2 * (np.log(0.5) + 2 / (2 * 0.25) - 0.5)
    # 4 standard errors of the trained one's mean.
    assert trained.mean() - untrained > 4 * trained.std() / np.sqrt(512)


def test_callback_that_returns_true_ends_training(target, whole):
    posterior = fit(target, **SMALL, callbacks=[lambda report: None, stop_at(10)])
    assert posterior.history["loss"].shape == (10,)
    np.testing.assert_array_equal(posterior.history["loss"], whole[0].history["loss"][:10])


@pytest.mark.parametrize("answer", [False, None, 1, "yes", np.ones(2)])
def test_callback_that_returns_anything_else_does_not(target, answer):
    posterior = fit(target, **SMALL, callbacks=[lambda report: answer])
    assert posterior.history["loss"].shape == (23,)


def test_error_in_a_callback_is_raised(target):
    def broken(report):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        fit(target, **SMALL, callbacks=[broken])


@pytest.fixture(scope="module")
def at_optimum():
    """A run that cannot improve: the target is the reference."""
    target = Target(lambda x: log_normal(x, 0.0, 1.0), like=jnp.zeros(2))
    options = {**AFFINE, "drift": Affine(), "num_iterations": 60}

    def run(patience):
        return fit(target, **options, patience=patience)

    return run


def test_even_weights_end_training(at_optimum):
    assert at_optimum(patience=50).history["loss"].shape == (10,)


def test_plateau_ends_training_after_patience(at_optimum, monkeypatch):
    monkeypatch.setattr(sys.modules["follmer.fitting.training"], "_EVEN", 2.0)
    posterior = at_optimum(patience=2)
    assert 3 * 5 <= posterior.history["loss"].size < 60
    np.testing.assert_allclose(posterior.history["evaluation_elbo"], 0, atol=1e-3)


def test_no_patience_trains_to_the_end(at_optimum):
    assert at_optimum(patience=None).history["loss"].shape == (60,)


def test_best_drift_is_returned_when_training_gets_worse(target):
    def rate(count):
        return jnp.where(count < 5, 0.01, 100.0)

    reports = []
    posterior = fit(
        target, **{**AFFINE, "drift": Affine(), "learning_rate": rate}, callbacks=[reports.append]
    )
    assert reports[-1].elbo < reports[0].elbo - 100
    assert_same(parameters(posterior), reports[0].state.average)


@pytest.mark.parametrize("how", ["callback", "interrupt"])
def test_resumed_run_equals_an_uninterrupted_one(target, whole, tmp_path, how):
    if how == "callback":
        fit(target, **SMALL, checkpoint=tmp_path, callbacks=[stop_at(10)])
    else:
        interrupted(target, **SMALL, checkpoint=tmp_path, callbacks=[interrupt_at(10)])
    seen = []
    resumed = fit(target, **SMALL, checkpoint=tmp_path, resume=True, callbacks=[seen.append])
    assert [report.iteration for report in seen] == [15, 20, 23]
    assert_same_posterior(resumed, whole[0])


def test_finished_run_is_returned_again_without_training(target, whole, tmp_path):
    first = fit(target, **SMALL, checkpoint=tmp_path / "new" / "folder")
    assert_same_posterior(first, whole[0])

    def fail(report):
        pytest.fail("trained again")

    again = fit(
        target, **SMALL, checkpoint=tmp_path / "new" / "folder", resume=True, callbacks=[fail]
    )
    assert_same_posterior(again, whole[0])


def test_resume_without_a_checkpoint_yet_starts_from_the_beginning(target, whole, tmp_path):
    posterior = fit(target, **SMALL, checkpoint=tmp_path, resume=True)
    assert_same_posterior(posterior, whole[0])


def test_checkpoint_folder_holds_one_file(target, tmp_path):
    fit(target, **SMALL, checkpoint=str(tmp_path), callbacks=[stop_at(10)])
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


@pytest.fixture(scope="module")
def started(target, tmp_path_factory):
    """The bytes of a checkpoint after ten iterations."""
    folder = tmp_path_factory.mktemp("started")
    fit(target, **SMALL, checkpoint=folder, callbacks=[stop_at(10)])
    return (folder / FILE).read_bytes()


@pytest.fixture
def folder(started, tmp_path):
    """A folder with that checkpoint."""
    (tmp_path / FILE).write_bytes(started)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gamma": 2.0}, r"other options: gamma None → 2\.0"),
        ({"num_iterations": 30}, "other options: num_iterations 23 → 30"),
        ({"drift_options": {"width": 5, "depth": 1}}, "other options: drift_options"),
        ({"drift": "time_mlp"}, "other options: drift 'mlp' → 'time_mlp'"),
        ({"chunk_size": 4}, "other chunk_size: 5 → 4"),
        ({"key": jax.random.key(1)}, r"other key: \[0, 0\] → \[0, 1\]"),
    ],
)
def test_resume_with_changed_arguments_says_which(target, folder, changed, says):
    with pytest.raises(FileError, match=says):
        fit(target, **{**SMALL, **changed}, checkpoint=folder, resume=True)


def test_resume_on_another_target_is_an_error(folder):
    other = Target(lambda x: log_normal(x, 1.0, 0.5), like=jnp.zeros(3))
    with pytest.raises(FileError, match="other space"):
        fit(other, **SMALL, checkpoint=folder, resume=True)


@pytest.mark.parametrize(
    "damage",
    [lambda file: file[: len(file) // 2], lambda file: b"", lambda file: b"not a checkpoint" * 9],
    ids=["cut short", "empty", "foreign"],
)
def test_resume_from_a_corrupt_file_is_a_clear_error(target, folder, damage):
    file = folder / FILE
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(FileError, match=r"checkpoint\.follmer is not a follmer checkpoint"):
        fit(target, **SMALL, checkpoint=folder, resume=True)
    # A file left open is a warning when it is collected, and so an error here.
    gc.collect()


def test_resume_from_a_flipped_byte_is_a_clear_error(target, folder):
    file = folder / FILE
    content = bytearray(file.read_bytes())
    # Right behind the 128 bytes that describe one of the arrays.
    content[content.index(b"\x93NUMPY", len(content) // 3) + 128] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(FileError, match="follmer checkpoint"):
        fit(target, **SMALL, checkpoint=folder, resume=True)


def test_resume_without_a_folder_is_an_error(target):
    with pytest.raises(InputError, match="resume=True needs checkpoint="):
        fit(target, **SMALL, resume=True)


def test_existing_checkpoint_is_not_overwritten(target, folder, started):
    with pytest.raises(InputError, match=r"already holds a run\.\nTry: resume=True"):
        fit(target, **SMALL, checkpoint=folder)
    assert (folder / FILE).read_bytes() == started


def test_checkpoint_folder_that_cannot_be_made_is_a_clear_error(target, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="cannot write"):
        fit(target, **SMALL, checkpoint=tmp_path / "file")


def test_checkpoint_of_numpy_numbers_can_be_written(target, tmp_path):
    options = {**SMALL, "drift_options": {"width": np.int64(4), "depth": 1}}
    fit(target, **options, checkpoint=tmp_path, callbacks=[stop_at(5)])
    assert (tmp_path / FILE).exists()


def test_checkpoint_of_an_own_optimizer_with_a_key_in_its_state(target, tmp_path):
    optimizer = optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(3)), optax.sgd(0.01))
    options = {**AFFINE, "drift": Affine(), "optimizer": optimizer}
    uninterrupted = fit(target, **options)
    fit(target, **options, checkpoint=tmp_path, callbacks=[stop_at(10)])
    resumed = fit(target, **options, checkpoint=tmp_path, resume=True)
    assert_same_posterior(resumed, uninterrupted)


def test_interrupt_returns_the_drift_so_far_with_a_warning_and_a_note(target, tmp_path):
    reports = []
    posterior = interrupted(
        target, **SMALL, checkpoint=tmp_path, callbacks=[reports.append, interrupt_at(5)]
    )
    assert posterior.history["loss"].shape == (5,)
    assert_same(parameters(posterior), reports[0].state.average)
    assert posterior.notes == ("training was interrupted at iteration 5",)
    assert (tmp_path / FILE).exists()


def test_interrupt_before_the_first_evaluation_returns_a_posterior():
    calls = []

    def log_density(x):
        calls.append(x)
        if len(calls) > 1:  # the first call is Target's own
            raise KeyboardInterrupt
        return log_normal(x, 1.0, 0.5)

    target = Target(log_density, like=jnp.zeros(2))
    posterior = interrupted(target, **{**AFFINE, "drift": Affine()})
    assert posterior.history["loss"].shape == (0,)
    assert_same(parameters(posterior), Affine())


def test_real_interrupt_signal_returns_the_drift_and_a_checkpoint_to_resume(tmp_path):
    script = """
        import os, signal, sys, threading, warnings

        # A job in the background may have been told to ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import jax, jax.numpy as jnp
        import follmer

        target = follmer.Target(lambda x: -jnp.sum((x - 1) ** 2), like=jnp.zeros(1))
        options = dict(
            key=jax.random.key(0), num_steps=2, num_paths=2, num_iterations=10**9, chunk_size=10,
            drift="mlp", drift_options={"width": 2, "depth": 1}, patience=None, progress=False,
            check=False, precondition="identity", audit=False, checkpoint=sys.argv[1],
        )
        timers = []

        def interrupt_soon(report):
            if not timers:
                timers.append(threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)))
                timers[0].start()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = follmer.fit(target, **options, callbacks=[interrupt_soon])
        assert any("interrupted at iteration" in str(one.message) for one in caught), caught
        steps = len(posterior.history["loss"])
        resumed = []

        def stop(report):
            resumed.append(report.iteration)
            return True

        follmer.fit(target, **options, resume=True, callbacks=[stop])
        # An interrupt while the file is written leaves the one before.
        assert resumed[0] in (steps, steps + 10), (steps, resumed)
        print(posterior.notes[0], posterior.sample(2, key=jax.random.key(1)).shape)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "training was interrupted at iteration" in result.stdout
    assert "(2, 1)" in result.stdout


def test_occasional_non_finite_steps_are_skipped_counted_and_told(target):
    options = {**AFFINE, "drift": Affine(), "objective": broken_for_some_keys}
    posterior = fit(target, **options)
    skipped = posterior.history["skipped"].astype(bool)
    np.testing.assert_array_equal(skipped, np.isnan(posterior.history["loss"]))
    assert 0 < skipped.sum() < 23
    note = f"{skipped.sum()} training steps with non-finite gradients were skipped"
    assert posterior.notes == (note,)
    assert f"note: {note}" in posterior.summary(key=KEY, num_samples=64)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parameters(posterior)))


def test_persistent_non_finite_steps_are_an_error(target):
    options = {**AFFINE, "drift": Affine(), "objective": always_broken, "num_iterations": 200}
    with pytest.raises(
        NonFiniteError, match=r"\d+ training steps in a row up to iteration (5|6)\d"
    ):
        fit(target, **options, patience=None)


def only_near_zero(x):
    return jnp.where(jnp.abs(x[0]) < 2, log_normal(x, 0.5, 0.7), jnp.nan)


def test_density_that_is_not_finite_at_the_start_is_an_error():
    target = Target(only_near_zero, like=jnp.zeros(2))
    with pytest.raises(NonFiniteError, match=r"not finite at \d+ of 128 starting draws"):
        fit(target, **SMALL)


def test_check_false_trains_where_the_preflight_would_refuse():
    target = Target(only_near_zero, like=jnp.zeros(2))
    posterior = fit(target, **{**AFFINE, "drift": Affine(), "check": False})
    assert 0 < posterior.history["skipped"].sum() < 23


def test_elbo_that_is_not_finite_does_not_freeze_the_returned_drift():
    target = Target(only_near_zero, like=jnp.zeros(2))
    reports = []
    posterior = fit(target, **{**AFFINE, "drift": Affine()}, callbacks=[reports.append])
    assert not np.isfinite(posterior.history["evaluation_elbo"]).any()
    assert_same(parameters(posterior), reports[-1].state.average)


def test_drift_without_parameters_is_an_error(target):
    options = {**SMALL, "drift": lambda t, x: -x, "drift_options": {}}
    with pytest.raises(InputError, match="the drift has no parameters to train"):
        fit(target, **options)


@pytest.mark.parametrize(
    ("option", "nearest"),
    [("num_iteration", "num_iterations"), ("chunksize", "chunk_size"), ("calbacks", "callbacks")],
)
@pytest.mark.parametrize("wrapped", [False, True], ids=["target", "NSFS"])
def test_unknown_option_names_the_nearest(target, wrapped, option, nearest):
    what = NSFS(target, **ALGORITHM_OPTIONS) if wrapped else target
    with pytest.raises(InputError, match=rf"'{option}' is not an option.*\n.*\n.*'{nearest}'\?"):
        fit(what, key=KEY, **{option: 3})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": 0}, "key is not a JAX random key"),
        ({"chunk_size": 0}, "chunk_size must be"),
        ({"patience": 0}, "patience must be"),
        ({"num_steps": 0}, "num_steps must be"),
        ({"callbacks": lambda report: None}, "callbacks"),
        ({"callbacks": ["stop"]}, "callbacks"),
    ],
)
def test_bad_argument_is_an_input_error(target, options, says):
    with pytest.raises(InputError, match=says):
        fit(target, **{**SMALL, **options})


def test_missing_key_is_an_input_error(target):
    with pytest.raises(InputError, match="key"):
        fit(target)


def test_target_that_is_no_target_is_an_input_error():
    with pytest.raises(InputError, match=r"not a follmer\.Target"):
        fit(lambda x: -jnp.sum(x**2), key=KEY)


def test_nsfs_is_trained_as_it_is(target, whole):
    algorithm = NSFS(target, **ALGORITHM_OPTIONS)
    posterior = fit(algorithm, key=KEY, chunk_size=5, progress=False)
    assert posterior.sampler.process.describe() == algorithm.process.describe()
    assert_same_posterior(posterior, whole[0])


def test_options_beside_an_nsfs_replace_its_own(target, whole):
    algorithm = NSFS(target, **{**ALGORITHM_OPTIONS, "num_iterations": 9, "gamma": 3.0})
    posterior = fit(algorithm, key=KEY, chunk_size=5, progress=False, num_iterations=23, gamma=1.0)
    assert_same_posterior(posterior, whole[0])
    assert algorithm.process.gamma == 3.0


@pytest.fixture(scope="module")
def data_target():
    data = 1 + 0.5 * jax.random.normal(jax.random.key(5), (20,))
    return Target(
        log_prior=lambda x: log_normal(x, 0.0, 1.0),
        log_likelihood=lambda x, y: jax.scipy.stats.norm.logpdf(y, x[0], 0.5),
        data=data,
        like=jnp.zeros(1),
    )


def test_mini_batches_train(data_target):
    options = {**AFFINE, "drift": Affine(1), "num_iterations": 60, "learning_rate": 0.1}
    posterior = fit(data_target, **options, batch_size=5, patience=None)
    draws = posterior.sample(512, key=KEY)
    # The conjugate posterior: precision 1 + 20/0.25, mean from the data.
    mean = np.sum(data_target.data) / 0.25 / 81
    # Untrained draws have mean 0; 4 standard errors are 0.16 for draws of sd 0.9.
    assert abs(draws.mean() - mean) < 0.3 * mean


def test_evaluations_of_mini_batches_are_as_precise_as_their_paths(data_target):
    # Without training, all 12 evaluations estimate one ELBO from 256 paths each.
    options = {**AFFINE, "drift": Affine(1), "num_iterations": 60, "optimizer": optax.sgd(0.0)}
    posterior = fit(data_target, **options, batch_size=1, patience=None)
    x = jax.random.normal(KEY, (4096, 1))
    rows = data_target.data[jax.random.randint(KEY, (4096, 1), 0, 20)]
    log_density = jax.vmap(data_target.log_density)(x, rows)
    log_weights = log_density - jax.vmap(lambda x: log_normal(x, 0.0, 1.0))(x)
    # Three times the standard error of 256 paths with a batch of their own.
    assert posterior.history["evaluation_elbo"].std() < 3 * log_weights.std() / np.sqrt(256)


def test_log_variance_with_mini_batches_is_an_error(data_target):
    options = {**AFFINE, "drift": Affine(1), "objective": "log_variance"}
    with pytest.raises(InputError, match="log-variance objective was given a mini-batch"):
        fit(data_target, **options, batch_size=5)


def test_density_is_traced_as_often_for_many_chunks_as_for_two():
    def traces(num_iterations):
        calls = []

        def log_density(x):
            calls.append(x)
            return log_normal(x, 1.0, 0.5)

        target = Target(log_density, like=jnp.zeros(2))
        options = {"num_iterations": num_iterations, "learning_rate": lambda count: 1e-3}
        posterior = fit(target, **{**AFFINE, "drift": Affine(), **options}, patience=None)
        return len(calls), len(posterior.history["evaluation_elbo"])

    # Both end in a chunk of 3.
    (few, two), (many, twelve) = traces(8), traces(58)
    assert (two, twelve) == (2, 12)
    assert few == many
    assert few > 0


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["one by one", "all at once"])
def test_result_does_not_depend_on_speed(target, whole, monkeypatch, seconds):
    monkeypatch.setattr(progress, "SECONDS_PER_CALL", seconds)
    assert_same_posterior(fit(target, **SMALL), whole[0])


def test_another_key_gives_another_result(target, whole):
    other = fit(target, **{**SMALL, "key": jax.random.key(1)}, callbacks=[stop_at(5)])
    assert not np.any(other.history["loss"] == whole[0].history["loss"][:5])


@pytest.mark.usefixtures("x64")
def test_fit_in_double_precision():
    target = Target(lambda x: log_normal(x, 1.0, 0.5), like=jnp.zeros(2))
    posterior = fit(target, **{**AFFINE, "drift": Affine()}, callbacks=[stop_at(5)])
    assert {leaf.dtype for leaf in jax.tree.leaves(parameters(posterior))} == {jnp.dtype("float64")}
    assert posterior.sample(4, key=KEY).dtype == jnp.float64


def test_progress_bar_is_shown_and_hidden(target, capfd):
    fit(target, **SMALL)
    assert capfd.readouterr().err == ""
    fit(target, **{**SMALL, "progress": True})
    shown = capfd.readouterr().err
    assert "23/23" in shown
    assert "ELBO" in shown


def test_the_papers_setting_is_kept(target):
    posterior = fit(target, key=KEY, **{**PAPER, "num_iterations": 2}, audit=False, progress=False)
    found = posterior.sampler.process.describe()
    expected = Process(target).describe() | {
        name: value for name, value in PAPER.items() if name in process_options()
    }
    assert found == expected


def test_a_precondition_beside_an_nsfs_is_an_error(target):
    algorithm = NSFS(target, **ALGORITHM_OPTIONS)
    with pytest.raises(InputError, match="precondition was given together with an NSFS"):
        fit(algorithm, key=KEY, precondition="laplace")


def test_a_checkpoint_is_looked_at_before_anything_is_computed(folder):
    def log_density(x):
        assert isinstance(x, jax.core.Tracer)
        return log_normal(x, 1.0, 0.5)

    target = Target(log_density, like=jnp.zeros(2))

    def compute(*given):
        raise AssertionError("computed before the checkpoint was looked at")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("follmer.targets.density.values_and_gradients", compute)
        with pytest.raises(InputError, match="already holds a run"):
            fit(target, **SMALL, checkpoint=folder)
        with pytest.raises(FileError, match="other options: gamma"):
            fit(target, **{**SMALL, "gamma": 2.0}, checkpoint=folder, resume=True)
