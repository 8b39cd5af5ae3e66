"""Register-chained attention: R = softmax(scale · Q K^T) V, where S^T and P^T never leave a wave's registers.

A workgroup's four waves own the same queries, and a quarter each of every key step's keys. S^T = K Q^T leaves query i in lane
column i, so the softmax is lane-local (softmax.py) and P^T is already the second product's operand: O^T += V^T P^T. Nothing of
K, V, S or P goes through LDS, and the loop has no barrier. The products of a step hide the other instructions:

    S^T of half the queries     V's rows interleaved (2-byte types), next V loaded
    S^T of the other half       softmax of the first half
    O^T of the first half       next K loaded, softmax of the other half
    O^T of the other half       next V loaded (f32)

Edges: raw buffers end with the view, so that lanes past it read 0 and store nothing. Steps that no query sees are skipped. Steps
that some query sees only in part are masked, out of line.
"""

from __future__ import annotations

from simgpu.asm.attention.frame import LSE, STATISTICS, check
from simgpu.asm.attention.fused import WaveEmitter
from simgpu.asm.attention.merge import STATE_BYTES, AttentionOutput, Merge
from simgpu.asm.attention.paper_values import MatrixValues, VectorValues
from simgpu.asm.attention.shape import QUAD
from simgpu.asm.attention.shared.emitter import SharedEmitter
from simgpu.asm.attention.wave import KeyWave, Pages, row_offsets
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.interleave import overlap
from simgpu.asm.builder.registers import WORD
from simgpu.asm.visitor import emit
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.registers import partial_columns
from simgpu.operators.attention.tree import BlockAttentionNode, FusedAttention

LEAD = 6  # matrix instructions before the first filler that waits for their predecessors' results


@emit.register(FusedAttention)
def emit_attention(root: FusedAttention) -> EmittedKernel:
    """Returns the kernel of an attention tree: register-chained, shared or, under the policy "published", the paper's.

    UnsupportedInstruction, ResourceError or LaunchError if the plan has no kernel.
    """
    check(root)
    if root.plan.policy == "corrected":
        return (SharedEmitter if root.plan.shared else ChainedEmitter)(root).visit(root)
    return (VectorValues if root.values == "fma" else MatrixValues)(root).visit(root)


class ChainedEmitter(WaveEmitter):
    """Visits the attention tree; each level emits its part of the kernel."""

    wave_form = KeyWave
    wave: KeyWave

    def _key_addresses(self) -> None:
        k, shape, wave, a, p = self.k, self.shape, self.wave, self.block.arguments, self.plan.problem
        self.pages = Pages(wave) if p.page else None
        if self.pages is None:
            self._whole_buffers()
        wave.key_rows = row_offsets(k, a["K_row"], [0 if p.page else ATOM * n for n in range(shape.na)], "K")
        quads = row_offsets(k, a["V_row"], range(QUAD), "V") * shape.na if p.page else []
        rows = [ATOM * n + s for n in range(shape.na) for s in range(QUAD)]
        wave.value_rows = quads or row_offsets(k, a["V_row"], rows, "V")
        self._lane_offsets()

    def _whole_buffers(self) -> None:
        """Emits buffers of a head's K and V, and the bytes from a step to the next."""
        k, shape, wave, block, a, p = self.k, self.shape, self.wave, self.block, self.block.arguments, self.plan.problem
        block.buffer(wave.key_buffer, "K", p.d * shape.e_kv)
        block.buffer(wave.value_buffer, "V", p.dv * shape.e_kv)
        self.key_bytes = k.scalar("K bytes", of(wave.key_buffer[2]))
        self.value_bytes = k.scalar("V bytes", of(wave.value_buffer[2]))
        self.key_step = k.scalar("K step", of(a["K_row"]) * block.step)
        self.value_step = k.scalar("V step", of(a["V_row"]) * block.step)

    def _lane_offsets(self) -> None:
        """Emits a lane's byte offsets in K and V, relative to the head's first key or, with pages, to the key atom's first."""
        k, shape, wave, block, a = self.k, self.shape, self.wave, self.block, self.block.arguments
        first = 0 if self.pages else block.first_key
        temporary = wave.ranges["temporaries"][0]
        k.comment("K: key i, columns from vec·g; V: key 4g, columns from wide·i")
        row = of(k.set(temporary, (of(block.lane_row) + first) * a["K_row"]))
        for vec, offset in wave.key_offset.items():
            k.set(offset, of(block.group) * (vec * shape.e_kv) + row)
        for wide, offset in wave.value_offset.items():
            k.set(offset, (of(block.group) * QUAD + first) * a["V_row"] + of(block.lane_row) * (wide * shape.e_kv))

    def _load_queries(self, buffer: Reg) -> None:
        k, shape, wave = self.k, self.shape, self.wave
        wave.start_masks()
        offset, temporary, row = (wave.ranges["temporaries"][n] for n in range(3))
        strides = self.block.arguments["Q_row"], self.block.arguments["Q_head"]
        for q in range(shape.nq):
            self.block.row_of(row, q)
            self.block.row_offset(offset, row, strides, temporary)
            for span, (column, vec) in enumerate(shape.spans):
                if span == 0 or vec != shape.vec:
                    k.v_mad_u32_u24(temporary, self.block.group, vec * shape.e, offset)
                wave.load(wave.query(q, span), temporary, buffer, 0, column * shape.e, vec * shape.e, f"Q[{q}][{span}]")
        for q in range(shape.nq):
            wave.mask_columns(wave.query(q, len(shape.spans) - 1))

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockAttentionNode) -> None:
        k, wave = self.k, self.wave
        self.merge = Merge(self.softmax)
        k.comment("BlockAttentionNode: the first step's loads, O = 0")
        self.softmax.start()
        for name in ("O", "zero") if "zero" in wave.ranges else ("O",):
            k.move(wave.ranges[name], 0)
        with k.jump_over(k.s_cmp_eq_u32(self.block.steps_left, 0), "no_keys"):
            wave.load_keys()
            self._advance_keys()
            self._load_values()
            self._next_pages()
            k.comment(f"BlockAttentionNode: {self.block.step} keys a step, {self.block.wave_keys} a wave")
            with k.loop("keys", self.block.steps_left):
                self._key_step()

    def _load_values(self) -> None:
        for a in range(self.shape.na):
            for s in range(QUAD):
                self.wave.load_values(a, s)
        self._advance_values()

    def _next_pages(self) -> None:
        if self.pages is not None:
            self.pages.advance()

    def _advance_keys(self) -> None:
        for offset in self.wave.key_offset.values() if self.pages is None else ():
            self.k.v_add_u32(offset, self.key_step, offset, note="K: next step")

    def _advance_values(self) -> None:
        for offset in self.wave.value_offset.values() if self.pages is None else ():
            self.k.v_add_u32(offset, self.value_step, offset, note="V: next step")

    def _key_step(self) -> None:
        """Emits one key step of a wave (WarpAttentionNode). It visits no node, because the first block may see no key."""
        k, wave, shape, p = self.k, self.wave, self.shape, self.plan.problem
        self._step_scalars()
        if p.narrow_kv:
            self.wave.widen_keys()
            self._load_keys()
        first, *other = shape.halves
        narrow, wide = (self._narrow_values, lambda: None) if shape.narrow else (lambda: None, self._advance_values)
        refill = not shape.narrow and self.pages is None
        if not shape.narrow and self.pages is not None:
            wide = self._load_paged_values
        k.comment("S^T, first half")
        overlap(k, LEAD, lambda: wave.scores(first, fresh=True), narrow)
        k.comment("S^T, other half; softmax of the first" if other else "softmax")
        if other:
            overlap(k, LEAD, lambda: wave.scores(other[0], fresh=False), lambda: self.softmax.update(first))
        else:
            self.softmax.update(first)
        k.comment("O^T, first half" + "; softmax of the other" * bool(other))
        overlap(k, LEAD, lambda: wave.values(first, refill=refill and not other), lambda: self._behind_first_values(other))
        if other:
            k.comment("O^T, other half")
            wave.values(other[0], refill=refill)
        wide()
        k.s_add_u32(self.block.first_key, self.block.first_key, self.block.step)

    def _step_scalars(self) -> None:
        """Disables the loads of a step after the last one, and finds the edges that cut this step."""
        k, wave = self.k, self.wave
        k.comment("WarpAttentionNode: the next step's loads, if there is one; is this one masked?")
        if self.pages is not None:
            self.pages.only_if_more()
        else:
            k.s_cmp_gt_i32(self.block.steps_left, 1)
            k.s_cselect_b32(wave.key_buffer[2], self.key_bytes, 0)
            k.s_cselect_b32(wave.value_buffer[2], self.value_bytes, 0)
        self.softmax.find_edges()

    def _behind_first_values(self, other: list[range]) -> None:
        if not self.plan.problem.narrow_kv:
            self._load_keys()
            if self.shape.narrow:
                self._next_pages()
        for half in other:
            self.softmax.update(half)

    def _load_keys(self) -> None:
        self.wave.load_keys()
        self._advance_keys()

    def _narrow_values(self) -> None:
        self.wave.interleave_rows()
        self._load_values()
        if self.plan.problem.narrow_kv:
            self._next_pages()

    def _load_paged_values(self) -> None:
        self._load_values()
        self._next_pages()

    # -- epilogue ----------------------------------------------------------------------------

    def _end(self) -> None:
        k, block, p, a = self.k, self.block, self.plan.problem, self.block.arguments
        result, states, logarithms = k.s.alloc("R buffer", 4), None, None
        split = self.block.parts > 1
        columns = partial_columns(p.dv) if split else p.dv
        if p.lse and not split:
            logarithms = self._row_buffer(LSE, WORD)
        if split:
            k.s_mul_i32(block.part, block.part, a["heads"])
            k.s_add_u32(block.head, block.head, block.part, note="the part's own O")
        block.buffer(result, "R", columns * WORD)
        if split:
            states = self._row_buffer(STATISTICS, STATE_BYTES)
        self.merge.emit(AttentionOutput(result, columns, states, logarithms))
