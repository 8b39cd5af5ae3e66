"""Numbers of workgroups, waves and lanes, reductions over lanes, and conversion of 16-bit elements."""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.asm.parts.integer_math import scalar_divmod
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.resources import rounding_sgprs

# Steps of `lanes_reduce`. DPP rows have 16 lanes (ISA guides, "DPP"). After the first four steps, every lane of a row
# has the row's total; after all steps, lane `_TOTAL_LANE` has the wave's.
_STEPS: tuple[dict[str, int | str], ...] = (
    {"quad_perm": "[1,0,3,2]", "row_mask": "0xf", "bank_mask": "0xf"},
    {"quad_perm": "[2,3,0,1]", "row_mask": "0xf", "bank_mask": "0xf"},
    {"row_half_mirror": True, "row_mask": "0xf", "bank_mask": "0xf"},
    {"row_mirror": True, "row_mask": "0xf", "bank_mask": "0xf"},
    {"row_bcast": 15, "row_mask": "0xa", "bank_mask": "0xf"},
    {"row_bcast": 31, "row_mask": "0xc", "bank_mask": "0xf"},
)
_TOTAL_LANE = 63
INSTRUCTIONS = {"sum": "v_add_f32", "maximum": "v_max_f32"}  # of combinations (`simgpu.operators.compute.COMBINE`)
BF16_ROUND = 0x7FFF  # plus the lowest bit that stays: half a unit, ties to even
# v_perm_b32 D, S0, S1: the low or high halves of S1 and S0. Byte numbers 0..3 are S1's, 4..7 are S0's (ISA guides).
LOW_HALVES, HIGH_HALVES = 0x05040100, 0x07060302


def consecutive_workgroups(k: KernelBuilder, xcds: int, limit: int, each: Operand, rest: Operand) -> None:
    """Converts group_x from the order of dispatch, which assigns workgroups to XCDs in turn, to consecutive numbers on each XCD.

    limit: the number of workgroups is below. each, rest: that number divided by `xcds`, and the remainder.
    """
    k.comment(f"{xcds} XCDs take turns; each has workgroups of consecutive numbers")
    number = k.group_x
    xcd = scalar_divmod(k, number, xcds, limit, "XCD")
    k.set(number, of(number) + (0 if rest == 0 else of(xcd).least(rest)) + of(xcd) * each)
    k.s.free(xcd)


def wave_number(k: KernelBuilder) -> Reg:
    """Returns a new SGPR with the wave's number in its workgroup."""
    wave = k.s.alloc("wave")
    with k.temporary(of(k.work_item) // WAVEFRONT) as number:
        k.v_readfirstlane_b32(wave, number)
    return wave


def lane_places(k: KernelBuilder, rows: int) -> tuple[Reg, Reg]:
    """Returns new VGPRs with a lane's place i in an atom of `rows` rows, and its group g."""
    places = k.v.alloc("i: lane's place in an atom"), k.v.alloc("g: lane group")
    lane_in_atom(k, *places, rows)
    return places


def lane_number(k: KernelBuilder, lane: Reg) -> None:
    """Emits lane (a VGPR) = the lane's number in its wave."""
    k.v_mbcnt_lo_u32_b32(lane, -1, 0)
    k.v_mbcnt_hi_u32_b32(lane, -1, lane, note="lane")


def lane_in_atom(k: KernelBuilder, row: Reg, group: Reg, rows: int) -> None:
    """Emits row, group = a lane's i and g: its row of a matrix instruction with `rows` rows, and its lane group."""
    k.v_and_b32(row, rows - 1, k.work_item, note="i")
    k.v_and_b32(group, WAVEFRONT - 1, k.work_item)
    k.v_lshrrev_b32(group, log2(rows), group, note="g")


def lanes_reduce(k: KernelBuilder, operation: str, value: Reg, moved: Reg, lanes: int, note: str) -> None:
    """Emits value = `operation` (v_max_f32, v_add_f64 …) over the aligned group of `lanes` lanes that contains each lane.

    lanes: a power of two up to 64. value: a VGPR, or a pair for lanes other than 32. Lanes of a pair that a step's mask excludes
    get an arbitrary value, which no later step reads for the last lane. moved: as many VGPRs.
    """
    for step in _STEPS[: 4 if lanes == 32 else lanes.bit_length() - 1]:
        if value.count == 1:
            k.emit(f"{operation}_dpp", value, value, value, **step, note=note)
            continue
        for word in range(2):
            k.emit("v_mov_b32_dpp", moved[word], value[word], **step, note=note)
        k.emit(operation, value, moved, value)
    if lanes == 32:
        k.ds_swizzle_b32(moved, value, offset="swizzle(SWAP,16)")
        k.emit(operation, value, moved, value, note=note)
    if lanes < WAVEFRONT:
        return
    total = k.s.alloc(note, value.count)
    for word in range(value.count):
        k.v_readlane_b32(total[word], value[word], _TOTAL_LANE, note=f"{note} of all lanes")
    k.move(value, total)
    k.s.free(total)


def unpack(k: KernelBuilder, dtype: str, low: Reg, high: Reg, packed: Reg) -> None:
    """Emits low, high = f32 of the two 16-bit elements in `packed`. packed may be `high`, or `low` if it is not read again."""
    if dtype == "bf16":
        k.v_lshlrev_b32(low, 16, packed)
        k.v_and_b32(high, 0xFFFF0000, packed)
        return
    k.v_cvt_f32_f16(low, packed)
    k.v_cvt_f32_f16(high, k.v_lshrrev_b32(high, 16, packed))


def gather_column(
    k: KernelBuilder, target: Reg, rows: Sequence[Reg], column: int, selectors: Sequence[Reg], note: str = ""
) -> None:  # fmt: skip
    """Emits target = the 16-bit elements of a column of some rows, two in a register. selectors: of low halves, of high ones."""
    for pair, low in enumerate(rows[::2]):
        high, word = rows[2 * pair + 1], column // 2
        k.v_perm_b32(target[pair], high[word], low[word], selectors[column % 2], note=note)


def widen(k: KernelBuilder, dtype: str, value: Reg) -> None:
    """Emits value = f32 of the 16-bit element in its low half."""
    if dtype == "bf16":
        k.v_lshlrev_b32(value, 16, value)
    else:
        k.v_cvt_f32_f16(value, value)


def unpack_chunk(k: KernelBuilder, kind: str, target: Reg, packed: Reg) -> None:
    """Converts a chunk to f32. packed: registers as loaded, of 16-bit elements; may be the last ones of `target`."""
    if target.count == 1:
        if packed != target:
            k.v_mov_b32(target, packed)
        widen(k, kind, target)
        return
    for i in range(packed.count):
        unpack(k, kind, target[2 * i], target[2 * i + 1], packed[i])


def rounding_constants(k: KernelBuilder, kind: str) -> tuple[Reg, ...]:
    """Returns new SGPRs with the constants for rounding f32 to a type: none, or half a unit and the selector of high halves."""
    if not rounding_sgprs(kind, k.target):
        return ()
    half, halves = k.s.alloc("bf16 rounding"), k.s.alloc("high halves")
    k.s_movk_i32(half, BF16_ROUND)
    k.s_mov_b32(halves, HIGH_HALVES)
    return half, halves


class Narrowing:
    """Rounds f32 to f16 or bf16, to nearest even. Holds two SGPRs of constants if bf16 has no instruction.

    NaNs whose payload is in the high half stay NaNs. NaNs that come from bf16 inputs are such.
    """

    def __init__(self, k: KernelBuilder, dtype: str) -> None:
        self.k, self.dtype, self.constants = k, dtype, rounding_constants(k, dtype)

    def pack(self, target: Reg, low: Reg, high: Reg, scratch: Reg) -> None:
        """Emits target = both elements, rounded. Overwrites low and high."""
        self._pack(target, (low, high), (low, high), (scratch, scratch))

    def pack_copies(self, target: Reg, low: Reg, high: Reg, scratch: Reg) -> None:
        """Emits target = both elements, rounded. Keeps low and high. scratch: two VGPRs."""
        copies = scratch[0], scratch[1]
        self._pack(target, (low, high), copies, copies)

    def _pack(self, target: Reg, values: tuple[Reg, Reg], rounded: tuple[Reg, Reg], scratch: tuple[Reg, Reg]) -> None:
        """rounded: where each value is rounded, unless one instruction does all; scratch may be the same place."""
        k = self.k
        if self.dtype == "f16":
            for place, value in zip(rounded, values, strict=True):
                k.v_cvt_f16_f32(place, value)
            k.v_pack_b32_f16(target, *rounded)
        elif not self.constants:
            k.v_cvt_pk_bf16_f32(target, *values)
        else:
            for place, value, spare in zip(rounded, values, scratch, strict=True):
                k.v_bfe_u32(spare, value, 16, 1)
                k.v_add3_u32(place, value, spare, self.constants[0])
            k.v_perm_b32(target, rounded[1], rounded[0], self.constants[1])
