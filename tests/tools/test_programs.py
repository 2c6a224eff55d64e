"""Compiled functions and how many programs they keep."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from follmer import FileError, enable_compilation_cache
from follmer.mcmc.chains import advance
from follmer.posterior.samplers import draw, log_weights_to
from follmer.targets import values_and_gradients
from follmer.tools import programs


def test_programs_are_kept_until_there_are_very_many(monkeypatch):
    monkeypatch.setattr(programs, "_COMPILED", [])
    monkeypatch.setattr(programs, "_MOST", 2)

    @programs.compiled
    def doubled(x):
        return 2 * x

    for size in (1, 2):
        np.testing.assert_array_equal(doubled(jnp.ones(size)), np.full(size, 2.0))
    programs.tidy()
    assert doubled.count == 2
    doubled(jnp.ones(3))
    programs.tidy()
    assert doubled.count == 0
    np.testing.assert_array_equal(doubled(jnp.ones(2)), [2.0, 2.0])


def test_the_librarys_programs_are_known():
    known = {id(one) for one in programs._COMPILED}
    assert {id(one) for one in (values_and_gradients, advance, draw, log_weights_to)} <= known


def test_programs_are_kept_on_disk_for_another_process(tmp_path):
    script = (
        "import jax, jax.numpy as jnp, follmer\n"
        f"folder = follmer.enable_compilation_cache({str(tmp_path / 'a' / 'programs')!r})\n"
        "target = follmer.Target(lambda x: -jnp.sum(x**2), like=jnp.zeros(2))\n"
        "follmer.fit(target, key=jax.random.key(0), progress=False)\n"
        "print(len(list(folder.iterdir())))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert int(told.stdout) > 0


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="compiled programs"):
        enable_compilation_cache(tmp_path / "file" / "programs")
