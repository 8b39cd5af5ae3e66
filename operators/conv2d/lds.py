"""Layouts of a convolution's input halo and filter taps in LDS: closed forms for the plan and the emitter.

A matrix instruction takes 16 pixels in each of G lane groups. Group g reads its tIC/G channels of each pixel in chunks of 4, 8
or 16 bytes: one chunk, or several (`reads`) of 16 bytes. Its chunk number h is chunk h*G + g of the pixel.

* X is [h][g][slot][chunk]: slot = row*pitch + (column % sW)*Q + column // sW with Q = ceil(hW/sW), pitch = sW*Q. So the pixels
  of a tile row under a tap are adjacent at any stride sW, and taps are a fixed distance apart: consecutive lanes read consecutive
  chunks at every tap. In one phase of a read, group g + 1 reads the banks after those of g if a group's plane is a whole number
  of LDS lines (16-byte chunks), or half a line more (smaller chunks). Conflicts remain if a tile row has fewer than 8 pixels.
* W is [tap % 2][h][channel][g ^ swizzle(channel)][chunk], with the swizzle of a GEMM operand: no conflicts. With several h,
  each h is followed by half a line, so that a channel's chunks, which adjacent lanes write, are adjacent modulo a line.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.operators.conv2d.problem import Conv2dProblem

ATOM = 16  # rows and columns of the matrix instructions that the layouts support
BANK_BYTES = 4
_LINE = 128  # bytes of 32 banks: read by 4 bytes a lane on every target (`simgpu.hardware.timing_rules.lds_banks`)


@dataclass(frozen=True)
class HaloLayout:
    """LDS layout of the input halo for a tile of rows x cols output pixels."""

    problem: Conv2dProblem
    rows: int  # output rows of the tile
    cols: int  # output columns of the tile
    groups: int  # lane groups of the matrix instruction
    chunk: int  # bytes
    banks: int  # banks of the LDS
    reads: int = 1  # chunks of a lane group

    @property
    def phase_columns(self) -> int:
        """Q, the number of halo columns that are equal modulo the stride."""
        return -(-self.problem.halo(self.rows, self.cols)[1] // self.problem.stride[1])

    @property
    def pitch(self) -> int:
        """Slots of a row."""
        return self.phase_columns * self.problem.stride[1]

    @property
    def slots(self) -> int:
        """Slots of a plane, including those that only separate the planes."""
        line = self.banks * BANK_BYTES if self.chunk > 4 else _LINE
        beyond = 0 if self.chunk >= 16 else line // 2
        used = self.problem.halo(self.rows, self.cols)[0] * self.pitch
        if (self.chunk, self.banks) == (8, 32):  # a phase is one group's pixels
            return used
        return used + (beyond - used * self.chunk) % line // self.chunk

    @property
    def plane(self) -> int:
        """Bytes of one chunk's plane."""
        return self.slots * self.chunk

    @property
    def chunks(self) -> int:
        """Chunks of a pixel: the planes of the halo."""
        return self.groups * self.reads

    @property
    def nbytes(self) -> int:
        """Bytes of all planes."""
        return self.plane * self.chunks

    def slot(self, row: int, column: int) -> int:
        """Returns the slot of a halo pixel."""
        width = self.problem.stride[1]
        return row * self.pitch + column % width * self.phase_columns + column // width

    def tap(self, kh: int, kw: int) -> int:
        """Returns the slots from an output pixel's first input pixel to its input pixel under a tap."""
        return self.slot(kh * self.problem.dilation[0], kw * self.problem.dilation[1])

    def pixel(self, row: int, column: int) -> int:
        """Returns the slot of an output pixel's first input pixel."""
        return row * self.problem.stride[0] * self.pitch + column


# Bytes of a chunk -> (step, count) of swizzle(channel) = step * (channel // channels a line % count).
_SWIZZLES = {16: (1, 4), 8: (1, 4), 4: (2, 2)}


@dataclass(frozen=True)
class TapLayout:
    """LDS layout of one tap's filters."""

    channels: int  # output channels
    groups: int  # lane groups of the matrix instruction
    chunk: int  # bytes
    reads: int = 1  # chunks of a lane group

    @property
    def row(self) -> int:
        """Bytes of an output channel for one h."""
        return self.groups * self.chunk

    @property
    def packed_bytes(self) -> int:
        """Bytes of a tap in memory."""
        return self.channels * self.row * self.reads

    @property
    def part(self) -> int:
        """LDS bytes from one h to the next."""
        return self.channels * self.row + (_LINE // 2 if self.reads > 1 else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of a tap in LDS."""
        return self.part * self.reads

    @property
    def swizzle_terms(self) -> tuple[int, int, int]:
        """Channels a line, step and count of the swizzle."""
        return max(1, _LINE // self.row), *_SWIZZLES[self.chunk]

    def byte(self, channel: int, number: int) -> int:
        """Returns the LDS address, relative to the tap, of chunk `number` of an output channel."""
        line, step, count = self.swizzle_terms
        h, group = divmod(number, self.groups)
        return h * self.part + channel * self.row + (group ^ step * (channel // line % count)) * self.chunk
