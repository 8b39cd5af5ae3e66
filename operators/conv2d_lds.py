"""Where a convolution's input halo and filter taps lie in LDS: closed forms that the plan counts and the emitter addresses.

A matrix instruction takes 16 pixels by G lane groups; group g reads a chunk of tIC/G channels of each pixel at once (4, 8, 16
bytes).

* X is [g][slot][chunk]: slot = row*pitch + (column % sW)*Q + column // sW with Q = ceil(hW/sW), pitch = sW*Q, so that the pixels
  under a tap are neighbours at any stride and a tap is a fixed distance. Consecutive lanes then read consecutive chunks at every
  tap; what g and g + 1 read in one phase goes on where the other stops if a group's plane is a whole number of LDS lines (16-byte
  chunks), or half a line more (smaller ones). Conflicts are left where a tile row has fewer than 8 pixels.
* W is [tap % 2][channel][g ^ swizzle(channel)][chunk], swizzle as for a GEMM operand: no conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.conv2d_problem import Conv2dProblem

BANK_BYTES = 4
_LINE = 128  # bytes of 32 banks: what a read of 4 bytes a lane has on every target (`hardware.lds_banks`)


@dataclass(frozen=True)
class HaloLayout:
    """The input halo of a tile of rows x cols output pixels; chunk: bytes; banks: of the LDS."""

    problem: Conv2dProblem
    rows: int
    cols: int
    groups: int
    chunk: int
    banks: int

    @property
    def phase_columns(self) -> int:
        """Q: slots of the columns that are equal modulo the stride."""
        return -(-self.problem.halo(self.rows, self.cols)[1] // self.problem.stride[1])

    @property
    def pitch(self) -> int:
        """Slots of a row."""
        return self.phase_columns * self.problem.stride[1]

    @property
    def slots(self) -> int:
        """Slots of a plane, with those that only keep the planes apart."""
        line = self.banks * BANK_BYTES if self.chunk > 4 else _LINE
        beyond = 0 if self.chunk >= 16 else line // 2
        used = self.problem.halo(self.rows, self.cols)[0] * self.pitch
        if (self.chunk, self.banks) == (8, 32):  # a phase is one group's pixels
            return used
        return used + (beyond - used * self.chunk) % line // self.chunk

    @property
    def plane(self) -> int:
        """Bytes of one group's plane."""
        return self.slots * self.chunk

    @property
    def nbytes(self) -> int:
        """Bytes of all planes."""
        return self.plane * self.groups

    def slot(self, row: int, column: int) -> int:
        """The slot of a halo pixel."""
        width = self.problem.stride[1]
        return row * self.pitch + column % width * self.phase_columns + column // width

    def tap(self, kh: int, kw: int) -> int:
        """Slots from an output pixel's first input pixel to the one under a tap."""
        return self.slot(kh * self.problem.dilation[0], kw * self.problem.dilation[1])

    def pixel(self, row: int, column: int) -> int:
        """Slot of an output pixel's first input pixel."""
        return row * self.problem.stride[0] * self.pitch + column


# Bytes of a chunk -> (step, count) of swizzle(channel) = step * (channel // channels a line % count).
_SWIZZLES = {16: (1, 4), 8: (1, 4), 4: (2, 2)}


@dataclass(frozen=True)
class TapLayout:
    """One tap's filters: `channels` output channels, `groups` chunks of `chunk` bytes each."""

    channels: int
    groups: int
    chunk: int

    @property
    def row(self) -> int:
        """Bytes of an output channel."""
        return self.groups * self.chunk

    @property
    def nbytes(self) -> int:
        """Bytes of a tap."""
        return self.channels * self.row

    @property
    def swizzle_terms(self) -> tuple[int, int, int]:
        """(channels a line, step, count) of the swizzle."""
        return max(1, _LINE // self.row), *_SWIZZLES[self.chunk]

    def byte(self, channel: int, group: int) -> int:
        """LDS byte of a chunk."""
        line, step, count = self.swizzle_terms
        return channel * self.row + (group ^ step * (channel // line % count)) * self.chunk
