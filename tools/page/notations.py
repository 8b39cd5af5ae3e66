"""A fragment as Triton's LinearLayout and as CuTe's thread-value layout: elements of registers and lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WAVE_BITS = 6  # of a lane's number


@dataclass(frozen=True)
class Linear:
    """A layout over bits: place (value v, lane l) holds the element that is the XOR of the bases of the set bits of v and l.

    A value is one element of a lane's registers, lowest bits first.
    """

    values: tuple[tuple[int, ...], ...]  # elements of value 1, 2, 4 ... of lane 0
    lanes: tuple[tuple[int, ...], ...]  # elements of value 0 in lane 1, 2, 4 ...
    shape: tuple[int, ...]  # of the elements, (rows, columns) or (blocks, rows, columns)

    @classmethod
    def of(cls, elements: np.ndarray, shape: tuple[int, ...]) -> Linear | None:
        """Returns the layout of `elements`, integers (values, lanes, dimensions); None if there is none.

        XOR-linear layouts: Zhou et al., "Linear Layouts", 2025; Triton's include/triton/Tools/LinearLayout.h.
        """
        count, lanes = elements.shape[:2]
        if count & (count - 1) or lanes != 1 << WAVE_BITS:
            return None
        made = cls(_bases(elements[:, 0]), _bases(elements[0]), shape)
        return made if np.array_equal(made.elements(), elements) else None

    def elements(self) -> np.ndarray:
        """Returns integers (values, lanes, dimensions): the element at each place."""
        return _span(self.values, len(self.shape))[:, None] ^ _span(self.lanes, len(self.shape))[None]

    def triton(self) -> str:
        """Formats an attribute of Triton's IR: `#ttg.linear<{register = [[0, 1]], lane = [[1, 0], ...], warp = [], block =
        []}>`."""
        rows = (("register", self.values), ("lane", self.lanes), ("warp", ()), ("block", ()))
        return f"#ttg.linear<{{{', '.join(f'{name} = {[list(base) for base in bases]}' for name, bases in rows)}}}>"

    def cute(self) -> str:
        """Formats a CuTe layout `(threads),(values):(strides),(strides)` into the column-major index row + rows·column (+
        rows·columns· block)."""
        threads, values = (_modes([self._index(base) for base in bases]) for bases in (self.lanes, self.values))
        return f"({threads[0]},{values[0]}):({threads[1]},{values[1]})"

    def _index(self, element: tuple[int, ...]) -> int:
        *block, row, column = element
        rows, columns = self.shape[-2:]
        return row + rows * column + rows * columns * (block[0] if block else 0)


def _bases(line: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(x) for x in line[1 << bit]) for bit in range(len(line).bit_length() - 1))


def _span(bases: tuple[tuple[int, ...], ...], dimensions: int) -> np.ndarray:
    found = np.zeros((1, dimensions), np.int64)
    for base in bases:
        found = np.concatenate([found, found ^ np.array(base, np.int64)])
    return found


def _modes(strides: list[int]) -> tuple[str, str]:
    """Returns shape and stride of bits with these strides; a run of doubled ones becomes one mode."""
    modes: list[list[int]] = []
    for stride in strides:
        if modes and stride == modes[-1][0] * modes[-1][1]:
            modes[-1][0] *= 2
        else:
            modes.append([2, stride])
    if not modes:
        return "1", "0"
    shape, strides_of = (",".join(str(mode[at]) for mode in modes) for at in (0, 1))
    return (shape, strides_of) if len(modes) == 1 else (f"({shape})", f"({strides_of})")
