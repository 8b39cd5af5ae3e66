"""Merges of softmax states (m, delta): of a wave's lanes, of a row's waves through LDS, of a split row's parts through memory."""

from __future__ import annotations

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import wave_reduce
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import SoftmaxPlan
from simgpu.operators.tree import FINITE_FLOOR

STATE_BYTES = 8  # m and delta of a part, f32 each
STATES = "states"  # the scratch memory that parts of a split row leave theirs in


class StateMerges:
    """What a softmax kernel does with its states. state: VGPRs m and delta of each lane; scratch: four more; m: SGPR of the joint
    m; wave: the wave's number in the block; registers: those of the row; x: a buffer's SGPRs."""

    k: KernelBuilder
    plan: SoftmaxPlan
    state: Reg
    scratch: Reg
    registers: Reg
    wave: Reg
    row: Reg
    m: Reg
    x: Reg
    arguments: dict[str, Reg]

    def empty(self) -> None:
        k = self.k
        k.v_mov_b32(self.state[0], FINITE_FLOOR, note="m: the finite floor")
        k.v_mov_b32(self.state[1], 0, note="delta")

    def reduce_maximum(self) -> None:
        wave_reduce(self.k, "v_max_f32", self.state[0], self.m, "m")
        self.k.v_mov_b32(self.state[0], self.m)

    def merge_lanes(self) -> None:
        """m (an SGPR) and delta (all lanes) of the wave."""
        k, m, delta = self.k, self.state[0], self.state[1]
        k.comment("the states of 64 lanes merge")
        if not self.plan.resident:
            self.m = k.s.alloc("m of the wave")
            k.v_mov_b32(self.scratch[0], m)
            self.reduce_maximum()
            k.v_subrev_f32(self.scratch[0], self.m, self.scratch[0])
            k.v_exp_f32(self.scratch[0], self.scratch[0])
            k.v_mul_f32(delta, self.scratch[0], delta)
        self._reduce_sum()

    def _reduce_sum(self) -> None:
        k, total = self.k, self.k.s.alloc("delta")
        wave_reduce(k, "v_add_f32", self.state[1], total, "delta")
        k.v_mov_b32(self.state[1], total)
        k.s.free(total)

    def merge_waves(self) -> None:
        """States of the row's waves through LDS; scratch[1] = 2^(m of the wave - m)."""
        k, plan, own = self.k, self.plan, self.m
        region = k.region("states of the waves: m, delta", STATE_BYTES * plan.waves)
        address, others = self.scratch[0], self.scratch[2:4]
        k.comment(f"the states of the row's {plan.waves_row} waves merge")
        place = k.s.alloc("scratch")
        k.s_lshl_b32(place, self.wave, log2(STATE_BYTES))
        k.v_mov_b32(address, place)
        k.s.free(place)
        k.s_mov_b64("exec", 1, note="one lane")
        k.ds_write_b64(address, self.state, offset=region.offset)
        k.s_mov_b64("exec", -1)
        k.s_barrier()
        k.v_lshrrev_b32(address, log2(16 // STATE_BYTES), k.work_item)
        k.v_and_b32(address, STATE_BYTES * (plan.waves_row - 1), address, note=f"lane % {plan.waves_row}")
        k.ds_read_b64(others, address, offset=region.offset)
        k.v_mov_b32(self.state[0], others[0])
        self.m = k.s.alloc("m of the row")
        self.reduce_maximum()
        k.v_mov_b32(self.scratch[1], own)
        for exponent in (others[0], self.scratch[1]):
            k.v_subrev_f32(exponent, self.m, exponent)
            k.v_exp_f32(exponent, exponent)
        k.v_mul_f32(self.state[1], others[0], others[1])
        self._reduce_sum()
        k.v_mul_f32(self.state[1], plan.waves_row / WAVEFRONT, self.state[1], note="each state was counted as often")

    def _states(self, resource: Reg) -> None:
        """A raw buffer of the row's states."""
        k, split = self.k, self.plan.split_n
        offset = k.s.alloc("byte offset", 2)
        k.s_mul_hi_u32(offset[1], self.row, split * STATE_BYTES)
        k.s_mul_i32(offset[0], self.row, split * STATE_BYTES)
        raw_buffer(k, resource, self.arguments[STATES], (offset[0], offset[1]), STATES)
        k.s.free(offset)
        k.s_mov_b32(resource[2], split * STATE_BYTES)

    def leave_state(self) -> None:
        k = self.k
        k.comment("the part's state to memory")
        states = self.x  # X is done with, or not yet begun
        self._states(states)
        place = k.s.alloc("scratch")
        k.s_lshl_b32(place, k.group_y, log2(STATE_BYTES))
        k.v_mov_b32(self.scratch[0], place)
        k.s.free(place)
        k.s_mov_b64("exec", 1, note="one lane")
        k.buffer_store_dwordx2(self.state, self.scratch[0], states, 0, offen=True, note="m, delta")

    def merge_parts(self) -> None:
        """The states of all parts of the row, 64 at a time, a lane each; what is no part counts nothing."""
        k, split, m, delta = self.k, self.plan.split_n, self.state[0], self.state[1]
        k.comment(f"the states of the row's {split} parts merge")
        states = self.x  # X is done with, or not yet begun
        self._states(states)
        rounds = -(-split // WAVEFRONT)
        pairs = [self.registers[2 * i : 2 * i + 2] for i in range(rounds)]
        k.v_lshrrev_b32(self.scratch[0], log2(16 // STATE_BYTES), k.work_item)
        for i, pair in enumerate(pairs):
            k.buffer_load_dwordx2(pair, self.scratch[0], states, 0, offen=True, offset=i * WAVEFRONT * STATE_BYTES)
        if split % WAVEFRONT:
            k.v_mov_b32(self.scratch[1], FINITE_FLOOR)
            k.v_cmp_gt_u32("vcc", (split % WAVEFRONT) * STATE_BYTES, self.scratch[0])
            k.v_cndmask_b32(pairs[-1][0], self.scratch[1], pairs[-1][0], "vcc", note="no part: the finite floor")
        self.empty()
        for pair in pairs:
            k.v_max_f32(m, m, pair[0])
        self.m = k.s.alloc("m of the row")
        self.reduce_maximum()
        for pair in pairs:
            k.v_subrev_f32(pair[0], self.m, pair[0])
            k.v_exp_f32(pair[0], pair[0])
            k.v_fmac_f32(delta, pair[0], pair[1])
        self._reduce_sum()
