"""Merges of softmax states (m, delta): of a wave's lanes, of a row's waves through LDS, of a split row's parts through memory."""

from __future__ import annotations

import numpy as np

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder, LdsRegion
from simgpu.asm.parts.buffers import DWORDS, raw_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import wave_reduce
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import SoftmaxPlan
from simgpu.operators.tree import FINITE_FLOOR

LARGEST = float(np.finfo(np.float32).max)
LANE_BYTES = 16  # bytes for each lane in the work-item's register (lane·16)
STATES = "states"  # scratch memory for the states of a split row's parts


class RowState:
    """State of a row, m and delta: of each lane, after merges of the wave, then of the row. It emits these merges."""

    bytes = 8  # bytes of a state: m and delta, f32 each
    m: Reg  # SGPR: m of the wave or the row, after a merge

    def __init__(self, k: KernelBuilder, plan: SoftmaxPlan, parts: int, scratch: Reg | None = None) -> None:
        """Allocates the state's registers. parts: blocks that share a row. scratch: four VGPRs of another row's state, to share."""
        self.k, self.plan, self.parts = k, plan, parts
        self.state, self.scratch = k.v.alloc("m, delta", 2), scratch or k.v.alloc("temporaries", 4)
        self.lane_m, self.delta = self.state[0], self.state[1]

    def empty(self) -> None:
        """Emits the empty state."""
        k = self.k
        k.v_mov_b32(self.state[0], FINITE_FLOOR, note="m: the finite floor")
        k.v_mov_b32(self.state[1], 0, note="delta")

    def limit(self) -> None:
        """Limits m to the largest finite number, because infinity - m is infinity."""
        self.k.v_min_f32(self.lane_m, LARGEST, self.lane_m)

    def keep(self) -> None:
        """Saves the lane's m before a step."""
        self.k.v_mov_b32(self.scratch[1], self.lane_m)

    def rescale(self) -> None:
        """Rescales delta from the m that `keep` saved to the lane's m."""
        k, kept = self.k, self.scratch[1]
        k.v_sub_f32(kept, kept, self.lane_m)
        k.v_exp_f32(kept, kept, note="2^(old m - m)")
        k.v_mul_f32(self.delta, kept, self.delta)

    def normalise(self, gain: float) -> None:
        """Emits delta = gain / delta, 0 for a row in which nothing counts."""
        k, delta = self.k, self.delta
        k.v_rcp_f32(self.scratch[0], delta)
        if gain != 1:
            k.v_mul_f32(self.scratch[0], gain, self.scratch[0], note="the gain")
        k.v_cmp_eq_f32("vcc", 0, delta)
        k.v_cndmask_b32(delta, self.scratch[0], 0, "vcc")

    def reduce_maximum(self, name: str) -> None:
        """Emits m = the largest of the lanes' m, and copies it to all lanes. name: of its register."""
        self.m = self.k.s.alloc(name)
        wave_reduce(self.k, "v_max_f32", self.lane_m, self.m, "m")
        self.k.v_mov_b32(self.lane_m, self.m)

    def release(self) -> None:
        """Frees m's SGPR for another row."""
        self.k.s.free(self.m)

    def merge_lanes(self) -> None:
        """Merges the states of a wave's lanes: m in an SGPR, delta in all lanes."""
        k, m, delta = self.k, self.lane_m, self.delta
        k.comment("the states of 64 lanes merge")
        if self.plan.running:
            k.v_mov_b32(self.scratch[0], m)
            self.reduce_maximum("m of the wave")
            k.v_subrev_f32(self.scratch[0], self.m, self.scratch[0])
            k.v_exp_f32(self.scratch[0], self.scratch[0])
            k.v_mul_f32(delta, self.scratch[0], delta)
        self._reduce_sum()

    def _reduce_sum(self) -> None:
        k, total = self.k, self.k.s.alloc("delta")
        wave_reduce(k, "v_add_f32", self.state[1], total, "delta")
        k.v_mov_b32(self.state[1], total)
        k.s.free(total)

    def merge_waves(self, wave: Reg) -> None:
        """Merges the states of the row's waves through LDS. Sets scratch[1] = 2^(m of the wave - m)."""
        k, plan, own = self.k, self.plan, self.m
        address, others = self.scratch[0], self.scratch[2:4]
        region = self._share(wave, address)
        k.ds_read_b64(others, address, offset=region.offset)
        k.v_mov_b32(self.state[0], others[0])
        self.reduce_maximum("m of the row")
        k.v_mov_b32(self.scratch[1], own)
        for exponent in (others[0], self.scratch[1]):
            k.v_subrev_f32(exponent, self.m, exponent)
            k.v_exp_f32(exponent, exponent)
        k.v_mul_f32(self.state[1], others[0], others[1])
        self._reduce_sum()
        k.v_mul_f32(self.state[1], plan.waves_row / WAVEFRONT, self.state[1], note="each state was counted as often")

    def _share(self, wave: Reg, address: Reg) -> LdsRegion:
        """Writes the states of the row's waves to LDS. Emits address = that of the state of wave (lane % waves)."""
        k, plan = self.k, self.plan
        region = k.region("states of the waves: m, delta", self.bytes * plan.waves)
        k.comment(f"the states of the row's {plan.waves_row} waves merge")
        place = k.s.alloc("scratch")
        k.s_lshl_b32(place, wave, log2(self.bytes))
        k.v_mov_b32(address, place)
        k.s.free(place)
        k.s_mov_b64("exec", 1, note="one lane")
        k.emit(f"ds_write_b{8 * self.bytes}", address, self.state, offset=region.offset)
        k.s_mov_b64("exec", -1)
        k.s_barrier()
        k.v_lshrrev_b32(address, log2(LANE_BYTES // self.bytes), k.work_item)
        k.v_and_b32(address, self.bytes * (plan.waves_row - 1), address, note=f"lane % {plan.waves_row}")
        return region

    def own_share(self) -> None:
        """Makes delta, after `merge_waves` and `normalise`, relative to the wave's own m, as its elements are."""
        self.k.v_mul_f32(self.delta, self.scratch[1], self.delta, note="2^(m of the wave - m) / delta")

    def buffer(self, resource: Reg, pointer: Reg, row: Reg) -> None:
        """Builds a raw buffer of the stored states of a row's parts."""
        k, split = self.k, self.parts
        offset = k.s.alloc("byte offset", 2)
        k.s_mul_hi_u32(offset[1], row, split * self.bytes)
        k.s_mul_i32(offset[0], row, split * self.bytes)
        raw_buffer(k, resource, pointer, (offset[0], offset[1]), STATES)
        k.s.free(offset)
        k.s_mov_b32(resource[2], split * self.bytes)

    def leave(self, states: Reg) -> None:
        """Stores the part's state. states: the buffer that `buffer` built."""
        k = self.k
        place = k.s.alloc("scratch")
        k.s_lshl_b32(place, k.group_y, log2(self.bytes))
        k.v_mov_b32(self.scratch[0], place)
        k.s.free(place)
        k.s_mov_b64("exec", 1, note="one lane")
        k.emit(f"buffer_store_{DWORDS[self.state.count]}", self.state, self.scratch[0], states, 0, offen=True, note="m, delta")

    def merge_parts(self, states: Reg, registers: Reg) -> None:
        """Merges the states of all parts of the row, 64 at a time, a lane each. Lanes without a part count nothing.

        states: the buffer that `buffer` built.
        """
        k, split, m, delta = self.k, self.parts, self.lane_m, self.delta
        rounds = -(-split // WAVEFRONT)
        pairs = [registers[2 * i : 2 * i + 2] for i in range(rounds)]
        k.v_lshrrev_b32(self.scratch[0], log2(LANE_BYTES // self.bytes), k.work_item)
        for i, pair in enumerate(pairs):
            k.buffer_load_dwordx2(pair, self.scratch[0], states, 0, offen=True, offset=i * WAVEFRONT * self.bytes)
        if split % WAVEFRONT:
            k.v_mov_b32(self.scratch[1], FINITE_FLOOR)
            k.v_cmp_gt_u32("vcc", (split % WAVEFRONT) * self.bytes, self.scratch[0])
            k.v_cndmask_b32(pairs[-1][0], self.scratch[1], pairs[-1][0], "vcc", note="no part: the finite floor")
        self.empty()
        for pair in pairs:
            k.v_max_f32(m, m, pair[0])
        self.reduce_maximum("m of the row")
        for pair in pairs:
            k.v_subrev_f32(pair[0], self.m, pair[0])
            k.v_exp_f32(pair[0], pair[0])
            k.v_fmac_f32(delta, pair[0], pair[1])
        self._reduce_sum()
