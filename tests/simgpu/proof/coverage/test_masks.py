"""Instructions of some lanes: LDS writes, results that are unknown in the others, and conditions of active lanes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.instruction import Const, Instruction, Operand, Reg
from simgpu.hardware.isa.spec import REGISTRY
from simgpu.proof.coverage.claims import _constant_lanes, _settle
from simgpu.proof.coverage.forms import Form, at_least, both, either
from simgpu.proof.coverage.integers import compare
from simgpu.proof.coverage.machine import Machine
from simgpu.proof.coverage.masks import Mask, Partial
from simgpu.proof.coverage.values import UNKNOWN, A, Cells, State
from simgpu.proof.terms import NotModelled

LANES = np.arange(64)
MASK = Mask((cast(Any, compare("v_cmp_gt_u32", Form.of(48), Form.of(LANES))),))  # lanes 0 to 47
MINUS_ONE = Const(193)


def run(state: State, mnemonic: str, encoding: str, args: dict[str, Operand], mods: dict[str, Any] | None = None) -> None:
    spec = next(spec for spec in REGISTRY.specs if spec.mnemonic == mnemonic)
    inst = Instruction(spec, "gfx942", encoding, args, mods or {}, size=8)
    Machine("gfx942", 64, {}, {}, "k", "part", "factor", "f32", 1, frozenset()).step(state, LintStep(0, inst))


def masked_state() -> State:
    """Returns a state in which 48 lanes are on. v0: the lanes' numbers; v1: elements of A."""
    words = Cells.of(A, 0, LANES[:, None], np.zeros((64, 1), np.int64))
    registers = {("v", 0): Form.of(4 * LANES), ("v", 1): words, ("s", 4): MASK}
    state = State(Cells(np.full(64, UNKNOWN)), registers)
    run(state, "s_mov_b64", "sop1", {"sdst": Reg("s", 126, 2), "src0": Reg("s", 4, 2)})
    return state


def test_an_lds_write_leaves_words_of_lanes_that_are_off() -> None:
    state = masked_state()
    run(state, "ds_write_b32", "ds", {"addr": Reg("v", 0), "data0": Reg("v", 1)}, {"offset": 0})
    assert (state.lds.kind[:48] == A).all() and (state.lds.code[48:] == UNKNOWN).all()
    with pytest.raises(NotModelled, match="an access of this kind"):
        run(state, "ds_read_b32", "ds", {"addr": Reg("v", 0), "vdst": Reg("v", 2)}, {"offset": 0})


def test_results_are_unknown_in_lanes_that_are_off() -> None:
    state = masked_state()
    run(state, "v_mov_b32", "vop1", {"vdst": Reg("v", 2), "src0": Reg("v", 1)})
    run(state, "v_mov_b32", "vop1", {"vdst": Reg("v", 3), "src0": Reg("v", 0)})
    copied, number = cast(Cells, state.registers["v", 2]), state.registers["v", 3]
    assert (copied.kind[:48] == A).all() and (copied.code[48:] == UNKNOWN).all()
    assert isinstance(number, Partial) and number.known.sum() == 48
    run(state, "ds_write_b32", "ds", {"addr": Reg("v", 3), "data0": Reg("v", 1)}, {"offset": 0})
    run(state, "s_mov_b64", "sop1", {"sdst": Reg("s", 126, 2), "src0": MINUS_ONE})
    assert state.active is None
    with pytest.raises(NotModelled, match="an address in LDS that is unknown"):
        run(state, "ds_write_b32", "ds", {"addr": Reg("v", 3), "data0": Reg("v", 1)}, {"offset": 0})


@pytest.mark.parametrize(
    ("mnemonic", "encoding", "register"),
    [("s_mov_b32", "sop1", Reg("s", 127)), ("s_and_saveexec_b64", "sop1", Reg("s", 8, 2)), ("s_mov_b64", "sop1", Reg("s", 126, 2))],
)
def test_other_writes_of_exec_are_not_modelled(mnemonic: str, encoding: str, register: Reg) -> None:
    """s5 is the high half of a mask: once it is overwritten, s[4:5] is none."""
    state = masked_state()
    run(state, "s_mov_b32", "sop1", {"sdst": Reg("s", 5), "src0": MINUS_ONE})
    with pytest.raises(NotModelled, match="lanes that are off"):
        run(state, mnemonic, encoding, {"sdst": register, "src0": Reg("s", 4, register.count)})


def test_alternatives_hold_for_work_items_that_are_on() -> None:
    """A mask of 48 lanes, and either few columns or rows that only lanes past the mask lack."""
    rows = Form.name("rows") - Form.of(np.maximum(LANES, 47))
    mask = at_least(Form.of(47 - LANES))
    condition, active = _constant_lanes(both(mask, either(at_least(Form.name("columns")), at_least(rows))))
    assert active is not None and active.sum() == 48
    assert condition.key() == either(at_least(Form.name("columns")), at_least(Form.name("rows") - Form.of(47))).key()


def test_masks_without_a_lane_in_both_contradict_each_other() -> None:
    assert both(at_least(Form.of(47 - LANES)), at_least(Form.of(LANES - 48))).never


def test_alternatives_lack_what_is_known() -> None:
    """Leaves the columns: that there are 8 rows is known, and that there are fewer contradicts it."""
    rows, columns = at_least(Form.name("rows") - Form.of(8)), at_least(Form.name("columns"))
    assert _settle(both(rows, either(both(rows, columns), rows.negation()))).key() == both(rows, columns).key()
