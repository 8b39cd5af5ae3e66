"""Check of numbers, `Device(check="numerics")`; see docs/how-to/numerics.md.

It runs without other checks. A result without anomalies costs one test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simgpu.checks.numerics import findings, matrix, stores, table, vector
from simgpu.checks.numerics.matrix import MatrixFacts
from simgpu.checks.numerics.stored_types import writes_memory
from simgpu.checks.numerics.vector import Look, Vector
from simgpu.checks.numerics.wanted import NumericsOptions
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.accesses import Access, LaneSums
from simgpu.machine.frame import Frame
from simgpu.machine.mode import Mode
from simgpu.machine.operands import OperandPlace, Plan

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker


class Numerics(Check):
    """Finds where NaN, infinities and losses first appear."""

    sums = True

    def __init__(self, wanted: NumericsOptions) -> None:
        self.wanted = wanted

    @property
    def settings(self) -> NumericsOptions:
        return self.wanted

    def concerns(self, inst: Instruction) -> bool:
        spec = inst.spec
        if spec.kind == "matrix":
            return matrix.row_of(inst).cd_type != "i32"
        return writes_memory(inst) if spec.memory is not None else vector.plan_vector(inst, self.wanted) is not None

    def plan(self, inst: Instruction, plan: Plan) -> MatrixFacts | Vector | OperandPlace | None:
        if inst.spec.kind == "matrix":
            return matrix.plan_matrix(inst, plan.operands)
        if inst.spec.memory is not None:
            found: OperandPlace = plan.operands["vdata"]
            return found
        plan.note(self.wanted.denormals, self.wanted.cancellation)
        return vector.plan_vector(inst, self.wanted)

    def on_result(self, frame: Frame, mode: Mode, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        Look(frame, frame.planned[Numerics]).on_result(mode, arguments, results)

    def on_flush(self, frame: Frame, value: Any, tiny: Any) -> None:
        if self.wanted.denormals:
            Look(frame, frame.planned[Numerics]).on_flush(value, tiny)

    def on_sums(self, frame: Frame, sums: LaneSums) -> None:
        matrix.emit_sum_notes(frame, frame.planned[Numerics], sums)

    def access(self, frame: Frame, access: Access) -> None:
        if access.space == "global" and access.writes and access.lanes is not None:
            stores.emit(frame, access, frame.planned[Numerics])

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        types = launch.checks.setdefault("numerics", stores.types_of(launch.program))
        table.prepare(worker, launch.program.count + 1, stores.table_of(launch.program, types))

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        return findings.findings(launch, workers, self.wanted)
