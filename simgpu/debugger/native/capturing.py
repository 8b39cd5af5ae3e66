"""Captures a variable's registers in each wave at the variable's marks, until every wave has made enough visits."""

from __future__ import annotations

from typing import Any

from simgpu.debugger.native.clock import BASE, ORDINALS
from simgpu.debugger.native.points import STOPS, test_of, word
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.jit import Compiler
from simgpu.machine.layout import ROW
from simgpu.machine.values import I32, I64
from simgpu.machine.wave_frame import ROW32

# Own words of the point. BLOCKS, STRIDE: address of the waves' blocks, bytes from one to the next. WANTED: visits to keep. LEFT:
# address of the count of waves that are not done. RECORD, ENTRY: records of the mark and of the kernel's first instruction.
# VALUE, INDEX: offsets in the wave's state of the value's first row and of the index.
BLOCKS, STRIDE, WANTED, LEFT, RECORD, ENTRY, VALUE, INDEX = range(8)
# Offsets in a block: visits so far; instructions that the wave had retired; EXEC; the rows: the index if there is one, then the
# value's one or two. Each visit overwrites the previous one's.
VISITS, RETIRED, LANES_ON, ROWS = 0, 8, 16, 64


def capture_test(compiler: Compiler, rows: int, indexed: bool) -> int:
    """Returns the test that keeps a visit, and stops once no wave is left to make one. rows: of the value, 1 or 2."""

    def emit(frame: Frame) -> Any:
        build = frame.build
        block = (word(frame, BLOCKS) + frame.state(layout.WAVE_ID).zext(I64) * word(frame, STRIDE)).pointer()
        visits, left = block.load(I64, 8), word(frame, LEFT).pointer()
        with build.if_then(visits.signed < word(frame, WANTED)):
            ordinals = frame.context(ORDINALS).pointer()
            here, entry = (ordinals.at(word(frame, number) * 8).load(I32).zext(I64) for number in (RECORD, ENTRY))
            block.store(visits + 1, 8)
            block.at(RETIRED).store(frame.state(BASE, I64) + here - entry, 8)
            block.at(LANES_ON).store(frame.exec_bits(), 8)
            sources = [word(frame, INDEX)] * indexed + [word(frame, VALUE) + ROW * row for row in range(rows)]
            for number, offset in enumerate(sources):
                block.at(ROWS + ROW * number).store(frame.at(frame.wave, offset).load(ROW32, align=64), 4)
            with build.if_then(visits + 1 == word(frame, WANTED)):
                left.store(left.load(I64, 8) - 1, 8)
        return (left.load(I64, 8) == 0).zext(I64) * STOPS

    return compiler.address(f"debugger captured|{rows}|{indexed}", test_of(emit))
