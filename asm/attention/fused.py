"""Base of the emitters of both forms of fused attention (register-chained and shared)."""

from __future__ import annotations

from dataclasses import replace

from simgpu.asm.attention.frame import (
    LOG2_E,
    PARTIAL,
    SLOPES,
    AttentionFrame,
    builder,
    grid,
    operands,
    scalars,
)
from simgpu.asm.attention.shape import AttentionShape
from simgpu.asm.attention.softmax import Masks, Scores, SoftmaxUpdate
from simgpu.asm.attention.split import emit_merge, scratch
from simgpu.asm.attention.wave import WaveRegisters
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import WAVEFRONT
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import GAINS
from simgpu.operators.attention.tiles import AttentionTiles
from simgpu.operators.attention.tree import BlockAttentionNode, FusedAttention
from simgpu.operators.tree import Visitor


class FusedEmitter(Visitor):
    """Base of both emitters: arguments, coordinates, registers of the softmax, slopes, buffers with a row for each query."""

    wave: WaveRegisters

    def __init__(self, root: FusedAttention) -> None:
        plan: AttentionTiles = root.plan
        self.plan, self.k = plan, builder(plan, "attention")
        self.shape = AttentionShape.of(root)

    def visit_device(self, root: FusedAttention) -> EmittedKernel:
        plan, p, k = self.plan, self.plan.problem, self.k
        k.comment(f"FusedAttention: one workgroup per {plan.tile_Q} queries of a head")
        self.block = AttentionFrame(k, root)
        self._registers()
        self._buffers()
        block = next(root.children())
        assert isinstance(block, BlockAttentionNode)
        self.visit(block)
        self._end()
        kernel = k.finish(plan=plan, grid=grid(root), scalars=scalars(root), operands=operands(p))
        if self.block.parts == 1:
            return kernel
        buffers = tuple(PARTIAL if name == "R" else name for name in kernel.buffers)  # R is the second kernel's
        return replace(kernel, buffers=buffers, scratch=scratch(root), following=(emit_merge(root),))

    # -- registers and buffers ---------------------------------------------------------------

    def _registers(self) -> None:
        k, p, block, a = self.k, self.plan.problem, self.block, self.block.arguments
        self.wave = self._make_wave()
        self.masked = k.s.alloc("some score is masked")
        other_half = k.v.alloc("4·(lane ^ 32)")
        k.v_lshlrev_b32(other_half, 2, k.work_item)
        k.v_and_b32(other_half, 4 * (WAVEFRONT - 1), other_half)
        k.v_xor_b32(other_half, 4 * 32, other_half)
        masks = Masks(p.causal, p.window is not None, self.masked, block.first_key, block.high, a["window"])
        cap = (a["cap"], a["minus_twice_cap"]) if p.softcap is not None else None
        form = Scores(a["scale"], cap, p.alibi, p.causal)
        self.softmax = self._softmax_form()(self.wave, block, masks, form, GAINS.get(p.dtype, 1.0), other_half)

    def _make_wave(self) -> WaveRegisters:
        raise NotImplementedError

    def _softmax_form(self) -> type[SoftmaxUpdate]:
        return SoftmaxUpdate

    def _buffers(self) -> None:
        """Emits Q's fragments, buffers and addresses."""
        raise NotImplementedError

    def _end(self) -> None:
        """Emits the end: partial sums and O to memory."""
        raise NotImplementedError

    def _load_slopes(self, resource: Reg) -> None:
        """Loads ALiBi's slopes of the lanes' heads, negated and to base 2."""
        k, block, p = self.k, self.block, self.plan.problem
        offset, slopes = self.wave.ranges["temporaries"][0], self.wave.ranges["slopes"]
        raw_buffer(k, resource, block.arguments[SLOPES], (0, 0), SLOPES)
        k.s_mov_b32(resource[2], p.batch * p.heads * WORD)
        for q in range(self.shape.nq):
            block.row_of(offset, q)
            k.v_and_b32(offset, self.plan.row_slots - 1, offset, note="head of the tile")
            k.v_add_u32(offset, block.head, offset)
            k.v_lshlrev_b32(offset, log2(WORD), offset)
            k.buffer_load_dword(slopes[q], offset, resource, 0, offen=True, note=f"slope, query atom {q}")
        for q in range(self.shape.nq):
            k.v_mul_f32(slopes[q], -LOG2_E, slopes[q])

    def _row_buffer(self, resource: Reg, name: str, nbytes: int) -> None:
        """Builds a raw buffer of an array that has `nbytes` bytes for every query of the block."""
        k, a = self.k, self.block.arguments
        row, offset = k.s.alloc("row", 2), k.s.alloc("offset", 2)
        k.s_mul_i32(row[0], self.block.head, a["lq"])
        k.s_mul_hi_u32(row[1], self.block.head, a["lq"])
        k.s_add_u32(row[0], row[0], self.block.first_query)
        k.s_addc_u32(row[1], row[1], 0)
        k.s_lshl_b64(offset, row, log2(nbytes))
        raw_buffer(k, resource, a[name], (offset[0], offset[1]), name)
        k.s_mul_i32(resource[2], a["lq"], self.block.tile_heads - 1)
        k.s_add_u32(resource[2], resource[2], self.block.rows)
        k.s_lshl_b32(resource[2], resource[2], log2(nbytes))
        k.s.free(row, offset)
