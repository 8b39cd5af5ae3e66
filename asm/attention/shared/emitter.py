"""Attention whose waves share K and V through LDS: eight waves of 32 or 16 queries each, two a SIMD.

A wave's step has two parts. The two waves of a SIMD are in different parts, because four of the waves begin one barrier later:

    products     O^T of the previous step, then S^T; loaded data goes to LDS, the next loads are issued
    softmax      of S^T

A barrier is near the end of each part, after the part's last read of LDS. The rest of the softmax hides the reads of the next
products. In step n, products read K(n) and V(n - 1), write K(n + 1) and V(n), and load K(n + 2) and V(n + 1). A stage is
overwritten two barriers after the first four waves read it, and one barrier after the other four did.
"""

from __future__ import annotations

from functools import partial

from simgpu.asm.attention.frame import LSE, load_row
from simgpu.asm.attention.fused import WaveEmitter
from simgpu.asm.attention.merge import store_columns
from simgpu.asm.attention.shape import GROUPS, QUAD
from simgpu.asm.attention.shared.wave import LdsFragment, SharedWave
from simgpu.asm.attention.softmax import FORMS, HiddenReads, inverse, log_sum_exp
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.interleave import overlap
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.matrix import read_scaled
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.reductions import tail
from simgpu.operators.attention.shared_registers import WAVES, step_sums
from simgpu.operators.attention.tree import BlockAttentionNode, FusedAttention

# Wave priorities (s_setprio): highest for the end of a wave's products, then for products, lowest for a softmax.
SOFTENS, MULTIPLIES, ENDS = 0, 1, 2
LEAD = 8  # products before the first instruction that they hide


class SharedEmitter(WaveEmitter):
    """Visits the attention tree; each level emits its part of the kernel."""

    wave_form = SharedWave
    wave: SharedWave

    def __init__(self, root: FusedAttention) -> None:
        super().__init__(root)
        self.softmax_form = FORMS[step_sums(self.plan.problem, self.plan.descriptor)]

    def _key_addresses(self) -> None:
        block, wave, p = self.block, self.wave, self.plan.problem
        for resource, name, width in ((wave.key_buffer, "K", p.d), (wave.value_buffer, "V", p.dv)):
            block.buffer(resource, name, width * self.shape.e, block.first_key)
        wave.start()

    def _load_queries(self, buffer: Reg) -> None:
        k, shape, wave, d = self.k, self.shape, self.wave, self.plan.problem.d
        offset, spare, row, column = (wave.ranges["temporaries"][n] for n in range(4))
        strides, width = (self.block.arguments["Q_row"], self.block.arguments["Q_head"]), GROUPS * shape.vec
        for q in range(shape.nq):
            self.block.row_of(row, q)
            self.block.row_offset(offset, row, strides, spare)
            k.set(column, of(self.block.group) * shape.vec)
            k.set(offset, of(column) * shape.e + offset)
            targets = [wave.query(q, span) for span in range(len(shape.spans))]
            load_row(k, targets, offset, column, buffer, d, width, spare, f"Q[{q}]")

    # -- main loop ---------------------------------------------------------------------------

    def visit_block(self, block: BlockAttentionNode) -> None:
        k, wave = self.k, self.wave
        done, last = k.new_label("no_keys"), k.new_label("last_values")
        self.softmax.start()
        k.move(wave.ranges["O"], 0)
        k.branch(k.s_cmp_eq_u32(self.block.steps_left, 0), done)
        k.comment("BlockAttentionNode: the first step's K to LDS")
        wave.load_keys()
        wave.load_values()
        wave.store_keys()
        wave.load_keys()
        wave.flip(wave.key_write)
        k.s_barrier()
        self._wait_once(lower=False)
        self._step(first=True)
        k.s_sub_u32(self.block.steps_left, self.block.steps_left, 1)
        k.branch(k.s_cmp_eq_u32(self.block.steps_left, 0), last)
        k.comment(f"BlockAttentionNode: {self.block.step} keys a step, all waves'")
        with k.loop("keys", self.block.steps_left):
            self._step(first=False)
        k.label(last)
        k.comment("O^T of the last step")
        wave.products(wave.value_fragments(), 0, lambda: None)
        self._wait_once(lower=True)
        k.label(done)

    def _wait_once(self, lower: bool) -> None:
        """Emits a barrier for waves 0 to 3 (lower) or 4 to 7 only. Between the two calls, waves 4 to 7 are one barrier late."""
        k = self.k
        k.s_cmp_lt_u32(self.block.wave_number, WAVES // 2)
        with k.jump_over("scc0" if lower else "scc1", "staggered"):
            k.s_barrier(note="the two waves of a SIMD are in different parts of a step")

    def _step(self, first: bool) -> None:
        """Emits a step (WarpAttentionNode): products, softmax."""
        k, wave = self.k, self.wave
        fragments = wave.key_fragments() if first else self._fragments()
        self.softmax.find_edges()
        if first:
            k.s_setprio(MULTIPLIES)
            wave.read_ahead(fragments)
        k.comment("products; the next K and V to LDS, those behind them loaded")
        last = tail(self.plan.problem, self.plan.descriptor, self.plan.tile_Q)
        products = partial(wave.products, fragments, last, self._reads_end)
        loads, flip = (wave.load_values, wave.load_keys), partial(wave.flip, wave.key_write, wave.value_write)
        overlap(k, LEAD, products, wave.store_values, wave.store_keys, *loads, flip)
        k.s_setprio(SOFTENS)
        wave.flip(wave.key_read, *(() if first else (wave.value_read,)))
        k.comment("softmax; V's first fragments")
        following = self._fragments()
        self.softmax.update(range(self.shape.nq), HiddenReads(self._values_come, lambda: wave.read_ahead(following)))
        k.s_add_u32(self.block.first_key, self.block.first_key, self.block.step)

    def _reads_end(self) -> None:
        self.k.s_barrier(note="all reads have come, all writes are done")
        self.k.s_setprio(ENDS)

    def _values_come(self) -> None:
        self.k.s_barrier(note="V is in LDS")
        self.k.s_setprio(MULTIPLIES)

    def _fragments(self) -> list[LdsFragment]:
        """Returns the fragments of a step's products, in order. The last step has only V's."""
        return [*self.wave.value_fragments(), *self.wave.key_fragments()]

    # -- epilogue ----------------------------------------------------------------------------

    def _end(self) -> None:
        """Divides O by the row sums and stores it; every wave stores its own queries."""
        k, block, p, wave = self.k, self.block, self.plan.problem, self.wave
        result, logarithms = k.s.alloc("R buffer", 4), None
        if p.lse:
            logarithms = self._row_buffer(LSE, WORD)
        block.buffer(result, "R", p.dv * WORD)
        offset, spare, row, column = (wave.ranges["K staging"][n] for n in range(4))
        strides = block.arguments["R_row"], block.arguments["R_head"]
        for q in range(self.shape.nq):
            total = self.softmax.sums[q]
            self.softmax.end(q)
            if logarithms is not None:
                value, *spares = (wave.ranges["fragments"][n : n + 1] for n in range(4))
                log_sum_exp(k, value, total, self.softmax.references[q])
                block.store_of_rows(q, value, logarithms, spares, "log(sum(exp))")
            inverse(k, total, total)
            block.row_of(row, q)
            block.row_offset(offset, row, strides, spare)
            k.set(column, of(block.group) * QUAD)
            k.set(offset, of(column) * WORD + offset, note="columns 4g..")
            for t in range(-(-p.dv // ATOM)):
                self._store(q, t, result, (offset, spare, row, column))
        block.next_tile()

    def _store(self, q: int, t: int, result: Reg, places: tuple[Reg, Reg, Reg, Reg]) -> None:
        """Stores four columns of an atom for each lane."""
        k, wave, dv, (offset, spare, _, column) = self.k, self.wave, self.plan.problem.dv, places
        values, o = wave.ranges["fragments"].group(t % 4, QUAD), wave.output(t, q)
        read_scaled(k, values, [o[r] for r in range(QUAD)], [self.softmax.sums[q]] * QUAD)
        store_columns(k, values, offset, column, result, dv, (t + 1) * ATOM > dv, spare, t * ATOM, f"R[{q}], columns {t * ATOM}..")
