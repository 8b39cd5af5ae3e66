"""Softmax in f64: elements, m and delta are register pairs, and the exponential is a polynomial."""

from __future__ import annotations

import numpy as np

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.parts.activation_f64 import ActivationF64
from simgpu.asm.parts.buffers import DWORDS
from simgpu.asm.parts.lanes import wave_reduce_wide
from simgpu.asm.softmax.merge import RowState
from simgpu.asm.softmax.row import RowPart, groups
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import LOAD_BYTES, SoftmaxPlan

WORDS = 2
LARGEST = int(np.float64(np.finfo(np.float64).max).view(np.uint64))
MINUS_INFINITY, QUIET_NAN = 0xFFF00000, 0x7FF80000  # upper words
SIGN = 0x80000000


class WideState(RowState):
    """State of a row in f64: m and delta."""

    bytes = 16
    m: Reg  # SGPR pair

    def __init__(self, k: KernelBuilder, plan: SoftmaxPlan, parts: int) -> None:
        self.k, self.plan, self.parts = k, plan, parts
        self.state = k.v.alloc("m, delta", 2 * WORDS)
        self.lane_m, self.delta = self.state[0:WORDS], self.state[WORDS : 2 * WORDS]
        self.scratch = k.v.alloc("temporaries", 8)
        self.kept, self.nan = self.scratch[4:6], self.scratch[6]
        self.exponential = ActivationF64(k, "exp")

    def _set(self, target: Reg, bits: int) -> None:
        self.k.v_mov_b32(target[0], bits & 0xFFFFFFFF)
        self.k.v_mov_b32(target[1], bits >> 32)

    def empty(self) -> None:
        """Emits the empty state."""
        self.k.v_mov_b32(self.nan, QUIET_NAN)
        self._set(self.lane_m, LARGEST | SIGN << 32)
        self._set(self.delta, 0)

    def limit(self) -> None:
        """Limits m to the largest finite number, because infinity - m is infinity."""
        largest = self.kept if self.plan.resident else self.scratch[2:4]
        self._set(largest, LARGEST)
        self.k.v_min_f64(self.lane_m, largest, self.lane_m)

    def keep(self) -> None:
        """Saves the lane's m before a step."""
        for word in range(WORDS):
            self.k.v_mov_b32(self.kept[word], self.lane_m[word])

    def exp(self, x: Reg, m: Reg) -> None:
        """Emits x = exp(x - m); NaN stays NaN."""
        k = self.k
        k.v_fma_f64(x, m, -1.0, x)
        k.v_cmp_o_f64("vcc", x, x)
        self.exponential.exp(x, self.scratch[0:2], self.scratch[2:4])
        k.v_cndmask_b32(x[1], self.nan, x[1], "vcc")

    def rescale(self) -> None:
        """Rescales delta from the m that `keep` saved to the lane's m."""
        self.exp(self.kept, self.lane_m)
        self.k.v_mul_f64(self.delta, self.kept, self.delta)

    def reduce_maximum(self, name: str) -> None:
        """Emits m = the largest of the lanes' m, and copies it to all lanes. name: of its registers."""
        self.m = self.k.s.alloc(name, WORDS)
        wave_reduce_wide(self.k, "v_max_f64", self.lane_m, self.scratch[0:2], self.m, "m")
        for word in range(WORDS):
            self.k.v_mov_b32(self.lane_m[word], self.m[word])

    def merge_lanes(self) -> None:
        """Merges the states of a wave's lanes: m in an SGPR pair, delta in all lanes."""
        self.k.comment("the states of 64 lanes merge")
        if not self.plan.resident:
            self.keep()
            self.reduce_maximum("m of the wave")
            self.rescale()
        self._reduce_sum()

    def _reduce_sum(self) -> None:
        total = self.k.s.alloc("delta", WORDS)
        wave_reduce_wide(self.k, "v_add_f64", self.delta, self.scratch[0:2], total, "delta")
        for word in range(WORDS):
            self.k.v_mov_b32(self.delta[word], total[word])
        self.k.s.free(total)

    def merge_waves(self, wave: Reg) -> None:
        """Merges the states of the row's waves through LDS. Sets the registers of `keep` to exp(m of the wave - m)."""
        k, own, address = self.k, self.m, self.scratch[7]
        region = self._share(wave, address)
        k.ds_read_b64(self.lane_m, address, offset=region.offset)
        k.ds_read_b64(self.kept, address, offset=region.offset)
        k.ds_read_b64(self.delta, address, offset=region.offset + 4 * WORDS)
        self.reduce_maximum("m of the row")
        self.rescale()
        self._reduce_sum()
        counted = self.exponential.value(self.plan.waves_row / WAVEFRONT)
        k.v_mul_f64(self.delta, counted, self.delta, note="each state was counted as often")
        for word in range(WORDS):
            k.v_mov_b32(self.kept[word], own[word])
        self.exp(self.kept, self.lane_m)

    def own_share(self) -> None:
        """Makes delta, after `merge_waves` and `normalise`, relative to the wave's own m, as its elements are."""
        self.k.v_mul_f64(self.delta, self.kept, self.delta, note="exp(m of the wave - m) / delta")

    def merge_parts(self, states: Reg, registers: Reg) -> None:
        """Merges the states of all parts of the row, 64 at a time, a lane each. Lanes without a part count nothing.

        states: the buffer that `buffer` built.
        """
        k, split, address = self.k, self.parts, self.scratch[7]
        rounds = -(-split // WAVEFRONT)
        maxima = [registers[WORDS * i : WORDS * (i + 1)] for i in range(rounds)]
        self.empty()
        lowest = self.scratch[0:2]
        self._set(lowest, LARGEST | SIGN << 32)
        k.v_mov_b32(address, k.work_item)
        for i, pair in enumerate(maxima):
            k.buffer_load_dwordx2(pair, address, states, 0, offen=True)
            k.v_cmp_gt_u32("vcc", split * self.bytes, address)
            for word in range(WORDS):
                k.v_cndmask_b32(pair[word], lowest[word], pair[word], "vcc", note="no part: the finite floor")
            k.v_max_f64(self.lane_m, self.lane_m, pair)
            if i + 1 < rounds:
                k.v_add_u32(address, WAVEFRONT * self.bytes, address)
        self.reduce_maximum("m of the row")
        for i, pair in reversed(list(enumerate(maxima))):
            k.buffer_load_dwordx2(self.kept, address, states, 0, offen=True, offset=4 * WORDS)
            self.exp(pair, self.lane_m)
            k.v_fma_f64(self.delta, pair, self.kept, self.delta)
            if i:
                k.v_subrev_u32(address, WAVEFRONT * self.bytes, address)
        self._reduce_sum()

    def normalise(self, gain: float) -> None:
        """Emits delta = gain / delta, 0 for a row in which nothing counts, by v_rcp_f64 and two Newton steps. NaN stays NaN."""
        k, y, error, delta = self.k, self.scratch[0:2], self.scratch[2:4], self.delta
        k.v_rcp_f64(y, delta)
        for _ in range(2):
            k.v_fma_f64(error, delta, y, -1.0)
            k.v_xor_b32(error[1], SIGN, error[1])
            k.v_fma_f64(y, y, error, y, note="1/delta")
        k.v_div_fixup_f64(y, y, delta, 1.0, note="infinite delta: 0")
        if gain != 1:
            k.v_mul_f64(y, self.exponential.value(gain), y)
        k.v_cmp_eq_f64("vcc", 0, delta)
        for word in range(WORDS):
            k.v_cndmask_b32(delta[word], y[word], 0, "vcc")


class WideRowPart(RowPart):
    """Emits the code for one part of a row in f64. Register pair r replaces register r."""

    def __init__(self, k: KernelBuilder, registers: Reg, lane: Reg, offset: Reg, state: WideState) -> None:
        self.k, self.kind, self.lane, self.offset, self.state = k, "f64", lane, offset, state
        self.bytes = self.stored_bytes = 4 * WORDS
        self.scratch, self.aligned, self.narrowing = state.scratch, None, None
        self.words = registers
        self.registers = registers[0 : registers.count // WORDS]  # only its count is used
        self.groups = groups(self.registers.count, LOAD_BYTES // self.bytes)

    def _pair(self, r: int) -> Reg:
        return self.words[WORDS * r : WORDS * (r + 1)]

    def _move(self, direction: str, resource: Reg, name: str) -> None:
        for group, address, immediate in self._addresses(self.bytes):
            data = self.words[WORDS * group.start : WORDS * (group.start + group.width)]
            self.k.emit(f"buffer_{direction}_{DWORDS[data.count]}", data, address, resource, 0, offen=True, offset=immediate,
                        note=f"{name} columns {64 * group.start} + {group.width}·lane")  # fmt: skip

    def load(self, resource: Reg, name: str) -> None:
        """Loads the part into registers; 0 past the buffer's end."""
        self._move("load", resource, name)

    def store(self, resource: Reg, name: str) -> None:
        """Stores the registers."""
        self._move("store", resource, name)

    def scale(self, factor: Reg) -> None:
        """Multiplies every element by a pair."""
        for r in range(self.registers.count):
            self.k.v_mul_f64(self._pair(r), factor, self._pair(r))

    def leave_out_value(self) -> None:
        """Emits the constant that `leave_out` needs: the upper word of -infinity."""
        self.k.v_mov_b32(self.scratch[2], MINUS_INFINITY)

    def leave_out(self, r: int, note: str = "") -> None:
        """Replaces element r by -infinity in lanes that VCC excludes."""
        low, high = self._pair(r)[0], self._pair(r)[1]
        self.k.v_cndmask_b32(low, 0, low, "vcc", note=note)
        self.k.v_cndmask_b32(high, self.scratch[2], high, "vcc")

    def maximum(self, m: Reg) -> None:
        """Emits m = the largest of m and the lane's elements; NaNs do not count."""
        for r in range(self.registers.count):
            self.k.v_max_f64(m, m, self._pair(r))

    def exponentials(self, m: Reg) -> None:
        """Replaces every element by exp(element - m)."""
        for r in range(self.registers.count):
            self.state.exp(self._pair(r), m)

    def add(self, delta: Reg) -> None:
        """Adds the lane's elements to delta."""
        for r in range(self.registers.count):
            self.k.v_add_f64(delta, self._pair(r), delta)
