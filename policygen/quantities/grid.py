"""The grid of a table policy, which maps quantities to cell indices.

A grid has one dimension per binned quantity. A dimension with k edges has k + 1 bins: bin 0 lies below the first edge,
and a value equal to an edge belongs to the bin above it. NaN belongs to the top bin. Cells are numbered in C order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policygen.errors import UsageError
from policygen.quantities.text import format_number

MAX_CELLS = 1_000_000
MAX_DIMENSIONS = 32
BLOCK_ROWS = 32_768  # rows computed at a time, so that their arrays fit in the processor's cache
# A column is compared with every edge if there are at most COMPARE_AT_MOST edges and at least _VALUES_PER_EDGE values
# per edge. Otherwise a binary search is faster, because each comparison of arrays has a fixed cost.
COMPARE_AT_MOST, _VALUES_PER_EDGE = 160, 40


@dataclass(frozen=True)
class Dimension:
    """A binned quantity and its inner edges, which increase strictly."""

    name: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.rounded_edges)):
            raise UsageError(f"the bin edges of {self.name} must be finite numbers between -3e38 and 3e38")
        if any(b <= a for a, b in itertools.pairwise(self.rounded_edges)):
            edges = ", ".join(map(str, self.edges))
            raise UsageError(f"the bin edges of {self.name} must increase in single precision (float32): {edges}")

    @cached_property
    def rounded_edges(self) -> tuple[float, ...]:
        """The edges in single precision, so that the float32 observation 0.1 equals the edge 0.1."""
        with np.errstate(over="ignore"):
            return tuple(float(np.float32(edge)) for edge in self.edges)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.edges) + 1

    @cached_property
    def has_integer_bins(self) -> bool:
        """Whether bin i holds exactly the integer i (edges 0.5, 1.5, ...)."""
        return bool(self.edges) and self.edges == tuple(i + 0.5 for i in range(len(self.edges)))

    def label(self, index: int) -> str:
        """Describe the values of bin `index`: `3`, `below -0.8`, `-0.8 to 0.8`, `0.8 and above`."""
        if self.has_integer_bins:
            return str(index)
        if not self.edges:
            return "any value"
        if index == 0:
            return f"below {format_number(self.edges[0])}"
        if index == len(self.edges):
            return f"{format_number(self.edges[-1])} and above"
        return f"{format_number(self.edges[index - 1])} to {format_number(self.edges[index])}"


def integer_dimension(name: str, count: int) -> Dimension:
    """Return a dimension whose bin i holds the integer i, for 0 <= i < count."""
    return Dimension(name, tuple(i + 0.5 for i in range(count - 1)))


@dataclass(frozen=True)
class Grid:
    """The cells of a table policy: the product of its dimensions' bins.

    Raises:
        UsageError: there is no dimension or more than 32, two have one name, or there are more than a million cells.
    """

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.dimensions) <= MAX_DIMENSIONS:
            raise UsageError(f"a grid bins 1 to {MAX_DIMENSIONS} quantities, here {len(self.dimensions)}")
        if len(set(self.names)) != len(self.names):
            raise UsageError(f"the grid bins a quantity twice: {', '.join(self.names)}")
        if self.size > MAX_CELLS:
            raise UsageError(f"the grid has {self.size:,} cells; the limit is {MAX_CELLS:,}: use fewer bins")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The binned quantities, in order."""
        return tuple(dimension.name for dimension in self.dimensions)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of bins per dimension."""
        return tuple(dimension.bins for dimension in self.dimensions)

    @cached_property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """The difference in cell index between neighbouring bins of each dimension."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    @cached_property
    def _narrow_strides(self) -> npt.NDArray[Any]:
        """The strides in the narrowest dtype that holds every cell index, with which numpy is fastest."""
        return np.array(self.strides).astype(np.min_scalar_type(self.size - 1))

    def cells(self, columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
        """Return the cell indices of n states, shape (n,).

        Args:
            columns: one array of real numbers per dimension, shape (n,); contiguous columns are fastest.
        """
        out = np.empty(len(columns[0]), np.int32)
        for block, cells in self._blocks(columns):
            out[block] = cells
        return out

    def look_up(self, columns: Sequence[npt.NDArray[Any]], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return `values[cells(columns)]`, shape (n, ...), for `values` of shape (cells, ...)."""
        out = np.empty((len(columns[0]), *values.shape[1:]), values.dtype)
        for block, cells in self._blocks(columns):
            # The indices are in range; 'clip' avoids the buffer that the default mode needs to check them.
            values.take(cells.astype(np.intp), axis=0, out=out[block], mode="clip")
        return out

    def _blocks(self, columns: Sequence[npt.NDArray[Any]]) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield each block of rows with its cell indices, in an array that the next block overwrites."""
        n = len(columns[0])
        cells, product = np.empty((2, min(n, BLOCK_ROWS)), self._narrow_strides.dtype)
        below, total = np.empty((2, min(n, BLOCK_ROWS)), np.bool_)
        for start in range(0, n, BLOCK_ROWS):
            block = slice(start, min(start + BLOCK_ROWS, n))
            if block.stop - start < len(cells):  # the last block
                cells, product, below, total = (a[: block.stop - start] for a in (cells, product, below, total))
            # Start from the last cell and subtract: NaN is below no edge, and so gets the top bin.
            cells.fill(self.size - 1)
            for dimension, stride, column in zip(self.dimensions, self._narrow_strides, columns, strict=True):
                if dimension.edges:
                    above = _edges_above(column[block], dimension.rounded_edges, below, total)
                    cells -= np.multiply(above, stride, out=product, casting="unsafe")
            yield block, cells

    def bins_of(self, cells: npt.NDArray[Any] | int) -> npt.NDArray[np.intp]:
        """Return the bin of each cell in each dimension, shape (..., dimensions)."""
        return np.stack(np.unravel_index(np.asarray(cells), self.shape), axis=-1)


def _edges_above(
    column: npt.NDArray[Any], edges: Sequence[float], below: npt.NDArray[np.bool_], total: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Count the edges above each value of a column; `below` and `total` are scratch arrays of its length."""
    if column.dtype.char not in "fd":  # in float64, as for a single row
        column = column.astype(np.float64)
    column = np.ascontiguousarray(column)  # faster, because the column is read once per edge
    if len(edges) > min(COMPARE_AT_MOST, len(column) // _VALUES_PER_EDGE):
        return len(edges) - np.searchsorted(np.array(edges), column, side="right")
    total_counts, below_counts = total.view(np.uint8), below.view(np.uint8)
    np.less(column, edges[0], out=total)
    for edge in edges[1:]:
        np.less(column, edge, out=below)
        np.add(total_counts, below_counts, out=total_counts)
    return total_counts
