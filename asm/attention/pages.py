"""Paged K and V: raw buffers of key atoms. An atom's 16 keys are in one page, so its address is scalar."""

from __future__ import annotations

from simgpu.asm.attention.frame import BLOCKS
from simgpu.asm.attention.wave import KeyWave
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import RESOURCE_WORD3, advance_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM


class Pages:
    """Emits the loads of page numbers from `blocks`, and the buffer of each key atom before its loads."""

    def __init__(self, wave: KeyWave) -> None:
        self.k, self.block, self.p = k, block, p = wave.k, wave.block, wave.block.plan.problem
        self.numbers = [k.s.alloc(f"page of key atom {a}") for a in range(wave.shape.na)]
        self.next_key, self.limit = k.s.alloc("first key of the next loads"), k.s.alloc("keys end")
        self.low, self.high, self.first, self.stride = (k.s.alloc(f"page's {name}") for name in ("low", "high", "first", "bytes"))
        k.comment("K and V: pools of pages; the head's rows are among those of all")
        for name, buffer in (("K", wave.key_buffer), ("V", wave.value_buffer)):
            k.s_mul_i32(self.low, block.shared_head, block.arguments[f"{name}_head"])
            advance_buffer(k, block.arguments[name], self.low, name)
            k.s_mov_b32(buffer[3], RESOURCE_WORD3, note="raw, 32-bit data")
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
            k.s_sub_u32(self.low, self.block.arguments["lk"], 1)
            k.s_add_u32(self.first, self.next_key, ATOM * a)
            k.s_min_i32(self.first, self.first, self.low)
            k.s_max_i32(self.first, self.first, 0)
            k.s_lshr_b32(self.first, self.first, log2(self.p.page))
            k.s_lshl_b32(self.first, self.first, log2(WORD))
            k.s_load_dword(number, self.block.arguments[BLOCKS], self.first, note=f"page of key atom {a}")

    def _place(self, name: str, buffer: Reg, a: int) -> None:
        """Emits a buffer that begins with the atom's first row and ends with the sequence's last, or the atom's."""
        k, page, row = self.k, self.p.page, self.block.arguments[f"{name}_row"]
        base = self.block.arguments[name]
        k.s_lshl_b32(self.stride, row, log2(page))
        k.s_mul_i32(self.low, self.numbers[a], self.stride)
        k.s_mul_hi_u32(self.high, self.numbers[a], self.stride)
        k.s_add_u32(self.first, self.next_key, ATOM * a)
        k.s_and_b32(self.stride, self.first, page - 1, note="key of the page")
        k.s_mul_i32(self.stride, self.stride, row)
        k.s_add_u32(self.low, self.low, self.stride)
        k.s_addc_u32(self.high, self.high, 0)
        k.s_add_u32(buffer[0], base[0], self.low)
        k.s_addc_u32(buffer[1], base[1], self.high)
        k.s_sub_u32(self.first, self.limit, self.first)
        k.s_min_i32(self.first, self.first, ATOM)
        k.s_sub_u32(self.first, self.first, 1)
        k.s_mul_i32(self.first, self.first, row)
        k.s_add_u32(self.first, self.first, self.widths[name])
        k.s_max_i32(buffer[2], self.first, 0, note="bytes of the keys that there are")
