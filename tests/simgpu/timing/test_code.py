"""Columns of a kernel's instructions."""

from __future__ import annotations

import pytest

from simgpu import asm
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Issue, issue_of
from simgpu.operators import TiledComputation
from simgpu.timing import code as timed
from simgpu.timing.code import CodeColumns, code_of, columns


@pytest.mark.parametrize(("target", "clocks"), [("gfx908", 16), ("gfx90a", 4), ("gfx942", 4), ("gfx950", 4)])
def test_integer_products(target: str, clocks: int) -> None:
    """LLVM's SISchedule.td: WriteIntMul takes four slots with SIFullSpeedModel, and one with those of gfx90a and later.

    An MI300A agrees: 18 VALU instructions, two of them products, take five waves of a SIMD 176 ns (mgpusim, l2_cache_bw).
    """
    product = decode(bytes.fromhex("010085d202070200"), 0, target)  # v_mul_lo_u32 v1, v2, v3
    assert (product.mnemonic, issue_of(product).clocks) == ("v_mul_lo_u32", clocks)


@pytest.mark.parametrize(("board", "dtype"), [("mi100", "f32"), ("mi210", "f64"), ("mi300x", "f16"), ("mi355x", "fp8")])
def test_instructions_that_issue_alike_are_examined_once(board: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = asm.emit(TiledComputation(100, 90, 200, target=board, dtype=dtype, beta=0.5))
    (text,) = (bytes(one.data) for one in CodeObject.parse(kernel.assemble()).segments if one.executable)
    instructions: dict[int, Instruction] = {}
    at = 0
    while not instructions or instructions[max(instructions)].mnemonic != "s_endpgm":
        instructions[at // 4] = decode(text, at, kernel.target)
        at += instructions[at // 4].size
    examined = []

    def examine(inst: Instruction) -> Issue:
        examined.append(inst)
        return issue_of(inst)

    monkeypatch.setattr(timed, "issue_of", examine)
    row = pipelines(kernel.target)
    found = code_of(instructions, at // 4, row)
    expected = columns({number: (issue_of(inst), inst.size // 4) for number, inst in instructions.items()}, at // 4, row)
    for name in CodeColumns.__dataclass_fields__:
        assert (getattr(found, name) == getattr(expected, name)).all(), name
    assert len(examined) < len(instructions) / 2
