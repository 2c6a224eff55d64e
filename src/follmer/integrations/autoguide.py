"""A guide for NumPyro's SVI: a Schrödinger–Föllmer process in place of a mean-field normal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoContinuous
from numpyro.infer.initialization import init_to_median

from follmer.errors import InputError, unknown_option
from follmer.integrations.numpyro import from_numpyro
from follmer.paths import simulate
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import Flow
from follmer.process import Process, process_options
from follmer.targets import AbstractTarget, Affine, Target
from follmer.targets.affine import diagonal
from follmer.tools.checks import positive_float, positive_int

# Draws from which medians and quantiles are read.
_DRAWS = 4096
# Of the options of a process, those that need the target's own gradient or prior.
_NOT_HERE = ("reference",)


class AutoFollmer(AutoContinuous):
    """A guide that drops into `SVI(model, guide, optim, loss)` in place of `AutoNormal`.

    The latent sites are the end point of a diffusion whose drift is trained. The guide's density is
    that of its paths, so that `Trace_ELBO` is the lower bound that N-SFS maximises.

    **Arguments:**

    - `model`: a NumPyro model with continuous latent sites.
    - `init_loc_fn`, `init_scale`: where the process ends before training: N(loc, init_scale² I) in
      unconstrained coordinates.
    - `options`: of the process, as `follmer.NSFS` has them: `drift`, `drift_options`, `gamma`,
      `num_steps` (16), `grid`, `step_rule`.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        prefix: str = "auto",
        init_loc_fn: Callable[..., Any] = init_to_median,
        init_scale: float = 1.0,
        **options: Any,
    ):
        known = [name for name in process_options() if name not in _NOT_HERE]
        for name in options:
            if name not in known:
                raise unknown_option(name, [*known, "prefix", "init_loc_fn", "init_scale"])
        if options.get("drift") in ("score_guided", "batch_norm_mlp"):
            raise InputError(
                f"the drift {options['drift']} cannot be part of a guide.",
                cause="it needs the model's gradient, or statistics beside its parameters",
                hint="drift='time_mlp'; or follmer.fit(follmer.from_numpyro(model, …))",
            )
        self.init_scale = positive_float("init_scale", init_scale)
        self.options = {"num_steps": 16} | options
        super().__init__(model, prefix=prefix, init_loc_fn=init_loc_fn)

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        # The order of a target's coordinates, so that `posterior` may use them.
        self._init_latent, self._unpack_latent = ravel_pytree(self._init_locs)
        flat = Target(_flat, jnp.zeros(self.latent_dim, self._init_latent.dtype))
        self._process = Process(flat, **self.options)
        shapes = jax.eval_shape(self._process.parameters, jax.random.key(0))
        self._skeleton = jax.tree.structure(shapes)

    def _get_posterior(self) -> "FollmerPath":
        def start(key: PRNGKeyArray) -> dict[str, Array]:
            typed = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else _typed(key)
            leaves = jax.tree.leaves(self._process.parameters(typed))
            return {str(i): leaf for i, leaf in enumerate(leaves)}

        held = numpyro.param(f"{self.prefix}_drift", start)
        return FollmerPath(
            self._process, self._parameters(held), self._init_latent, self.init_scale
        )

    def get_posterior(self, params: Mapping[str, Any]) -> "FollmerPath":
        """The distribution of the latent sites in unconstrained coordinates."""
        return handlers.substitute(self._get_posterior, params)()

    def median(
        self,
        params: Mapping[str, Any],
        *,
        rng_key: PRNGKeyArray | None = None,
        num_samples: int = _DRAWS,
    ) -> dict[str, Array]:
        """The median of every latent and deterministic site, from draws.

        `jax.random.key(0)` makes them where no key is given.
        """
        draws = self._draws(params, rng_key, num_samples)
        return jax.tree.map(lambda value: jnp.median(value, 0), draws)

    def quantiles(
        self,
        params: Mapping[str, Any],
        quantiles: float | Sequence[float],
        *,
        rng_key: PRNGKeyArray | None = None,
        num_samples: int = _DRAWS,
    ) -> dict[str, Array]:
        """Quantiles of every site along a leading axis, from the draws of `median`."""
        levels = jnp.asarray(quantiles)
        draws = self._draws(params, rng_key, num_samples)
        return jax.tree.map(lambda value: jnp.quantile(value, levels, 0), draws)

    def posterior(self, params: Mapping[str, Any], *args: Any, **kwargs: Any) -> Posterior:
        """The trained process as a posterior of the model called with these arguments.

        Its draws carry exact importance weights, and so an evidence and a Pareto k̂.
        """
        target = from_numpyro(self.model, *args, **kwargs)
        held = self._parameters(params[f"{self.prefix}_drift"])
        process = Process(target.whitened(self._affine(target)), **self.options)
        return Posterior(target, Flow(process, held))

    def _affine(self, target: AbstractTarget) -> Affine:
        return diagonal(self._init_latent, jnp.full(self.latent_dim, self.init_scale), target.dtype)

    def _parameters(self, held: Mapping[str, Array]) -> PyTree:
        return jax.tree.unflatten(self._skeleton, [held[str(i)] for i in range(len(held))])

    def _draws(
        self, params: Mapping[str, Any], rng_key: PRNGKeyArray | None, num_samples: int
    ) -> dict[str, Array]:
        key = jax.random.key(0) if rng_key is None else rng_key
        count = positive_int("num_samples", num_samples)
        return self.sample_posterior(key, dict(params), sample_shape=(count,))


class FollmerPath(dist.Distribution):
    """The end points of steered paths, with the log density of the path that led to each."""

    support = constraints.real_vector

    def __init__(
        self, process: Process, parameters: PyTree, loc: Float[Array, " dim"], scale: float
    ):
        self.process, self.parameters, self.loc, self.scale = process, parameters, loc, scale
        super().__init__(batch_shape=(), event_shape=loc.shape)

    def sample_with_intermediates(
        self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()
    ) -> tuple[Array, list[Array]]:
        """End points, and the log densities of their paths."""
        drift = self.process.drift_at(self.parameters, None)
        diffusion = self.process.diffusion(None, None)

        def one(key: PRNGKeyArray) -> tuple[Array, Array]:
            path = simulate(drift, diffusion, diffusion.noise(key))
            # ln of the paths' density under the guide over that of Brownian motion given its end.
            return path.end, diffusion.log_reference(path.end) - path.log_ratio

        if not sample_shape:
            end, log_density = one(key)
        else:
            count = 1
            for size in sample_shape:
                count *= size
            ends, logs = jax.vmap(one)(jax.random.split(key, count))
            end, log_density = ends.reshape(*sample_shape, -1), logs.reshape(sample_shape)
        log_det = len(self.loc) * jnp.log(self.scale)
        return self.loc + self.scale * end, [log_density - log_det]

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """End points alone."""
        return self.sample_with_intermediates(key, sample_shape)[0]

    def log_prob(self, value: Array, intermediates: Sequence[Array] | None = None) -> Array:
        """The log density of the path that was drawn; that of its end alone is not known."""
        if not intermediates:
            raise InputError(
                "the density of a Föllmer process at a given point is not known.",
                cause="only that of a path is, and so of values that the guide has just drawn",
                hint="guide.posterior(params, *the model's arguments).log_weights(…)",
            )
        return intermediates[0]


def _flat(x: Float[Array, " dim"]) -> Float[Array, ""]:
    """A stand-in: of the target, a guide's process needs the dimension alone."""
    return jnp.zeros((), x.dtype)


def _typed(key: Array) -> PRNGKeyArray:
    return jax.random.wrap_key_data(key)
