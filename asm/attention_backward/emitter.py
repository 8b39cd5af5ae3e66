"""Kernels of attention's backward: sums of rows of dO * O, then dK and dV by blocks of keys, then dQ by blocks of queries.

The kernels of gradients compute S and dP with the other side's rows as rows: S = Q K^T for dK and dV, S^T = K Q^T for dQ. Then a
lane's elements of S are already the operand of the gradients' products, whose columns are the own rows:

    dV^T += dO^T P    dK^T += Q^T dS    dQ^T += K^T dS^T

So P and dS never leave a wave's registers. A step, with the instructions that the products hide:

    S, half by half     rows of the next step to LDS, loads of the step after it; P of the first half
    dP, half by half    P of the other half, dS of the first
    dV                  dS of the other half, which half of dQ hides in the other kernel
    dK                  loads of the next step's L and D

The step's barrier is in the last products, after its last read of LDS. The products after it hide the next step's first reads.

Steps of the other side's rows that see none of the block's rows are skipped. Blocks of a head are dispatched a number of heads
apart, which keeps them on one XCD if the heads are a multiple of the XCDs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simgpu.asm.attention.frame import LOG2_E, advance_within, few, load_row, scalar_constants
from simgpu.asm.attention.merge import store_columns
from simgpu.asm.attention.sequence import emit_sequence
from simgpu.asm.attention_backward.moves import HALF, QUAD, Reads, TileMoves
from simgpu.asm.attention_backward.weights import AtomPart, Weights, halves
from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.interleave import overlap
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import buffer_at
from simgpu.asm.parts.lanes import HIGH_HALVES, LOW_HALVES, lane_places, wave_number
from simgpu.asm.parts.matrix import matrix_instruction, read_scaled
from simgpu.asm.visitor import emit
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention_backward.problem import LOGARITHMS, SUMS
from simgpu.operators.attention_backward.tiles import PADDED, WAVES
from simgpu.operators.attention_backward.tree import AttentionBackward, GradientBlock, GradientTree
from simgpu.operators.tree import Visitor

LEAD = 4  # matrix instructions before the first one that they hide
READ_COLUMNS = 8  # elements of a lane's read of a row
OUTPUTS = {"dQ": "Q", "dK": "K", "dV": "V"}


@emit.register(AttentionBackward)
def emit_backward(root: AttentionBackward) -> EmittedKernel:
    """Returns the kernel of the sums of rows; those of dK and dV, and of dQ, follow it."""
    p = root.problem
    sums = {"X": "O", "other": "dO", "total": SUMS}
    return emit_sequence(root, (sums, {}, {}), tuple(p.shapes), [(SUMS, WORD * p.batch * p.heads * p.lq)])


@emit.register(GradientTree)
def emit_gradient(root: GradientTree) -> EmittedKernel:
    """Returns the kernel of dK and dV, or of dQ."""
    kernel: EmittedKernel = GradientEmitter(root).visit(root)
    return kernel


class GradientEmitter(Visitor):
    """Visits the tree; each level emits its part of the kernel."""

    def __init__(self, root: GradientTree) -> None:
        self.root, self.plan, self.p = root, root.plan, root.problem
        plan, p = self.plan, self.p
        self.keys = plan.side == "keys"
        self.own_rows, self.other_rows = ("lk", "lq") if self.keys else ("lq", "lk")
        self.widths = {"Q": p.d, "K": p.d, "V": p.dv, "dO": p.dv}
        name = "_".join((*plan.results, p.dtype, f"{plan.tile}x{plan.step}x{p.d}x{p.dv}", *(["causal"] if p.causal else [])))
        self.k = KernelBuilder(f"attention_{name}", plan.descriptor.arch, WAVES * WAVEFRONT, plan=plan.resources)
        self.matrix, self.modifiers = matrix_instruction(plan.descriptor.atom(p.dtype), plan.descriptor.arch, p.dtype)
        self.words = plan.descriptor.atom(p.dtype).k * HALF // 16  # registers of an operand

    def visit_device(self, root: GradientTree) -> EmittedKernel:
        k, p, plan = self.k, self.p, self.plan
        k.declare("pointer", "Q", "K", "V", "dO", LOGARITHMS, SUMS, *plan.results)
        k.declare("i32", "lq", "lk", "last_tile")
        k.declare("f32", "factor", "scale")
        self.arguments = k.load_arguments()
        self._coordinates()
        self._ranges()
        self._own()
        self.visit(next(root.children()))
        self._end()
        k.s_endpgm()
        heads = root.trips("batch") * (p.kv_heads if self.keys else p.heads)
        tiles = root.trips(plan.side)
        assert p.scale is not None
        return k.finish(plan=plan, grid=(heads, tiles, 1), scalars=(p.lq, p.lk, tiles - 1, p.scale * LOG2_E, p.scale))

    # -- prologue --------------------------------------------------------------------------------

    def _coordinates(self) -> None:
        """Emits lane, head, the wave's first own row, and the first head of the arrays that move."""
        k, plan, a = self.k, self.plan, self.arguments
        k.work_item_x()
        wave, (self.row, self.group) = wave_number(k), lane_places(k, ATOM)
        tile = of(k.group_y)
        if not self.keys and self.p.causal:
            tile = of(a["last_tile"]) - k.group_y  # queries that see most keys first
        self.block_row = k.scalar("the block's first row", tile * plan.tile)
        self.first = k.scalar("the wave's first row", of(wave) * (ATOM * plan.atoms) + self.block_row)
        self.shift = k.set(wave, of(a["lk"]) - a["lq"], note="query i stands at i + lk - lq among the keys")
        group = self.p.group
        head = of(k.group_x) * group if self.keys else few(k.group_x, group) // group
        self.other_head = k.scalar("head of what moves", head)

    def _ranges(self) -> None:
        """Allocates the plan's registers, LDS and the moves."""
        k, plan = self.k, self.plan
        names = (r.name for r in plan.resources.registers if r.count and r.name not in ("addresses", "staging 1", "staging 2"))
        self.ranges = {name: k.array(name, 1) for name in names}
        for array in plan.resources.lds:
            k.region(array.name, array.nbytes)
        first, second = plan.moved
        self.moves = (TileMoves(k, first, k.array("staging 1", 1), 0), TileMoves(k, second, k.array("staging 2", 1), first.nbytes))
        for moves in self.moves:
            moves.start(self.row, self.group, self.ranges["temporaries"])
        self.delta = k.scalar("bytes to the other stage", first.nbytes + second.nbytes)
        self._stage(back=False)
        self.halves = scalar_constants(k, "selector of halves", LOW_HALVES, HIGH_HALVES)
        self.other_first = k.s.alloc("the step's first row")
        self.parts = halves(plan)
        whole = AtomPart(range(plan.atoms), range(plan.step // ATOM))
        split = not self.keys and all(2 * len(part.other) % self.words == 0 for part in self.parts)
        self.product_parts = self.parts if split else (whole,)
        self.weights = Weights(k, plan, self.ranges, self.arguments["factor"], self.other_first)

    def _buffer(self, resource: Reg, name: str, head: Reg, rows: str, row_bytes: int) -> None:
        """Builds the raw buffer of a head's rows."""
        size = self.k.scalar("size", of(self.arguments[rows]) * row_bytes)
        buffer_at(self.k, resource, self.arguments[name], name, (head, size), nbytes=size)
        self.k.s.free(size)

    def _own_row(self, target: Reg, t: int) -> None:
        """Emits target = a lane's own row of atom t."""
        self.k.set(target, of(self.row) + self.first + ATOM * t)

    def _own(self) -> None:
        """Emits the loads of the own rows, the zeros of the gradients and what masks need."""
        k, plan = self.k, self.plan
        resource, (offset, row, column, place) = k.s.alloc("buffer", 4), (self.ranges["temporaries"][n] for n in range(4))
        for number, name in enumerate(plan.own, start=1):
            width = self.widths[name]
            self._buffer(resource, name, k.group_x, self.own_rows, width * HALF)
            k.set(column, of(self.group) * READ_COLUMNS)
            for t in range(plan.atoms):
                self._own_row(row, t)
                k.set(offset, of(row) * (width * HALF) + of(column) * HALF)
                targets = [self.own(number, t, span) for span in range(-(-width // PADDED))]
                load_row(k, targets, offset, column, resource, width, PADDED, place, f"{name}[{t}]")
        for name, held in ((LOGARITHMS, "L"), (SUMS, "D")) if not self.keys else ():
            self._buffer(resource, name, k.group_x, self.own_rows, WORD)
            for t in range(plan.atoms):
                self._own_row(row, t)
                k.v_lshlrev_b32(row, log2(WORD), row)
                k.buffer_load(self.ranges[held][t], row, resource, 0, note=f"{name}[{t}]")
        k.s.free(resource)
        if not self.keys:
            self.weights.prepare()
        for name in ("gradient 1", "gradient 2", "zero"):
            if name in self.ranges:
                k.move(self.ranges[name], 0)
        self._edges(row)

    def own(self, number: int, t: int, span: int) -> Reg:
        """Returns an operand of own rows: columns 32 span + 8g .. of row 16t + i."""
        spans = self.plan.moved[number - 1].padded // PADDED
        return self.ranges[f"own {number}"].group(t * spans + span, 4)

    def _edges(self, row: Reg) -> None:
        """Emits, for each own row, the limit for the other side's rows that see it or that it sees, less 4g."""
        k, plan, a, causal = self.k, self.plan, self.arguments, self.p.causal
        if self.keys and not causal:
            return
        cut = self.weights.cut = k.s.alloc("where the mask begins or ends")
        quads = k.set(self.ranges["edges"][plan.atoms], of(self.group) * QUAD)
        last = k.scalar("last key", of(a["lk"]) - 1)
        for t in range(plan.atoms):
            edge = self.ranges["edges"][t]
            self._own_row(row, t)
            if self.keys:
                k.v_subrev_u32(row, self.shift, row, note="first query that sees the key")
            elif causal:
                k.v_add_u32(row, self.shift, row, note="last key that the query sees")
                k.v_min_i32(row, last, row)
            else:
                k.v_mov_b32(row, last)
            k.v_sub_u32(edge, row, quads)
        if self.keys:
            k.set(cut, of(self.first) + (ATOM * plan.atoms - 1) - self.shift)
        else:
            k.set(cut, ((of(self.first) + self.shift).least(last, "i32") if causal else of(last)) - (plan.step - 1))
        k.s.free(last)

    # -- main loop -------------------------------------------------------------------------------

    def visit_block(self, block: GradientBlock) -> None:
        """Emits the loop over the heads that move, and the steps of each."""
        k = self.k
        self.left = k.s.alloc("rows left")
        if self.keys:
            self.statistics = k.s.alloc("L buffer", 4), k.s.alloc("D buffer", 4)
        if not self.keys or self.p.group == 1:
            self._steps()
            return
        with k.loop("heads", self.p.group):
            self._steps()
            k.s_add_u32(self.other_head, self.other_head, 1)

    def _steps(self) -> None:
        """Emits the steps of a head: the first one's rows to LDS, then the loop."""
        k, plan, a = self.k, self.plan, self.arguments
        done = k.new_label("no_steps")
        k.comment(f"GradientBlock: {plan.step} {plan.other} a step")
        k.s_mov_b32(self.other_first, 0)
        k.s_mov_b32(self.left, a[self.other_rows])
        if self.p.causal:
            self._clip()
        if self.p.causal and not self.keys:
            k.branch(k.s_cmp_le_i32(self.left, 0), done)
        for moves in self.moves:
            tile = moves.tile
            self._buffer(moves.buffer, tile.name, self.other_head, self.other_rows, tile.width * HALF)
            self._skip(moves.buffer, tile.width * HALF)
        for resource, name in zip(self.statistics, (LOGARITHMS, SUMS), strict=True) if self.keys else ():
            self._buffer(resource, name, self.other_head, self.other_rows, WORD)
            self._skip(resource, WORD)
        for moves in self.moves:
            moves.load()
        if self.keys and self.p.group > 1:
            k.s_barrier(note="all waves have read the rows of the head before")
        self._stage(back=True)
        for moves in self.moves:
            moves.store(self.halves, self.ranges["transposed"])
        self._stage(back=False)
        for moves in self.moves:
            moves.load()
        if self.keys:
            self._load_statistics()
        k.s_barrier()
        self.reads = self._reads()
        with k.loop("steps", self.left, plan.step):
            self._step()
        k.label(done)

    def _reads(self) -> Reads:
        """Returns a step's reads of operands, in the order in which its products take them, and emits the first ones."""
        (first, second), atoms = self.moves, range(self.plan.step // ATOM)
        reads = [read for part in self.parts for read in first.row_reads(part.other)]
        reads += [read for part in self.parts for read in second.row_reads(part.other)]
        reads += second.column_reads(atoms) if self.keys else ()
        reads += [read for part in self.product_parts for read in first.column_reads(part.other)]
        return Reads(self.k, reads, self.ranges["fragments"], self._flip if self.plan.stages == 2 else None)

    def _clip(self) -> None:
        """Emits the first row of the other side and the number of rows, as `partners` clips them."""
        k, a = self.k, self.arguments
        if self.keys:
            k.set(self.other_first, (of(self.block_row) - self.shift).most(0, "i32"))
            k.set(self.left, of(a["lq"]) - self.other_first)
        else:
            end = (of(self.block_row) + self.plan.tile).least(a["lq"])
            k.set(self.left, (end + self.shift).least(a["lk"], "i32"))

    def _skip(self, resource: Reg, row_bytes: int) -> None:
        if self.keys and self.p.causal:
            with self.k.temporary(of(self.other_first) * row_bytes) as start:
                advance_within(self.k, resource, start)

    def _load_statistics(self) -> None:
        """Emits the loads of a step's L and D for the lane's rows."""
        k, offset = self.k, self.ranges["temporaries"][6]
        k.set(offset, of(self.group) * (QUAD * WORD))
        for resource, name in zip(self.statistics, ("L", "D"), strict=True):
            for a in range(self.plan.step // ATOM):
                target, note = self.ranges[name].group(a, QUAD), f"{name} of atom {a}"
                k.buffer_load(target, offset, resource, 0, offset=ATOM * WORD * a, note=note)
            advance_within(k, resource, self.plan.step * WORD)

    def _stage(self, back: bool) -> None:
        """Emits the other stage for writes. Between steps, reads are `delta` before writes."""
        if self.plan.stages == 2:
            for moves in self.moves:
                for address in (*moves.rows_to, *moves.columns_to):
                    (self.k.v_subrev_u32 if back else self.k.v_add_u32)(address, self.delta, address)

    def _flip(self) -> None:
        """Emits the other stage for reads and for writes."""
        k = self.k
        self._stage(back=True)
        for moves in self.moves:
            for address in (moves.row_from, *([moves.column_from] if moves.column_from else [])):
                k.v_add_u32(address, self.delta, address)
        k.s_sub_u32(self.delta, 0, self.delta)

    def _step(self) -> None:
        """Emits a step (GradientWarp)."""
        k, plan, weights, reads, results = self.k, self.plan, self.weights, self.reads, self.product_parts
        staging = [partial(self._refill, moves) for moves in self.moves]
        if not reads.crosses or any(moves.partial for moves in self.moves):
            if reads.crosses:
                self._refill(*self.moves)
            staging = []
        previous: Callable[[], None] = weights.prepare if self.keys else lambda: None
        for name, number, follow in (("S", 1, weights.probabilities), ("dP", 2, weights.gradients)):
            for part in self.parts:
                k.comment(f"GradientWarp: {name} of own atoms {part.own}, atoms {part.other}")
                overlap(k, LEAD, partial(self._scores, number, name, part), previous, *staging[:1])
                previous, staging = partial(follow, part), staging[1:]
        if self.keys:
            k.comment("dV; dS")
            overlap(k, LEAD, partial(self._products, "gradient 2", "P", self.p.dv, results[0]), previous)
        elif len(results) == 1:
            previous()
        k.comment(plan.results[0])
        for part in results[:-1]:
            overlap(k, LEAD, partial(self._products, "gradient 1", "dS", self.p.d, part), previous)
        statistics = [self._load_statistics] if self.keys else []
        overlap(k, LEAD, partial(self._products, "gradient 1", "dS", self.p.d, results[-1]), *statistics)
        if not reads.crosses:
            k.s_barrier(note="all waves have read the step's rows")
            self._refill(*self.moves)
            k.s_barrier()
        k.s_add_u32(self.other_first, self.other_first, plan.step)

    def _refill(self, *arrays: TileMoves) -> None:
        for moves in arrays:
            moves.store(self.halves, self.ranges["transposed"])
            moves.load()

    def _scores(self, number: int, name: str, part: AtomPart) -> None:
        """Emits the products of S or dP: rows of the step by own rows."""
        plan, zero = self.plan, self.ranges.get("zero", 0)
        for span in range(plan.moved[number - 1].padded // PADDED):
            for a in part.other:
                rows = self.reads.take()
                for first in range(0, rows.count, self.words):
                    words = slice(first, first + self.words)
                    for t in part.own:
                        d = self.weights.score(name, t, a)
                        self._multiply(d, rows[words], self.own(number, t, span)[words], d if span or first else zero, name)
                self.reads.refill()

    def _products(self, gradient: str, weights: str, width: int, part: AtomPart) -> None:
        """Emits the products of a gradient: columns of the step by P or dS."""
        size = 2 * len(part.other)
        for c in range(-(-width // ATOM)):
            columns = self.reads.take()
            for first in range(0, size, self.words):
                for t in part.own:
                    operand, d = self.weights.operand(weights, t), self.gradient(gradient, width, t, c)
                    start = 2 * part.other[0] + first
                    self._multiply(d, columns[first : first + self.words], operand[start : start + self.words], d, gradient)
            self.reads.refill()

    def gradient(self, name: str, width: int, t: int, c: int) -> Reg:
        """Returns the accumulators of a gradient's columns 16c + 4g .. of own row 16t + i."""
        return self.ranges[name].group(t * -(-width // ATOM) + c, QUAD)

    def _multiply(self, d: Reg, a: Reg, b: Reg, c: Reg | int, note: str) -> None:
        self.k.emit(self.matrix, d, a, b, c, note=note, **self.modifiers)

    # -- epilogue --------------------------------------------------------------------------------

    def _end(self) -> None:
        """Emits the stores of the gradients."""
        plan, a = self.plan, self.arguments
        for name in plan.results:
            gradient = "gradient 2" if name == "dV" else "gradient 1"
            self._store_gradient(name, gradient, 1 / plan.gain if name == "dV" else a["scale"])

    def _store_gradient(self, name: str, gradient: str, factor: Reg | float) -> None:
        k, width, own = self.k, self.widths[OUTPUTS[name]], self.ranges["temporaries"]
        resource, offset, place, row = k.s.alloc(f"{name} buffer", 4), own[4], own[5], own[6]
        self._buffer(resource, name, k.group_x, self.own_rows, width * WORD)
        column = k.set(self.ranges["edges"][self.plan.atoms], of(self.group) * QUAD)
        for t in range(self.plan.atoms):
            self._own_row(row, t)
            k.set(offset, of(row) * (width * WORD) + of(column) * WORD)
            for c in range(-(-width // ATOM)):
                held, values, first = self.gradient(gradient, width, t, c), own[:QUAD], c * ATOM
                read_scaled(k, values, [held[r] for r in range(QUAD)], [factor] * QUAD)
                ends = first + ATOM > width
                store_columns(k, values, offset, column, resource, width, ends, place, first, f"{name}[{t}][{c}]")
        k.s.free(resource)
