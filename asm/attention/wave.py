"""Part of a key step that a wave has: loads of K and V, S^T = K Q^T, O^T += V^T P^T, all in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simgpu.asm.attention.frame import BLOCKS, AttentionFrame, scalar_constants
from simgpu.asm.attention.shape import QUAD, AttentionShape
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import advance_buffer, buffer_at
from simgpu.asm.parts.lanes import HIGH_HALVES, LOW_HALVES, gather_column
from simgpu.asm.parts.transpose import HIGH_BYTES, LOW_BYTES
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.registers import row_registers


class WaveRegisters:
    """Register ranges of a wave, allocated by their names in the plan, and the place of each fragment in them."""

    def __init__(self, block: AttentionFrame, shape: AttentionShape) -> None:
        self.k, self.block, self.shape = block.k, block, shape
        k, planned = block.k, block.plan.resources.registers
        self.ranges = {r.name: k.array(r.name, 1) for r in planned if r.count and r.name not in ("addresses", "end")}
        self.zero_c: Reg | int = self.ranges.get("zero", 0)
        self.key_buffer = k.s.alloc("K buffer", 4)
        self.value_buffer = k.s.alloc("V buffer", 4)
        if shape.narrow:
            self.pack = scalar_constants(k, "selector of halves", LOW_HALVES, HIGH_HALVES)

    def query(self, q: int, span: int) -> Reg:
        """Returns the Q^T fragment: columns first + vec·g .. of query 16q + i, for a span (first, vec)."""
        return self._span("Q fragments", q, span, self.shape.e)

    def score(self, q: int, a: int) -> Reg:
        """Returns the S^T atom: register r is key 16a + 4g + r of query 16q + i."""
        return self.ranges["S"].group(q * self.shape.na + a, QUAD)

    def weights(self, q: int) -> Reg:
        """Returns P^T of query atom q: all of a lane's keys in order, as matrix operands."""
        return self.ranges["P" if "P" in self.ranges else "S"].group(q, QUAD * self.shape.na * self.shape.e // 4)

    def output(self, t: int, q: int) -> Reg:
        """Returns the O^T atom of column atom t and query atom q."""
        return self.ranges["O"].group(t * self.shape.nq + q, QUAD)

    def widen(self, target: Reg, source: Reg, word: int) -> None:
        """Emits target = two 8-bit floats converted (exactly) to Q's type. word: 0 for the low half of `source`, 1 for the high."""
        k, temporaries = self.k, self.ranges["temporaries"]
        start = 4 + temporaries.index % 2  # pairs are even
        pair, form = temporaries[start : start + 2], f"v_cvt_pk_f32_{self.shape.kind_kv}"
        if word:
            k.emit(f"{form}_sdwa", pair, source, src0_sel="WORD_1")
        else:
            k.emit(form, pair, source)
        if self.shape.half == "f16":
            k.v_cvt_pkrtz_f16_f32(target, pair[0], pair[1])
        else:
            k.v_perm_b32(target, pair[1], pair[0], self.pack[1])

    def _span(self, name: str, atom: int, span: int, e: int) -> Reg:
        """Returns the part of a range with rows of `e` bytes an element that holds an atom's span."""
        column, vec = self.shape.spans[span]
        start = atom * row_registers(self.shape.d, e) + column * e // ATOM
        return self.ranges[name][start : start + vec * e // 4]

    def load(self, target: Reg, offset: Reg, buffer: Reg, soffset: Reg | int, immediate: int, size: int, note: str) -> None:
        """Loads `size` bytes for each lane."""
        self.k.buffer_load(target, offset, buffer, soffset, offset=immediate, nbytes=size, note=note)


class KeyWave(WaveRegisters):
    """A wave with its own keys, which it loads into registers.

    The emitter sets strides (SGPRs) and lane offsets (VGPRs) before it calls `load_*`.
    """

    def __init__(self, block: AttentionFrame, shape: AttentionShape) -> None:
        super().__init__(block, shape)
        k = self.k
        self.mixed: tuple[Reg, ...] = ()
        if shape.kind_kv:
            self.mixed = scalar_constants(k, "selector of bytes", LOW_BYTES, HIGH_BYTES)
        self.key_rows: list[Reg | int] = []  # soffset of each key atom
        self.value_rows: list[Reg | int] = []  # soffset of each row s of each key atom, [a][s]
        self.before_keys: Callable[[int], object] = lambda a: None  # emits the code before the loads of a key atom
        self.before_values: Callable[[int], object] = lambda a: None
        self.key_offset = {vec: k.v.alloc(f"K offset, {vec} elements") for vec in shape.scores}
        self.value_offset = {wide: k.v.alloc(f"V offset, {wide} atoms") for wide in shape.widths}

    # -- places ------------------------------------------------------------------------------

    def key(self, a: int, span: int) -> Reg:
        """Returns the K fragment: columns first + vec·g .. of key 16a + i, for a span (first, vec)."""
        return self._span("K fragments", a, span, self.shape.e)

    def narrow_key(self, a: int, span: int) -> Reg:
        """Returns the K fragment as loaded, in 8-bit floats."""
        return self._span("K staging", a, span, self.shape.e_kv)

    def value_row(self, a: int, s: int, block: int) -> Reg:
        """Returns a lane's load of V's row 16a + 4g + s: its columns of a block."""
        widths = [self.shape.block_registers(wide) for _, wide in self.shape.blocks]
        start = sum(widths[:block]) * QUAD * self.shape.na + (a * QUAD + s) * widths[block]
        return self.ranges["V rows"][start : start + widths[block]]

    # -- loads -------------------------------------------------------------------------------

    def load_keys(self) -> None:
        """Loads K fragments of the step at `key_offset`."""
        shape, e = self.shape, self.shape.e_kv
        for a in range(shape.na):
            self.before_keys(a)
            for span, (column, vec) in enumerate(shape.spans):
                target = self.key(a, span) if e == shape.e else self.narrow_key(a, span)
                self.load(target, self.key_offset[vec], self.key_buffer, self.key_rows[a], column * e, vec * e, f"K[{a}][{span}]")

    def load_values(self, a: int, s: int) -> None:
        """Loads row 4g + s of key atom a of V."""
        shape, e = self.shape, self.shape.e_kv
        if s == 0:
            self.before_values(a)
        for block, (column, wide) in enumerate(shape.blocks):
            self.load(self.value_row(a, s, block), self.value_offset[wide], self.value_buffer, self.value_rows[a * QUAD + s],
                      column * e, wide * e, f"V[{a}][{s}], columns {column}..")  # fmt: skip

    # -- products ----------------------------------------------------------------------------

    def start_masks(self) -> None:
        """Emits column masks for the last fragment, if Q and K end within an atom: all bits set in the lane's columns below d."""
        k, shape, d = self.k, self.shape, self.block.plan.problem.d
        if "column masks" not in self.ranges:
            return
        column, half = self.ranges["temporaries"][0], self.ranges["temporaries"][1]
        k.comment(f"columns from {d} on read 0, whatever lies behind a row")
        first, vec = shape.spans[-1]
        k.v_mul_u32_u24(column, vec, self.block.group)
        left = d - first
        for number in range(vec * shape.e // 4):
            mask = self.ranges["column masks"][number]
            for part in range(4 // shape.e):
                k.v_cndmask_b32(half if part else mask, 0, -1, k.v_cmp_gt_i32("vcc", left - number * (4 // shape.e) - part, column))
            if shape.narrow:
                k.v_lshlrev_b32(half, 16, half)
                k.v_and_b32(mask, 0xFFFF, mask)
                k.v_or_b32(mask, mask, half)

    def mask_columns(self, fragment: Reg) -> None:
        """Zeroes the columns of a last fragment that do not exist."""
        if "column masks" in self.ranges:
            for number in range(fragment.count):
                self.k.v_and_b32(fragment[number], self.ranges["column masks"][number], fragment[number])

    def scores(self, half: Sequence[int], fresh: bool) -> None:
        """Emits S^T = K Q^T for these query atoms. fresh: True for the first products of these keys."""
        k, shape = self.k, self.shape
        for span, (_, vec) in enumerate(shape.spans):
            row = shape.scores[vec]
            size = row.registers("A")
            for a in range(shape.na) if fresh and span == len(shape.spans) - 1 else ():
                self.mask_columns(self.key(a, span))
            for step in range(shape.steps(row, vec)):
                part = slice(step * size, (step + 1) * size)
                for a in range(shape.na):
                    for q in half:
                        d = self.score(q, a)
                        c = d if span or step else self.zero_c
                        k.emit(row.mnemonic, d, self.key(a, span)[part], self.query(q, span)[part], c,
                               note=f"S[{q}][{a}] += K[{a}] Q[{q}], span {span}")  # fmt: skip

    def values(self, half: Sequence[int], refill: bool) -> None:
        """Emits O^T += V^T P^T for these query atoms. refill: True to start the next step's loads of V rows as they become free."""
        k, shape, row = self.k, self.shape, self.shape.value
        size = row.registers("A")
        for step in range(shape.steps(row, QUAD * shape.na)):
            part = slice(step * size, (step + 1) * size)
            for t in range(shape.column_atoms):
                for q in half:
                    o = self.output(t, q)
                    k.emit(row.mnemonic, o, self._value_operand(t, step), self.weights(q)[part], o,
                           note=f"O[{t}][{q}] += V[{t}] P[{q}], step {step}")  # fmt: skip
            if refill:
                self.load_values(*divmod(step, QUAD))

    def _value_operand(self, t: int, step: int) -> Reg:
        shape = self.shape
        if shape.narrow:
            size = shape.value.registers("A")
            start = t * 2 * shape.na + step * size
            return self.ranges["V fragments"][start : start + size]
        a, s = divmod(step, QUAD)
        block = next(b for b in range(len(shape.blocks)) if t in shape.atoms_of(b))
        return self.value_row(a, s, block)[t - shape.atoms_of(block)[0]]

    def widen_keys(self) -> None:
        """Converts 8-bit K fragments to Q's type."""
        for a in range(self.shape.na):
            for span in range(len(self.shape.spans)):
                source, target = self.narrow_key(a, span), self.key(a, span)
                for number in range(target.count):
                    self.widen(target[number], source[number // 2], number % 2)

    def _widen_rows(self) -> None:
        """Converts 8-bit rows to V fragments: packs two rows' bytes of a column next to each other, then converts both at once."""
        k, shape, mixed = self.k, self.shape, self.ranges["temporaries"][0]
        for a in range(shape.na):
            for block, (_, wide) in enumerate(shape.blocks):
                rows = [self.value_row(a, s, block) for s in range(QUAD)]
                for pair, w in ((pair, w) for pair in (0, 1) for w in range(wide)):
                    word, half = divmod(w, 2)
                    if not half:
                        first, second = (rows[2 * pair + n][word // 2] for n in (0, 1))
                        k.v_perm_b32(mixed, second, first, self.mixed[word % 2])
                    t = shape.atoms_of(block)[w]
                    self.widen(self.ranges["V fragments"][t * 2 * shape.na + 2 * a + pair], mixed, half)

    def interleave_rows(self) -> None:
        """Makes 2-byte V fragments: interleaves the four rows of a lane's keys column by column."""
        if self.shape.kind_kv:
            self._widen_rows()
            return
        shape = self.shape
        for a in range(shape.na):
            for block, (_, wide) in enumerate(shape.blocks):
                rows = [self.value_row(a, s, block) for s in range(QUAD)]
                for w in range(wide):
                    t = shape.atoms_of(block)[w]
                    target = self.ranges["V fragments"].group(t * shape.na + a, 2)
                    gather_column(self.k, target, rows, w, self.pack, f"V[{t}]: two of keys {16 * a} + 4g..")


def row_offsets(k: KernelBuilder, stride: Reg, rows: Sequence[int], name: str) -> list[Reg | int]:
    """Returns SGPRs with row · stride for each row; 0 for row 0."""
    offsets: list[Reg | int] = []
    for row in rows:
        if row == 0:
            offsets.append(0)
            continue
        offset = k.s.alloc(f"{name} row {row}")
        k.s_mul_i32(offset, stride, row)
        offsets.append(offset)
    return offsets


class Pages:
    """Paged K and V: emits the loads of page numbers from `blocks`, and the buffer of each key atom before its loads.

    An atom's 16 keys are in one page, so its address is scalar.
    """

    def __init__(self, wave: KeyWave) -> None:
        self.k, self.block, self.p = k, block, p = wave.k, wave.block, wave.block.plan.problem
        self.numbers = [k.s.alloc(f"page of key atom {a}") for a in range(wave.shape.na)]
        self.next_key, self.limit = k.s.alloc("first key of the next loads"), k.s.alloc("keys end")
        self.first, self.stride = k.s.alloc("page's first"), k.s.alloc("page's bytes")
        k.comment("K and V: pools of pages; the head's rows are among those of all")
        for name in "KV":
            advance_buffer(k, block.arguments[name], of(block.shared_head) * block.arguments[f"{name}_head"], name)
        k.s_mov_b32(self.next_key, block.first_key)
        k.s_mov_b32(self.limit, block.arguments["lk"])
        self.widths = {"K": p.d * p.element_kv.bytes, "V": p.dv * p.element_kv.bytes}
        wave.before_keys = lambda a: self._place("K", wave.key_buffer, a)
        wave.before_values = lambda a: self._place("V", wave.value_buffer, a)
        self._fetch()

    def advance(self) -> None:
        """Advances to the next step's keys, after a step's loads."""
        self.k.s_add_u32(self.next_key, self.next_key, self.block.step)
        self._fetch()

    def only_if_more(self) -> None:
        """Makes further loads read nothing if this is the last step."""
        self.k.s_cmp_gt_i32(self.block.steps_left, 1)
        self.k.s_cselect_b32(self.limit, self.block.arguments["lk"], 0)

    def _fetch(self) -> None:
        """Loads the pages' numbers; past the last key, the number of its page."""
        k = self.k
        for a, number in enumerate(self.numbers):
            key = (of(self.next_key) + ATOM * a).least(of(self.block.arguments["lk"]) - 1, "i32").most(0, "i32")
            k.set(self.first, key // self.p.page * WORD)
            k.s_load_dword(number, self.block.arguments[BLOCKS], self.first, note=f"page of key atom {a}")

    def _place(self, name: str, buffer: Reg, a: int) -> None:
        """Emits a buffer that begins with the atom's first row and ends with the sequence's last, or the atom's."""
        k, page, row = self.k, self.p.page, self.block.arguments[f"{name}_row"]
        base = self.block.arguments[name]
        key = of(k.set(self.first, of(self.next_key) + ATOM * a))
        k.set(self.stride, of(row) * page)
        rows = (self.limit - key).least(ATOM, "i32") - 1
        terms = (self.numbers[a], self.stride), (key % page * row, 1)
        buffer_at(k, buffer, base, name, *terms, nbytes=(rows * row + self.widths[name]).most(0, "i32"))
