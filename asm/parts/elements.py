"""Conversion of elements between their type in memory and the epilogue's type (f32, f64 or i32)."""

from __future__ import annotations

import numpy as np

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.lanes import rounding_constants
from simgpu.hardware.dtypes import dtype, largest_value, numpy_dtype
from simgpu.hardware.isa.instruction import Reg

BYTES = 8  # bits of a byte, for shifts
HIGH_WORD = "[0,0,1]"  # op_sel: the instruction writes the upper half of its result


class Elements:
    """Elements of type `memory` for an epilogue in type `compute`.

    scale: an SGPR with an f32 factor, applied before rounding to 8 bits. `prepare` allocates SGPRs of constants
    (`rounding_sgprs`).
    """

    def __init__(self, k: KernelBuilder, memory: str, compute: str, scale: Reg | None = None) -> None:
        self.k, self.memory, self.compute, self.scale = k, memory, compute, scale
        self.size, self.words = dtype(memory).bytes, dtype(compute).registers
        self.constants: tuple[Reg, ...] = ()

    def prepare(self) -> None:
        """Loads the constants of the rounding into SGPRs."""
        self.constants = rounding_constants(self.k, self.memory)

    # -- memory --------------------------------------------------------------------------------

    def registers(self, count: int) -> int:
        """Returns the number of registers that hold `count` adjacent elements as loaded."""
        return max(1, count * self.size // WORD)

    def load(self, target: Reg, address: Reg, resource: Reg, offset: int = 0, note: str = "") -> None:
        """Loads one element into the first registers of `target`, not converted. address: VGPR; offset: bytes."""
        self.k.buffer_load(target[0 : self.registers(1)], address, resource, 0, offset=offset, nbytes=self.size, note=note)

    def store(self, packed: Reg, address: Reg, resource: Reg, offset: int = 0, note: str = "", count: int = 1) -> None:
        """Stores `count` adjacent elements, as `narrow` returns them. address: VGPR; offset: bytes."""
        data, nbytes = packed[0 : self.registers(count)], count * self.size
        self.k.buffer_store(data, address, resource, 0, offset=offset, nbytes=nbytes, note=note)

    def single(self, packed: Reg, index: int, scratch: Reg | None) -> tuple[Reg, bool]:
        """Returns the registers from which element `index` of `packed` is stored, and True if it is in their upper half.

        scratch: a VGPR. Its upper bytes, and those of the result, do not count.
        """
        if self.size >= WORD:
            count = self.registers(1)
            return packed[index * count : (index + 1) * count], False
        word, place = divmod(index * self.size, WORD)
        one, high = packed[word], place >= WORD // 2
        if place % 2:
            assert scratch is not None
            self.k.v_lshrrev_b32(scratch, BYTES, one)
            one = scratch
        return one, high

    def insert(self, packed: Reg, index: int, one: Reg) -> None:
        """Makes `one`, loaded on its own, element `index` of `packed`. Earlier elements must be there; later ones become 0."""
        k, count = self.k, self.registers(1)
        if self.size >= WORD:
            k.move(packed[index * count : (index + 1) * count], one)
            return
        word, place = divmod(index * self.size, WORD)
        if place:
            k.v_lshl_or_b32(packed[word], one, BYTES * place, packed[word])
        else:
            k.v_mov_b32(packed[word], one)

    # -- into the epilogue -----------------------------------------------------------------------

    def widen(self, target: Reg, packed: Reg, index: int) -> Reg:
        """Converts element `index` of `packed`, adjacent elements as loaded, to the epilogue's type.

        Returns the result's registers: in `target`, or in `packed` if no conversion is needed.
        """
        k, bits = self.k, BYTES * self.size
        if self.memory == self.compute:
            return packed[index * self.words : (index + 1) * self.words]
        word, place = divmod(index * bits, BYTES * WORD)
        source, narrow = packed[word], target[self.words - 1]
        if self.size == WORD:  # f32 in memory, wider epilogue
            narrow = source
        elif self.memory == "bf16":
            if place:
                k.v_and_b32(narrow, 0xFFFF0000, source)
            else:
                k.v_lshlrev_b32(narrow, 16, source)
        else:
            if place:
                k.v_lshrrev_b32(narrow, place, source)
                source = narrow
            k.emit(f"v_cvt_f32_{self.memory}", narrow, source)
        if self.compute == "f64":
            k.v_cvt_f64_f32(target, narrow)
            return target
        return narrow

    # -- out of it -------------------------------------------------------------------------------

    def narrow(self, elements: list[Reg], scratch: Reg) -> Reg:
        """Rounds adjacent elements to nearest even and packs them. Returns the packed registers, from the first element's on.

        elements: in consecutive registers, overwritten. scratch: a VGPR.
        """
        k, first = self.k, elements[0]
        if self.memory == self.compute:
            return Reg(first.file, first.index, len(elements) * self.words)
        values = [element[0] for element in elements]
        if self.compute == "f64":
            for value, element in zip(values, elements, strict=True):
                k.v_cvt_f32_f64(value, element)
        packed = Reg(first.file, first.index, self.registers(len(elements)))
        if self.size == WORD:
            for target, value in zip((packed[i] for i in range(packed.count)), values, strict=True):
                if target != value:
                    k.v_mov_b32(target, value)
        elif self.size == 2:
            self._halves(packed, values, scratch)
        elif self.memory == "i8":
            self._integers(packed, values)
        else:
            self._bytes(packed, values, scratch)
        return packed

    def _halves(self, packed: Reg, values: list[Reg], scratch: Reg) -> None:
        k = self.k
        for value in values:
            if self.memory == "f16":
                k.v_cvt_f16_f32(value, value)
            elif self.constants:
                self._round_to_high_half(value, scratch)
        for pair, low in enumerate(values[::2]):
            high = values[min(2 * pair + 1, len(values) - 1)]
            if self.memory == "f16":
                k.v_pack_b32_f16(packed[pair], low, high)
            elif not self.constants:
                k.v_cvt_pk_bf16_f32(packed[pair], low, high)
            else:
                k.v_perm_b32(packed[pair], high, low, self.constants[1])

    def _round_to_high_half(self, value: Reg, scratch: Reg) -> None:
        """Rounds an f32 to bf16 in its upper half. A NaN is left as it is, because a carry could make it a number."""
        k = self.k
        k.v_bfe_u32(scratch, value, 16, 1)
        k.v_add3_u32(scratch, value, scratch, self.constants[0])
        k.v_cndmask_b32(value, scratch, value, k.v_cmp_u_f32("vcc", value, value))

    def _integers(self, packed: Reg, values: list[Reg]) -> None:
        """Rounds to integers of 8 bits, nearest even, the nearest one for values past their range."""
        k, limits = self.k, np.iinfo(numpy_dtype(self.memory, self.k.target))
        for value in values:
            k.v_rndne_f32(value, value)
            k.v_min_f32(value, float(limits.max), value)
            k.v_cvt_i32_f32(value, k.v_max_f32(value, float(limits.min), value))
        for number, value in enumerate(values):
            word, place = divmod(number, WORD)
            k.v_and_b32(value, 0xFF, value)
            if place:
                k.v_lshl_or_b32(packed[word], value, BYTES * place, packed[word])
            elif packed[word] != value:
                k.v_mov_b32(packed[word], value)

    def _bytes(self, packed: Reg, values: list[Reg], scratch: Reg) -> None:
        """Clamps and converts to 8 bits, because the conversion alone turns values that are too large into infinity or NaN."""
        k = self.k
        largest = largest_value(self.memory, k.target)
        for value in values:
            if self.scale is not None:
                k.v_mul_f32(value, self.scale, value)
            k.v_cmp_u_f32("vcc", value, value)
            k.v_min_f32(scratch, largest, value)
            k.v_max_f32(scratch, -largest, scratch)
            k.v_cndmask_b32(value, scratch, value, "vcc", note="NaN stays")
        for pair, low in enumerate(values[::2]):
            high = values[min(2 * pair + 1, len(values) - 1)]
            word, upper = divmod(pair, 2)
            select = {"op_sel": HIGH_WORD} if upper else {}
            k.emit(f"v_cvt_pk_{self.memory}_f32", packed[word], low, high, **select)
