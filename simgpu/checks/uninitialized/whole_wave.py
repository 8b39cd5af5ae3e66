"""Handles loads from LDS and stores to it by all lanes: copies their shadows as plain handlers copy the data.

No copy is made if the registers and the bytes of LDS are all defined.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from llvmlite import ir

from simgpu.checks.uninitialized import flags, runtime, shadow_layout
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32, I64, IrValue
from simgpu.machine.wave_frame import ALL_LANES
from simgpu.memory import lds
from simgpu.memory.whole_wave import direct

WORD = ir.VectorType(I64, 8)


class LDSMove:
    """Copy of the shadow of a load or store for which `serves` is true."""

    @classmethod
    def serves(cls, inst: Instruction, places: dict[str, OperandPlace]) -> bool:
        """True if the instruction can be handled here when it serves all lanes."""
        memory = inst.spec.memory
        assert memory is not None
        known = memory.space == "ds" and memory.op in ("load", "store") and "addr" in places
        return known and not memory.transpose and memory.bits in direct.WIDTHS

    def __init__(self, frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
        self.frame = frame
        self.places = places
        self.data = [places[name] for name in ("vdst", "data0", "data1") if name in places]
        shadow = frame.state(layout.LDS_BASE, I64) + frame.context(shadow_layout.LDS_SHADOW)
        self.spans = lds.spans_of(frame, inst, places, shadow.pointer())

    def is_whole(self) -> IrValue:
        """Returns i1: true if all lanes are active and in bounds, at defined addresses."""
        known = ~self.frame.value(flags.any_undefined(self.frame, self.places["addr"]))
        some = (self.frame.exec_bits() == ALL_LANES) & known
        return self.frame.emit_and(some, lambda: functools.reduce(operator.and_, map(direct.all_in_bounds, self.spans)))

    def run(self, loaded: Callable[[OperandPlace], None]) -> None:
        """Emits the copy, for the case `is_whole`. loaded: emits code for a register that may have got undefined bits."""
        unknown = functools.reduce(operator.or_, (self.frame.value(flags.any_undefined(self.frame, place)) for place in self.data))
        idle = ~unknown
        for span in self.spans:
            idle = self.frame.emit_and(idle, functools.partial(direct.all_zero, span))
        with self.frame.build.if_then(~idle):
            if "vdst" in self.places:
                self._load(self.places["vdst"])
                loaded(self.places["vdst"])
            else:
                for span, place in zip(self.spans, self.data, strict=True):
                    self._store(span, place)

    def _rows(self, place: OperandPlace) -> IrValue:
        """Returns a pointer to the shadow rows of an operand's registers."""
        return self.frame.at(self.frame.at(self.frame.wave, shadow_layout.DELTA), self.frame.slot(place.slot))

    def _load(self, place: OperandPlace) -> None:
        rows = self._rows(place)
        direct.load(self.spans, rows)
        count = flags.registers_of(place)
        states: IrValue | None = None  # stored together: a later load of all would stall on separate stores
        for number in range(count):
            words = (rows.at(at).load(WORD, 64) for at in range(number * layout.ROW, (number + 1) * layout.ROW, 64))
            some = functools.reduce(operator.or_, words).bitcast(ir.IntType(512)) != 0
            mixed, defined = (ir.Constant(I32, state << 8 * number) for state in (shadow_layout.MIXED, shadow_layout.DEFINED))
            state = self.frame.value(self.frame.build.select(some, mixed, defined))
            states = state if states is None else states | state
        assert states is not None
        flags.flag_pointer(self.frame, place).store(states if count == 4 else states.trunc(ir.IntType(8 * count)), 1)

    def _store(self, span: direct.LaneSpan, place: OperandPlace) -> None:
        rows = self._rows(place)
        with self.frame.build.if_then(flags.never_written(self.frame, place), likely=False):
            for number in range(flags.registers_of(place)):
                runtime.fill_row.call(self.frame.build, self.frame.wave, rows.at(number * layout.ROW))
        direct.store(span, rows)
