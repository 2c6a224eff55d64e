"""The host's cores as devices of their own."""

import jax

from follmer.errors import InputError
from follmer.tools.checks import positive_int


def use_cores(count: int) -> None:
    """Make so many devices of the host's cores, for meshes; before JAX computes anything.

    The environment variable `JAX_NUM_CPU_DEVICES` does the same.
    """
    count = positive_int("count", count)
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        found = len(jax.local_devices(backend="cpu"))
        if found != count:
            raise InputError(
                f"JAX has started with {found} host devices; {count} cannot be had any more.",
                cause="something was computed, or devices were asked for, before use_cores",
                hint=f"follmer.use_cores({count}) right after the imports, or "
                f"JAX_NUM_CPU_DEVICES={count} in the environment",
            ) from error
