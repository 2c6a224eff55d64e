"""What the rest of the library asks of a target."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.targets.data import random_batch
from follmer.tools.modules import ByIdentity

if TYPE_CHECKING:
    from follmer.targets.affine import Affine


class Layout(NamedTuple):
    """The coordinates that a drift steers: `dim` of its own, and locals beside them."""

    dim: int
    local_dim: int = 0  # coordinates of one local; 0 where there are none
    num_features: int = 0  # numbers that describe the data point of a local
    unit: float = 1.0  # in which locals see the other coordinates


class AbstractTarget(ByIdentity):
    """A log density on R^dim: a pytree whose leaves are its data and whose functions are static.

    Whatever is compiled for one target serves every other of the same functions and shapes.
    """

    has_locals: ClassVar[bool] = False  # whether every data point has a variable of its own
    space: eqx.AbstractVar[Any]  # the parameters and their names
    data: eqx.AbstractVar[PyTree]
    num_data: eqx.AbstractVar[int | None]
    gradient_cost: eqx.AbstractVar[float]  # arithmetic operations in one gradient, about
    affine: eqx.AbstractVar["Affine | None"]  # to the target's own coordinates; None: it has them

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """The number of unconstrained coordinates."""

    @property
    @abc.abstractmethod
    def dtype(self) -> jnp.dtype:
        """The floating type of coordinates and densities."""

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """The coordinates as a drift sees them."""

    @property
    def given(self) -> PyTree:
        """All that the density is conditioned on; a saved file holds its fingerprint."""
        return self.data

    @abc.abstractmethod
    def log_density(self, x: Float[Array, " dim"], batch: PyTree = None) -> Float[Array, ""]:
        """ln p at unconstrained coordinates; with a batch, its unbiased estimate."""

    @abc.abstractmethod
    def constrain(self, x: Float[Array, " dim"], batch: PyTree = None) -> PyTree:
        """What is reported at unconstrained coordinates x."""

    @abc.abstractmethod
    def whitened(self, affine: "Affine | None") -> "AbstractTarget":
        """The same target in coordinates z, x = affine(z); None changes nothing."""

    @abc.abstractmethod
    def with_data(self, data: PyTree) -> "AbstractTarget":
        """The same model on other data, whose rows look like the present ones."""

    @abc.abstractmethod
    def check(
        self, *, key: PRNGKeyArray, num_draws: int = 128, scale: float = 1.0, tolerated: float = 0.0
    ) -> Any:
        """Raise `NonFiniteError` unless density and gradient are finite around 0."""

    def describe(self) -> Any:
        """A JSON-able fingerprint of the parameters, kept in saved files."""
        return self.space.describe()

    def dim_with(self, batch: PyTree) -> int:
        """The coordinates that a batch takes: all, whatever the batch."""
        return self.dim

    def weights(self, batch: PyTree) -> Float[Array, " dim"] | None:
        """How often each coordinate counts where a batch stands for all data; None: once."""
        return None

    def features(self, batch: PyTree) -> Float[Array, "rows features"] | None:
        """What a drift may know of a batch's data points; None where it knows nothing."""
        return None

    def random_batch(self, key: PRNGKeyArray, batch_size: int | None) -> PyTree:
        """Random rows; all the data, in order, where no size is given."""
        return random_batch(key, self.data, self.num_data, batch_size)

    def num_rows(self, batch: PyTree) -> int | None:
        """The data points in a batch; None where there are no data."""
        leaves = jax.tree.leaves(self.data if batch is None else batch)
        return leaves[0].shape[0] if leaves else None
