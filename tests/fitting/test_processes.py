"""One fit by two processes: the same result as by one, also after one of them was killed."""

import functools
import signal

import numpy as np
import pytest

import follmer
import together

# 40 steps of Adam amplify rounding (1e-7) a hundredfold at most; values reach 40.
TOLERANCE = 1e-3


MODEL = {}
exec(together.MODEL, MODEL)


@functools.cache
def alone():
    """What one process finds."""
    return MODEL["told"](MODEL["fitted"](MODEL["logistic"](MODEL["rows"]())))


@pytest.fixture
def agrees(tmp_path):
    """Whether what the processes have saved is what one process finds."""

    def check(*names):
        for name in names:
            found = np.load(tmp_path / f"{name}.npy")
            np.testing.assert_allclose(found, alone(), atol=TOLERANCE, rtol=0)

    return check


def test_two_processes_find_what_one_finds(tmp_path, agrees):
    """With rows of their own, which no other process sees."""
    together.run_pair(
        f"""
        index, mesh = jax.process_index(), jax.make_mesh((2,), ("data",))
        own = jax.tree.map(lambda array: np.split(array, 2)[index], rows())
        target = logistic(own).joined(mesh)
        assert target.num_data == 64
        assert not target.data["x"].is_fully_addressable
        posterior = fitted(target, mesh=mesh)
        np.save(f"{tmp_path}/{{index}}.npy", told(posterior, mesh))
        with follmer.on_mesh(mesh):
            posterior.save("{tmp_path}/kept.follmer")
        """
    )
    agrees("0", "1")
    # The file is that of a fit to all rows.
    again = follmer.load(tmp_path / "kept.follmer", MODEL["logistic"](MODEL["rows"]()))
    np.testing.assert_allclose(MODEL["told"](again), alone(), atol=TOLERANCE, rtol=0)


def test_what_differs_between_processes_is_told_by_both():
    """Options, arguments that one refuses, data, versions, types of rows; one that stays away."""
    found = together.run_pair(
        """
        from follmer.tools import processes

        index, target = jax.process_index(), logistic(rows())

        def attempt(action):
            try:
                action()
                print("nothing was wrong")
            except follmer.FollmerError as error:
                print(type(error).__name__, str(error).splitlines()[0])

        attempt(lambda: fitted(target, mesh="auto", num_paths=16 + index))
        attempt(lambda: fitted(target, mesh="auto", num_steps=4 - 5 * index))
        attempt(lambda: fitted(logistic(rows(64 + index)), mesh="auto"))
        own = {"x": np.ones((8, 2), np.float32), "y": np.ones(8, np.float32 if index else np.int32)}
        attempt(lambda: logistic(own).joined(jax.make_mesh((2,), ("data",))))
        versions = processes.versions
        processes.versions = lambda: versions() | {"versions": {"jax": str(index)}}
        attempt(lambda: fitted(target, mesh="auto"))
        processes.versions = versions
        processes.PATIENCE = 1.0
        if index == 0:
            attempt(lambda: fitted(target, mesh="auto"))
        """
    )
    for told in found:
        lines = [line for line in told.splitlines() if "Gloo" not in line]
        assert "num_paths 16 → 17" in lines[0]
        assert "num_steps must be a whole number" in lines[1]
        assert "data '" in lines[2]
        assert "y: int32[]" in lines[3]
        assert "y: float32[]" in lines[3]
        assert "jax '0' → '1'" in lines[4]
    assert "ProcessError another process was not heard of for 1 seconds." in found[0]


def test_a_killed_run_goes_on(tmp_path, agrees):
    """From the last checkpoint, by two processes and by one."""
    processes = together.start_pair(
        f"""
        import os, signal

        def kill(report):
            if report.iteration == 20 and jax.process_index() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        fitted(logistic(rows()), mesh="auto", checkpoint="{tmp_path}/run", callbacks=[kill])
        """
    )
    together.ended(processes[1])
    assert processes[1].returncode == -signal.SIGKILL
    # As a cluster does: one that is left alone cannot go on.
    processes[0].kill()
    processes[0].communicate()
    going_on = f"""
        posterior = fitted(
            logistic(rows()), mesh="auto", checkpoint="{tmp_path}/run", resume=True,
            callbacks=[lambda report: print("at", report.iteration)],
        )
        name = f"{{jax.device_count()}}{{jax.process_index()}}"
        np.save(f"{tmp_path}/{{name}}.npy", told(posterior, "auto"))
        """
    kept = (tmp_path / "run" / "checkpoint.follmer").read_bytes()
    for told in together.run_pair(going_on):
        assert "at 30\nat 40" in told
        assert "at 20" not in told
    (tmp_path / "run" / "checkpoint.follmer").write_bytes(kept)
    together.run(going_on, num_devices=3)
    agrees("20", "21", "30")
