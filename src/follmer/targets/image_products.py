"""Convolutions and poolings as matrix products, sums and slices, rows last.

A convolution looks at blocks of neighbouring outputs instead of single ones: to its product, a
block's outputs are channels, and so are the inputs of a block. That is more arithmetic than a
product for each output, for the kernel becomes a matrix with zeros; it is done in matrices of a
size that processors are made for, and far fewer numbers are copied.
"""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from follmer.targets.laid_out import Laid, in_windows

# To copy one number of a patch takes as long as this many multiplications and additions in each of
# the three products of a gradient, and less where the copy serves all networks. (Measured on
# LeNet5, 8 networks: blocks of 2 × 2 outputs are best in the first layer, 4 × 2 in the second.)
_COPY, _SHARED_COPY = 80, 10


def convolved(
    images: Float[Array, "ins height width rows"],
    kernel: Float[Array, "outs ins kernel_height kernel_width"],
    strides: tuple[int, int],
    *,
    shared: bool,
) -> Float[Array, "outs block_height block_width down across rows"]:
    """The convolution in blocks: (o, i, j, t, u, row) is output o at (t, u) × block + (i, j).

    `shared` tells that the images are the same for all networks.
    """
    outs, ins, *window = kernel.shape
    sizes = [
        (size - part) // stride + 1
        for size, part, stride in zip(images.shape[1:3], window, strides, strict=True)
    ]
    block = _block(outs, sizes, window, strides, _SHARED_COPY if shared else _COPY)
    counts = [size // part for size, part in zip(sizes, block, strict=True)]
    unit = [part * stride for part, stride in zip(block, strides, strict=True)]
    # Blocks of inputs that a block of outputs reaches into, along each axis.
    reach = [
        -(-(step - stride + part) // step)
        for step, stride, part in zip(unit, strides, window, strict=True)
    ]
    folded = _in_blocks(images, unit, [a + b - 1 for a, b in zip(counts, reach, strict=True)])
    patches = jnp.concatenate(
        [
            part.reshape(ins * unit[0] * unit[1], -1)
            for down in _shifted(folded, 3, reach[0], counts[0])
            for part in _shifted(down, 4, reach[1], counts[1])
        ]
    )
    found = _kernel_of_blocks(kernel, block, strides, reach) @ patches
    return found.reshape(outs, *block, *counts, images.shape[-1])


def _block(
    outs: int, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], copy: float
) -> tuple[int, ...]:
    """The block that divides the outputs and costs least, in arithmetic and copies."""

    def cost(block: tuple[int, ...]) -> float:
        seen, area = 1, 1
        for part, of_window, stride in zip(block, window, strides, strict=True):
            seen *= (part - 1) * stride + of_window
            area *= part
        return seen * (outs + copy / area)

    divisors = [[part for part in range(1, size + 1) if size % part == 0] for size in sizes]
    return min(itertools.product(*divisors), key=cost)


def _in_blocks(
    images: Float[Array, "ins height width rows"], unit: Sequence[int], counts: Sequence[int]
) -> Float[Array, "ins unit_height unit_width down across rows"]:
    """Pixels of a block as channels; images are cut or filled up to whole blocks."""
    ins, *sizes, rows = images.shape
    wanted = [step * count for step, count in zip(unit, counts, strict=True)]
    images = images[:, : wanted[0], : wanted[1]]
    ends = [(0, max(goal - size, 0)) for goal, size in zip(wanted, sizes, strict=True)]
    if any(end != (0, 0) for end in ends):
        images = jnp.pad(images, [(0, 0), *ends, (0, 0)])
    split = images.reshape(ins, counts[0], unit[0], counts[1], unit[1], rows)
    return split.transpose(0, 2, 4, 1, 3, 5)


def _shifted(values: Array, axis: int, count: int, length: int) -> list[Array]:
    """The slices [i, i + length) along an axis, i < count, put together from pieces.

    The gradient of slices would be a sum of arrays filled up with zeros; that of pieces is the
    pieces' sums, side by side.
    """
    edges = sorted({*range(count), *range(length, length + count)})
    spans = list(itertools.pairwise(edges))
    pieces = jax.lax.split(values, [stop - start for start, stop in spans], axis)
    return [
        jnp.concatenate(
            [
                piece
                for piece, (start, stop) in zip(pieces, spans, strict=True)
                if first <= start and stop <= first + length
            ],
            axis,
        )
        for first in range(count)
    ]


def _kernel_of_blocks(
    kernel: Float[Array, "outs ins kernel_height kernel_width"],
    block: Sequence[int],
    strides: Sequence[int],
    reach: Sequence[int],
) -> Float[Array, "outs_of_block ins_of_patch"]:
    """The matrix from the inputs that a block reaches into to its outputs."""
    outs, ins, *window = kernel.shape
    unit = [part * stride for part, stride in zip(block, strides, strict=True)]
    free = [count * step - part for count, step, part in zip(reach, unit, window, strict=True)]
    places = itertools.product(*(range(part) for part in block))
    starts = [(i * strides[0], j * strides[1]) for i, j in places]
    moved = [
        jnp.pad(kernel, [(0, 0), (0, 0), (down, free[0] - down), (across, free[1] - across)])
        for down, across in starts
    ]
    split = jnp.stack(moved, axis=1).reshape(
        outs, len(starts), ins, reach[0], unit[0], reach[1], unit[1]
    )
    return split.transpose(0, 1, 3, 5, 2, 4, 6).reshape(outs * len(starts), -1)


def window_sums(images: Laid, windows: Sequence[int]) -> Laid:
    """Sums over windows side by side; what is left over at the ends is left out."""
    memory, across, laid = in_windows(images, windows)
    return laid.with_memory(memory.sum(axis=across))


def window_maxima(images: Laid, windows: Sequence[int]) -> Laid:
    """The largest values of windows side by side. Equal ones share the gradient."""
    memory, across, laid = in_windows(images, windows)
    return laid.with_memory(memory.max(axis=across))
