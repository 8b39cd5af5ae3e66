"""Paged K and V: raw buffers of key atoms. An atom's 16 keys are in one page, so its address is scalar."""

from __future__ import annotations

from simgpu.asm.attention.frame import BLOCKS
from simgpu.asm.attention.wave import KeyWave
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import advance_buffer, buffer_at
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM


class Pages:
    """Emits the loads of page numbers from `blocks`, and the buffer of each key atom before its loads."""

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
