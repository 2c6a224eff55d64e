"""Shapes and types of the inner packages are checked at run time, in the tests only.

The entry points are left alone: their own checks of bad input are what the tests look at.
"""

import gc
import os
import tempfile

import jax
import pooch
import pytest
from jaxtyping import install_import_hook

CHECKED = ["follmer.drifts", "follmer.objectives", "follmer.paths", "follmer.judging"]

# The folder of compiled programs that all workers share.
_CACHE = "FOLLMER_TESTS_CACHE"

# XLA's older code generator, each program in one piece: a scan with its gradient is compiled in
# 115 ms of CPU instead of 276 (jaxlib 0.10.2).
_QUICK_TO_COMPILE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

with install_import_hook(CHECKED, "beartype.beartype"):
    import follmer  # noqa: F401


def pytest_configure(config):
    """Equal computations of different tests, and of different workers, are compiled once."""
    if _CACHE not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="follmer-tests-")
        config.add_cleanup(folder.cleanup)
        # Workers are begun later, and inherit it.
        os.environ[_CACHE] = folder.name
        config.add_cleanup(lambda: os.environ.pop(_CACHE))
    # Most of the time of short tests goes into compiling; the slow ones run what users run.
    if config.option.markexpr == "not slow":
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        jax.config.update("jax_disable_most_optimizations", True)
        # Read when JAX starts its first device; processes that tests begin inherit it.
        if _QUICK_TO_COMPILE not in (flags := os.environ.get("XLA_FLAGS", "")):
            os.environ["XLA_FLAGS"] = f"{flags} {_QUICK_TO_COMPILE}".strip()
    jax.config.update("jax_compilation_cache_dir", os.environ[_CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_collection_finish():
    """What is loaded by now stays: the collector need not go through it again and again."""
    gc.collect()
    gc.freeze()
    # Not every 700 objects: traces are made of many, and few of them are cyclic.
    gc.set_threshold(20_000)


@pytest.fixture(autouse=True, scope="session")
def offline(tmp_path_factory):
    """No test reads the user's cache of data or reaches beyond this machine."""
    cache, retrieve = tmp_path_factory.mktemp("cache"), pooch.retrieve

    def local_only(url, *args, **kwargs):
        if not url.startswith("http://127.0.0.1:"):
            raise ConnectionError("the tests stay offline")
        return retrieve(url, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooch, "os_cache", lambda project: cache / project)
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setattr(pooch, "retrieve", local_only)
        yield


@pytest.fixture(autouse=True, scope="module")
def forgotten_programs():
    """Thousands of targets would fill the process's memory maps: programs go with their module."""
    yield
    jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def x64():
    """64-bit floats for one test."""
    with jax.enable_x64(True):
        yield
