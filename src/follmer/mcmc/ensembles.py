"""An ensemble of chains: many descents at once, then a chain from the end of each."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.errors import NonFiniteError
from follmer.mcmc import descents, microcanonical, stochastic
from follmer.mcmc.groups import batch_share, by_group
from follmer.targets import AbstractTarget
from follmer.targets.density import Density, values_by_batch
from follmer.tools.keys import key_rows, named_key
from follmer.tools.processes import first_says
from follmer.tools.progress import NEVER, Bar
from follmer.tools.trees import to_arrays

# Share of the chains' steps that is dropped: ln p still rises along the first (measured: LPD of
# concrete, energy and wine is better by 0 to .03 than with less dropped).
BURN_IN = 0.5
# States kept in one call of a chain.
_KEPT_PER_CALL = 20
# Adam's first rate, decayed to 0: that of `follmer.sgd`.
DESCENT_RATE = 0.01
# A direction is forgotten over this share of √dim (.2 is better on energy, worse on concrete and
# boston, alike on wine).
_LENGTH = 0.5
# Energy variance per dimension that the data inform, at most one for each row, that step sizes are
# steered to after the burn-in. At .1, what the data settle is 20 to 30 % too wide and energy's
# LPD .03 lower; concrete, boston and wine are alike. Were all dimensions counted, wide networks on
# few rows would be ruined: the step function of the paper.
_ENERGY_VARIANCE = 0.02
# The same at the start: long steps lead away from where a descent happened to end. It falls
# geometrically along the burn-in. (LPD with 5, on two splits each, beside .1 throughout: concrete
# .07 and .11 better, energy .08 and .04, wine .03 and .01, boston .04 better and .01 worse.)
_FIRST_VARIANCE = 5.0
# Stochastic gradients: friction, and the first rate, over the number of data points.
_FRICTION, _RATE = 0.05, 3e-3
# In equilibrium ln p is dim/2 below the mode. A chain that is further down than this share of dim
# is too hot: it goes back, with a smaller rate; one that is less far takes a larger.
_HOT, _COLD = 0.7, 0.4
_COOLER, _WARMER = 0.5, 1.25
# What the batches' noise may add to the temperature, on average over coordinates, and the batches
# that tell it. By `python -m benchmarks.image_chains` (CIFAR10, training rows left out) the first
# rate adds .17 and costs .10 nats of Gibbs log likelihood, .09 of them by batches alone; one that
# adds .04 costs .04. On MNIST the first rate adds .004 (after 2500 steps of descent).
_HEAT, _BATCHES_OF_HEAT = 0.04, 8
# Rows up to which all are looked at to steer rates, else so many: of MNIST's 60 000, thousands tell
# ln p to a hundredth of what is steered by.
_ROWS_OF_VALUES = 8192
# Seconds between two files of a checkpoint.
_SECONDS_BETWEEN_FILES = 5.0


class Schedule(NamedTuple):
    """How an ensemble is run; a batch of None looks at all the data in every step.

    A `temperature` T other than 1, which chains by batches know alone, is that of p^(1/T).
    """

    num_members: int
    num_descent_steps: int
    num_steps: int
    thinning: int
    batch_size: int | None = None  # of the chains
    descent_batch: int | None = None
    temperature: float = 1.0
    descent_rate: float = DESCENT_RATE

    @property
    def num_kept(self) -> int:
        """States of each chain that are kept, those of the burn-in included."""
        return self.num_steps // self.thinning

    def gradients(self, num_data: int | None) -> int:
        """Gradients of all members, in units of one by all the data."""
        per_step = 2 if self.batch_size is None else batch_share(self.batch_size, num_data)
        descent = self.num_descent_steps * batch_share(self.descent_batch, num_data)
        return int(self.num_members * (descent + self.num_steps * per_step))

    @property
    def prolonged(self) -> "Schedule":
        """With twice as many steps of the chains: what was kept becomes burn-in."""
        return self._replace(num_steps=2 * self.num_steps)

    def of_length(self, num_steps: int) -> "Schedule":
        """The same with chains of that many steps, and descents in proportion."""
        descent = max(self.num_descent_steps * num_steps // self.num_steps, 1)
        thinning = min(self.thinning, num_steps)
        return self._replace(num_descent_steps=descent, num_steps=num_steps, thinning=thinning)


class Ensemble(NamedTuple):
    """What an ensemble has found: the chains' states after the burn-in, and how it went."""

    draws: Float[np.ndarray, "chains draws dim"]
    replaced: int  # starts that were not finite
    undone: int  # steps that were not finite
    interrupted: bool
    schedule: Schedule  # that was followed: the chains may have been prolonged
    points: Float[np.ndarray, "members dim"]  # where the descents ended


class Progress(NamedTuple):
    """A run between two calls, as a checkpoint keeps it."""

    replaced: int
    points: Float[Array, "members dim"]  # where the descents ended
    ends: Float[Array, "members dim"]  # the same, or better places since: to go back to
    state: Any  # Particles or Walkers
    rate: Float[np.ndarray, " members"]  # of stochastic gradients
    best: Float[np.ndarray, " members"]  # ln p at the place to go back to
    kept: list[np.ndarray]


# Reads what an interrupted run left, writes what a run has so far.
Load = Callable[[], dict[str, np.ndarray] | None]
Save = Callable[[dict[str, np.ndarray]], object]
# Whether chains may end, by their states after the burn-in.
Settled = Callable[[Float[np.ndarray, "chains draws dim"]], bool]


def run_ensemble(
    target: AbstractTarget,
    schedule: Schedule,
    key: PRNGKeyArray,
    *,
    points: Float[Array, "members dim"] | None = None,
    load: Load = lambda: None,
    save: Save | None = None,
    settled: Settled = lambda states: True,
    progress: bool = True,
    stop: Callable[[], bool] = NEVER,
) -> Ensemble:
    """Descend from random starts, run a chain from each end, and return the chains' later states.

    Chains start from `points` where they are given, without descents. They are prolonged once
    unless they are `settled`. Ctrl-C, or `stop`, ends them, and what they have so far is returned.
    """
    found, planned = load(), schedule.num_kept
    total = schedule.num_descent_steps + schedule.num_steps
    interrupted = False
    with Bar(total, visible=progress, name="ensemble", unit="step") as bar:
        if found is None:
            now = _descended(target, schedule, key, points, bar.advance)
            _keep(now, save)
        else:
            now = _restored(target, schedule, found)
        if found is not None or points is not None:
            bar.advance(schedule.num_descent_steps)
        bar.advance(schedule.thinning * _count(now))
        saved_at = time.monotonic()
        try:
            while True:
                count = _count(now)
                ends_here = count == planned == schedule.num_kept
                # A run that was interrupted later has been prolonged already.
                late = count > schedule.num_kept
                if late or (ends_here and not (stop() or settled(_later(now.kept)))):
                    bar.extend(schedule.num_steps)
                    schedule = schedule.prolonged
                if count >= schedule.num_kept:
                    break
                now = _continued(target, schedule, key, now)
                bar.advance(schedule.thinning * len(now.kept[-1]))
                if save and first_says(time.monotonic() - saved_at > _SECONDS_BETWEEN_FILES):
                    _keep(now, save)
                    saved_at = time.monotonic()
                if stop() and _count(now) < schedule.num_kept:
                    interrupted = True
                    break
        except KeyboardInterrupt:
            interrupted = True
        _keep(now, save)
    return _ensemble(target, schedule, now, key, interrupted)


def point_estimates(
    target: AbstractTarget,
    schedule: Schedule,
    key: PRNGKeyArray,
    advanced: Callable[[int], object] = lambda count: None,
) -> tuple[Float[Array, "members dim"], int]:
    """Where the members' descents end, and how many starts were replaced."""
    members = descents.starts(target, schedule.num_members, named_key(key, "starts"))
    ends = descents.descend(
        target,
        members.x,
        named_key(key, "descents"),
        batch_size=schedule.descent_batch,
        num_iterations=schedule.num_descent_steps,
        learning_rate=schedule.descent_rate,
        advanced=advanced,
    )
    return ends, members.replaced


def _descended(
    target: AbstractTarget,
    schedule: Schedule,
    key: PRNGKeyArray,
    points: Float[Array, "members dim"] | None,
    advanced: Callable[[int], object] = lambda count: None,
) -> Progress:
    ends, replaced = points, 0
    if ends is None:
        ends, replaced = point_estimates(target, schedule, key, advanced)
    rate = np.full(schedule.num_members, _RATE / (target.num_data or 1))
    if schedule.batch_size is not None:
        rate = np.minimum(rate, _largest_rate(target, schedule, ends, key))
    return Progress(
        replaced,
        ends,
        ends,
        _first_state(target, schedule, ends, key),
        rate,
        _values(target, ends, key),
        [],
    )


def _values(
    target: AbstractTarget, x: Float[Array | np.ndarray, "members dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " members"]:
    """ln p at each place; of very many rows, by the same some of them every time."""
    if target.num_data is None or target.num_data <= _ROWS_OF_VALUES:
        return Density(target).values(np.asarray(x))
    batch = target.random_batch(named_key(key, "rows"), _ROWS_OF_VALUES)
    return np.asarray(values_by_batch(target, jnp.asarray(x), batch), float)


def _first_state(
    target: AbstractTarget, schedule: Schedule, ends: Float[Array, "members dim"], key: PRNGKeyArray
) -> Any:
    if schedule.batch_size is not None:
        return stochastic.as_walkers(ends)
    return microcanonical.as_particles(target, ends, named_key(key, "directions"))


def _continued(
    target: AbstractTarget, schedule: Schedule, key: PRNGKeyArray, now: Progress
) -> Progress:
    """The run one call further on."""
    done = _count(now)
    by_batches = schedule.batch_size is not None
    span = (done, min(_KEPT_PER_CALL, schedule.num_kept - done))
    move = (_walk if by_batches else _glide)(target, schedule, named_key(key, "chains"), *span)
    share = batch_share(schedule.batch_size, target.num_data)
    state, places = by_group(
        move,
        (now.state, jnp.asarray(now.rate, target.dtype)),
        schedule.num_members * share * target.gradient_cost,
    )
    now = now._replace(state=state, kept=[*now.kept, np.asarray(places).swapaxes(0, 1)])
    if by_batches and done < BURN_IN * schedule.num_kept:
        return _regulated(target, schedule, key, now)
    return now


# Moves a group of chains, which have rates: their state, and the places that are kept.
Move = Callable[[tuple[Any, Array], str], tuple[Any, Array]]


def _glide(
    target: AbstractTarget, schedule: Schedule, key: PRNGKeyArray, done: int, count: int
) -> Move:
    """Microcanonical chains, by all the data; they steer their steps themselves."""
    dynamics = _dynamics(target, done / (BURN_IN * schedule.num_kept))
    first = jnp.asarray(done * schedule.thinning, jnp.int32)

    def move(chains: tuple[microcanonical.Particles, Array], name: str) -> tuple[Any, Array]:
        return microcanonical.advance(
            target,
            chains[0],
            dynamics,
            named_key(key, name),
            first,
            num_kept=count,
            thinning=schedule.thinning,
        )

    return move


def _walk(
    target: AbstractTarget, schedule: Schedule, key: PRNGKeyArray, done: int, count: int
) -> Move:
    """Chains by batches."""
    assert schedule.batch_size is not None
    size = schedule.batch_size
    first = jnp.asarray(done * schedule.thinning, jnp.int32)

    def move(chains: tuple[stochastic.Walkers, Array], name: str) -> tuple[Any, Array]:
        return stochastic.advance(
            target,
            chains[0],
            named_key(key, name),
            first,
            chains[1],
            friction=_FRICTION,
            temperature=schedule.temperature,
            batch_size=size,
            num_kept=count,
            thinning=schedule.thinning,
        )

    return move


def _regulated(
    target: AbstractTarget, schedule: Schedule, key: PRNGKeyArray, now: Progress
) -> Progress:
    """Chains that are too hot sent back, and every chain's rate steered."""
    values = _values(target, now.state.x, key)
    equilibrium = schedule.temperature * target.dim
    drop = np.where(np.isfinite(values), now.best - values, np.inf) / equilibrium
    hot = drop > _HOT
    rate = now.rate * np.where(hot, _COOLER, np.where(drop < _COLD, _WARMER, 1.0))
    rate = np.minimum(rate, _largest_rate(target, schedule, now.state.x, key))
    back = jnp.asarray(hot)[:, None]
    state = stochastic.Walkers(
        jnp.where(back, now.ends, now.state.x),
        jnp.where(back, 0.0, now.state.velocity),
        now.state.undone,
    )
    # A chain that rises above the descent's end has found a better place to go back to.
    better = values > now.best
    ends = jnp.where(jnp.asarray(better)[:, None], now.state.x, now.ends)
    best = np.where(better, values, now.best)
    return now._replace(state=state, rate=rate, ends=ends, best=best)


def _largest_rate(
    target: AbstractTarget, schedule: Schedule, x: Float[Array, "members dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " members"]:
    """The rates at which batches add no more than `_HEAT` to the temperature.

    Gradients of variance V add rate² V to a step's noise, of which 2 friction rate is worth a
    temperature of 1. Infinite where V is 0 or not finite.
    """
    assert schedule.batch_size is not None
    keys = key_rows(named_key(key, "heat"), _BATCHES_OF_HEAT)
    variance = np.asarray(stochastic.batch_variance(target, x, keys, schedule.batch_size), float)
    known = np.isfinite(variance) & (variance > 0.0)
    return np.where(known, 2.0 * _FRICTION * _HEAT / np.where(known, variance, 1.0), np.inf)


def _dynamics(target: AbstractTarget, burnt_in: float) -> microcanonical.Dynamics:
    """How particles move after a share of the burn-in."""
    variance = _FIRST_VARIANCE * (_ENERGY_VARIANCE / _FIRST_VARIANCE) ** min(burnt_in, 1.0)
    informed = min(target.dim, target.num_data or target.dim)
    numbers = (_LENGTH * target.dim**0.5, variance * informed / target.dim)
    return microcanonical.Dynamics(*(jnp.asarray(number, target.dtype) for number in numbers))


def _ensemble(
    target: AbstractTarget,
    schedule: Schedule,
    now: Progress,
    key: PRNGKeyArray,
    interrupted: bool,
) -> Ensemble:
    """The later states; those of chains that never were finite left out."""
    states = _later([*now.kept, np.asarray(now.state.x)[None]] if interrupted else now.kept)
    sound = np.isfinite(_values(target, states[:, -1], key))
    if not sound.any():
        raise NonFiniteError(
            f"all {len(states)} chains of the ensemble ended where the density is not finite.",
            cause="the density has no bound, or x and y are far from a standard deviation of 1",
            hint="scaled x and y, a narrower prior; target.check(key=…)",
        )
    undone = int(np.sum(np.asarray(now.state.undone)))
    replaced = now.replaced + int(np.sum(~sound))
    points = np.asarray(now.points)
    return Ensemble(states[sound], replaced, undone, interrupted, schedule, points)


def _later(kept: list[np.ndarray]) -> Float[np.ndarray, "chains draws dim"]:
    """The states after the burn-in."""
    states = np.concatenate(kept)
    return states[int(BURN_IN * len(states)) :].swapaxes(0, 1).copy()


def _keep(now: Progress, save: Save | None) -> None:
    if save is not None:
        save(_arrays(now))


def _count(now: Progress) -> int:
    return sum(len(part) for part in now.kept)


def _arrays(now: Progress) -> dict[str, np.ndarray]:
    kept = [np.concatenate(now.kept)] if now.kept else []
    counted: Any = np.asarray(now.replaced)
    return to_arrays(now._replace(kept=kept, replaced=counted), "ensemble")


def _restored(
    target: AbstractTarget, schedule: Schedule, arrays: dict[str, np.ndarray]
) -> Progress:
    """The run that `_arrays` took apart."""
    ends = jnp.zeros((schedule.num_members, target.dim), target.dtype)
    make = stochastic.as_walkers if schedule.batch_size is not None else None
    state = make(ends) if make else microcanonical.as_particles(target, ends, jax.random.key(0))
    numbers = np.zeros(schedule.num_members)
    like = Progress(0, ends, ends, state, numbers, numbers, [])
    count = len(jax.tree.leaves(like))
    kept = [arrays[f"ensemble{count}"]] if f"ensemble{count}" in arrays else []
    values = [arrays[f"ensemble{i}"] for i in range(count)]
    restored = jax.tree.unflatten(jax.tree.structure(like), values)
    on_device = jax.tree.map(jnp.asarray, restored._replace(replaced=0, rate=0, best=0))
    return restored._replace(
        replaced=int(restored.replaced),
        points=on_device.points,
        ends=on_device.ends,
        state=on_device.state,
        kept=kept,
    )
