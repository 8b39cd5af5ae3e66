"""Base of the emitters of fused attention: what the paper's kernels share with ours, and what both forms of ours share."""

from __future__ import annotations

from dataclasses import replace

from simgpu.asm.attention.frame import LOG2_E, PARTIAL, SLOPES, AttentionFrame, builder, grid, operands, scalars
from simgpu.asm.attention.merge import emit_merge, scratch
from simgpu.asm.attention.shape import AttentionShape
from simgpu.asm.attention.softmax import SoftmaxUpdate
from simgpu.asm.attention.wave import WaveRegisters
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import buffer_at, new_buffer
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
        block.buffer(queries, "Q", p.d * self.shape.e)
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
        buffer_at(k, resource, block.arguments[SLOPES], SLOPES, nbytes=p.batch * p.heads * WORD)
        for q in range(self.shape.nq):
            block.row_of(offset, q)
            k.set(offset, (of(offset) % self.plan.row_slots + block.head) * WORD, note="head of the tile")
            k.buffer_load(slopes[q], offset, resource, 0, note=f"slope, query atom {q}")
        for q in range(self.shape.nq):
            k.v_mul_f32(slopes[q], -LOG2_E, slopes[q])

    def _row_buffer(self, name: str, nbytes: int) -> Reg:
        """Returns a raw buffer of an array that has `nbytes` bytes for every query of the block."""
        k, block, lq = self.k, self.block, self.block.arguments["lq"]
        rows = of(block.rows) + of(lq) * (block.tile_heads - 1)
        of_head = k.scalar("bytes of a head", of(lq) * nbytes)
        terms = (block.head, of_head), (block.first_query, nbytes)
        resource = new_buffer(k, block.arguments[name], name, *terms, nbytes=rows * nbytes)
        k.s.free(of_head)
        return resource
