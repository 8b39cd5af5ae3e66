"""Instructions on the sums of a workgroup, one at a time."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.instruction import Const, Instruction, Operand, Reg
from simgpu.hardware.isa.spec import REGISTRY
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.machine import Machine
from simgpu.proof.coverage.values import Cells, State

MOVE = next(spec for spec in REGISTRY.specs if spec.mnemonic == "s_mov_b64")
FIVE, MINUS_ONE = 128 + 5, 193  # inline constants


@pytest.mark.parametrize(
    ("source", "words"), [(Reg("s", 4, 2), [7, 9]), (Const(FIVE), [5, 0]), (Const(MINUS_ONE), [2**32 - 1, 2**32 - 1])], ids=str
)
def test_a_move_of_64_bits_has_two_words(source: Operand, words: list[int]) -> None:
    nothing = np.zeros(0, np.int64)
    state = State(Cells(nothing), {("s", 4): Form.of(7), ("s", 5): Form.of(9)})
    machine = Machine("gfx942", 64, {}, {}, "k", "part", "factor", "f32", 1, frozenset())
    step = LintStep(0, Instruction(MOVE, "gfx942", "sop1", {"sdst": Reg("s", 0, 2), "src0": source}, size=4))
    machine.step(state, step)
    found = [cast(Form, state.registers["s", at]).constant for at in (0, 1)]
    assert [int(np.asarray(each)) & 0xFFFFFFFF for each in found] == words
