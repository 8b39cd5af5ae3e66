"""A symbolic run, with inputs put in, against the simulator: every byte that lanes of random programs store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import z3

from simgpu import Device
from simgpu.alu.dpp import source_lanes
from simgpu.hardware.code_object import CodeObject
from simgpu.hardware.isa.lane_smt import SmtOps, number
from simgpu.proof.entry import KernelInputs
from simgpu.proof.execute import execute
from simgpu.proof.memory_log import LaneStore
from simgpu.proof.roots import Roots
from simgpu.proof.solver import Budget, Limits
from simgpu.proof.terms import Lanes, NotModelled
from simgpu.proof.vector import source_lane
from simgpu.tools.robustness.ir_programs import LANES, IrProgram
from simgpu.tools.robustness.ir_proofs import small_program
from simgpu.tools.robustness.ir_runs import SCALAR, Setting, code_object, gpu_result, memory

GAP = 1 << 40  # between the buffers of a symbolic run


class Values:
    """Values of terms for one lane of one launch."""

    def __init__(self, lane: int, buffers: Sequence[np.ndarray]) -> None:
        self.buffers, self.known = buffers, dict[int, tuple[Any, Any]]()
        self.constants = {"lane": lane % 64, "arg3": SCALAR, "exec": -1}
        self.constants |= {f"pointer{at}": (at + 1) * GAP for at in range(len(buffers))}
        self.constants |= {f"workgroup_id_{axis}": 0 for axis in "xyz"} | {"flat_scratch_init": 0}  # -O0 passes them on
        self.lane = lane

    def of(self, term: Any) -> Any:
        """Returns the value of a term, a constant of z3."""
        left = [term]
        while left:
            each = left[-1]
            missing = [child for child in each.children() if child.get_id() not in self.known]
            left += missing
            if not missing:
                left.pop()
                self.known.setdefault(each.get_id(), (each, self._applied(each)))
        return self.known[term.get_id()][1]

    def _applied(self, term: Any) -> Any:
        operands = [self.known[child.get_id()][1] for child in term.children()]
        if term.decl().kind() != z3.Z3_OP_UNINTERPRETED:
            return z3.simplify(term.decl()(*operands)) if operands else term
        name = term.decl().name()
        if name in self.constants:
            return number(self.constants[name], term.size())
        if name == "workitem_id_x":
            return number(self.lane, 32)
        if name.startswith("workitem_id"):
            return number(0, 32)
        if name.startswith("mask"):  # other lanes' bits: nothing in these programs depends on them but whether there are any
            return number(-1, 64)
        assert name.startswith("global memory"), f"{name} is undefined in the program"
        at = operands[0].as_long()
        return number(int(self.buffers[at // GAP - 1][at % GAP]), 8)


def symbolic_stores(program: IrProgram, setting: Setting) -> list[LaneStore]:
    """Returns the stores of a program's symbolic run, with the floats of IEEE 754."""
    code = CodeObject.parse(code_object([program], setting))
    lanes, deadline = Lanes(), Budget(Limits(20.0))
    ops = SmtOps(lanes.lane)
    ops.at = lanes.at  # type: ignore[method-assign]
    inputs = KernelInputs("a", code, code.kernels[f"p{program.number}"], lanes, Roots(lanes, deadline, list))
    log = execute(inputs, ops, Limits(20.0), deadline).memory
    if any(symbol.startswith("mask") for symbol in map(str, lanes.known)):
        raise NotModelled("masks of other lanes")
    events = [event for interval in log.intervals for event in interval.events] + log.events
    return [event for event in events if isinstance(event, LaneStore)]


def check(seed: int, numbers: Sequence[int], setting: Setting) -> int:
    """Compares some lanes' stores with the simulator's memory; returns the number of programs that were compared."""
    compared = 0
    for one in numbers:
        program = small_program(seed, one)
        try:
            stores = symbolic_stores(program, setting)
        except NotModelled:
            continue
        gpu = Device(setting.target, threads=1)
        after = gpu_result(gpu, gpu.load(code_object([program], setting)), program, seed)
        before = memory(seed, one)
        for lane in (0, 37, LANES - 1):
            values = Values(lane, (before.given, before.out, before.atom))
            stored: dict[int, int] = {}
            for store in stores:
                if z3.is_true(values.of(store.guard)):
                    at = values.of(store.address.at()).as_long()
                    stored |= {at + place: values.of(byte).as_long() for place, byte in enumerate(store.data)}
            assert stored, program.number
            wrong = {hex(at): value for at, value in stored.items() if after.out[at - 2 * GAP] != value}
            assert not wrong, (program.number, lane, str(setting))
        compared += 1
    return compared


def test_random_programs_store_what_the_simulator_stores() -> None:
    assert check(1, (5, 8), Setting("gfx942", "-O3", False)) == 2
    assert check(1, (14,), Setting("gfx90a", "-O0", False)) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_more_random_programs_store_what_the_simulator_stores(target: str, level: str) -> None:
    assert check(2, range(8), Setting(target, level, False)) >= 2


def test_lanes_of_dpp() -> None:
    lane = z3.BitVec("lane", 32)
    ends = (0x101, 0x10F, 0x111, 0x11F, 0x121, 0x12F, 0x150, 0x15F)
    controls = (0, 0x1B, 0xE4, *ends, 0x130, 0x134, 0x138, 0x13C, *range(0x140, 0x144))
    for control in controls:
        source, inside = source_lane(control, lane)
        for at, want in enumerate(source_lanes(control)):
            here = [z3.simplify(z3.substitute(term, (lane, number(at, 32)))) for term in (source, inside)]
            assert (here[0].as_long() if z3.is_true(here[1]) else None) == want, (hex(control), at)
