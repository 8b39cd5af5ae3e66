"""Base of the emitters of fused attention: what the paper's kernels share with ours, and what both forms of ours share."""

from __future__ import annotations

from dataclasses import replace

from simgpu.asm.attention.frame import LOG2_E, PARTIAL, SLOPES, AttentionFrame, builder, grid, operands, scalars
from simgpu.asm.attention.shape import AttentionShape
from simgpu.asm.attention.softmax import SoftmaxUpdate
from simgpu.asm.attention.split import emit_merge, scratch
from simgpu.asm.attention.wave import WaveRegisters
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.tree import Visitor


class FusedEmitter(Visitor):
    """Visits the attention tree; each level emits its part of the kernel. A subclass has `visit_block`."""

    kind = "attention"  # the beginning of a kernel's name

    def __init__(self, root: FusedAttention) -> None:
        self.plan, self.k = root.plan, builder(root.plan, self.kind)

    def visit_device(self, root: FusedAttention) -> EmittedKernel:
        plan, k = self.plan, self.k
        k.comment(f"FusedAttention: one workgroup per {plan.tile_Q} queries of a head")
        self.block = AttentionFrame(k, root)
        self._prologue()
        self.visit(next(root.children()))
        self._end()
        k.s_endpgm()
        kernel = k.finish(plan=plan, grid=grid(root), scalars=scalars(root), operands=operands(plan.problem))
        if self.block.parts == 1:
            return kernel
        buffers = tuple(PARTIAL if name == "R" else name for name in kernel.buffers)  # R is the second kernel's
        return replace(kernel, buffers=buffers, scratch=scratch(root), following=(emit_merge(root),))

    def _prologue(self) -> None:
        """Emits registers, buffers, addresses, and the loads of Q."""
        raise NotImplementedError

    def _end(self) -> None:
        """Emits the end: O, or a part's, to memory."""
        raise NotImplementedError


class WaveEmitter(FusedEmitter):
    """Base of both forms: registers of waves and of the softmax, slopes, buffers with a row for each query."""

    wave_form: type[WaveRegisters]
    softmax_form = SoftmaxUpdate
    wave: WaveRegisters

    def __init__(self, root: FusedAttention) -> None:
        super().__init__(root)
        self.shape = AttentionShape.of(root)

    def _prologue(self) -> None:
        k, block, p = self.k, self.block, self.plan.problem
        self.wave = self.wave_form(block, self.shape)
        self.softmax = self.softmax_form(self.wave, block)
        queries = k.s.alloc("Q buffer", 4)
        k.s.free(block.buffer(queries, "Q", p.d * self.shape.e))
        self._load_queries(queries)
        if p.alibi:
            self._load_slopes(queries)
        k.s.free(queries)
        self._key_addresses()

    def _load_queries(self, buffer: Reg) -> None:
        """Loads Q's fragments."""
        raise NotImplementedError

    def _key_addresses(self) -> None:
        """Emits buffers and addresses of K and V."""
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
            k.v_add_lshl_u32(offset, block.head, offset, log2(WORD))
            k.buffer_load_dword(slopes[q], offset, resource, 0, offen=True, note=f"slope, query atom {q}")
        for q in range(self.shape.nq):
            k.v_mul_f32(slopes[q], -LOG2_E, slopes[q])

    def _row_buffer(self, name: str, nbytes: int) -> Reg:
        """Returns a raw buffer of an array that has `nbytes` bytes for every query of the block."""
        k, block, lq, resource = self.k, self.block, self.block.arguments["lq"], self.k.s.alloc(f"{name} buffer", 4)
        row, offset = k.s.alloc("row", 2), k.s.alloc("offset", 2)
        k.s_mul_i32(row[0], block.head, lq)
        k.s_mul_hi_u32(row[1], block.head, lq)
        k.s_add_u32(row[0], row[0], block.first_query)
        k.s_addc_u32(row[1], row[1], 0)
        k.s_lshl_b64(offset, row, log2(nbytes))
        raw_buffer(k, resource, block.arguments[name], (offset[0], offset[1]), name)
        k.s_mul_i32(resource[2], lq, block.tile_heads - 1)
        k.s_add_u32(resource[2], resource[2], block.rows)
        k.s_lshl_b32(resource[2], resource[2], log2(nbytes))
        k.s.free(row, offset)
        return resource
