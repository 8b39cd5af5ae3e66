"""Counts the host instructions of vector instructions' handlers, beside the fewest that LLVM needs for the same arithmetic.

    python -m simgpu.tools.benchmarks.host_instructions [--target mi300x] [--count 90] [--only TEXT] [--json]

The instructions are the commonest vector ALU instructions of kernels (`simgpu/engine/lowering/common.tsv`), with all lanes on
and ordinary numbers in the registers. The processor executes each handler step by step, and a signal handler counts its steps.
So other work does not change the counts. `least` is the body only: without EXEC, AMD's rule for NaNs and the jump to the next
handler, as straight code or as a loop, whichever is shorter. Linux on x86-64 only.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import platform
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.alu import valu
from simgpu.alu.valu import VectorEmitter
from simgpu.engine.lowering.ahead import CommonInstruction, table
from simgpu.engine.lowering.handlers import falling_through
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa import decode, text
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.targets import architecture
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import compiler
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan
from simgpu.machine.values import I32, I64, Builder
from simgpu.tools.shared import console

ONE, SEVEN = 0x3F800000, 7  # contents of vector and of scalar registers
# run(handler, wave, record) calls the handler with a trap after each instruction: bit 8 of RFLAGS [AMD64 Architecture
# Programmer's Manual, volume 2, 3.1.6].
RUN = bytes.fromhex(
    "53"  # push rbx, which aligns the stack
    "4889f8 4889f7 4889d6"  # mov rax, rdi; mov rdi, rsi; mov rsi, rdx
    "9c 48810c2400010000 9d"  # pushfq; or qword ptr [rsp], 0x100; popfq
    "ffd0"  # call rax
    "9c 48812424fffeffff 9d"  # pushfq; and qword ptr [rsp], ~0x100; popfq
    "5b c3"  # pop rbx; ret
)


@dataclass(frozen=True)
class HostCount:
    """Host instructions that one wave-instruction takes, and the fewest."""

    line: str
    executed: int
    least: int

    @property
    def ratio(self) -> float:
        return self.executed / self.least


class Steps:
    """Counts the host instructions of calls `function(wave, record)`."""

    def __init__(self) -> None:
        self._handler = compiler().address("count steps", _build_step)
        self._step: Any = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int)(self._handler)
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._code[: len(RUN)] = RUN
        run = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._run: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(run)
        self._return = compiler().address("a return", _build_return)
        self._wave = aligned_bytes(layout.WAVE_BYTES)
        self._context = aligned_bytes(layout.CTX_BYTES)
        self._nothing = self._steps(self._return, [], 1)

    def of(self, address: int, slots: list[int], dwords: int) -> int:
        """Returns the instructions of a handler at an address, with its record's slots."""
        return self._steps(address, slots, dwords) - self._nothing

    def _steps(self, address: int, slots: list[int], dwords: int) -> int:
        records = aligned_bytes(layout.RECORD * (1 + dwords)).view(np.uint32).reshape(-1, 16)
        records[0, 2 : 2 + len(slots)] = slots
        records[-1, :2].view(np.uint64)[0] = self._return
        self._wave[layout.SGPR : layout.SGPR + 512].view(np.uint32)[:] = SEVEN
        self._wave[layout.VGPR :].view(np.uint32)[: 512 * 64] = ONE
        self._wave[layout.CONTEXT : layout.CONTEXT + 8].view(np.uint64)[0] = self._context.ctypes.data
        self._wave[layout.SGPR + 4 * 126 : layout.SGPR + 4 * 128] = 0xFF  # EXEC
        with _trap_handler(self._handler):
            self._step(0)
            self._run(address, self._wave.ctypes.data, records.ctypes.data)
        return int(self._step(0))


def _build_step(module: ir.Module, name: str) -> None:
    """Makes i64 step(i32 signal): counts a call by a signal; for signal 0, returns the count and sets it to 0."""
    function = ir.Function(module, ir.FunctionType(I64, [I32]), name)
    count = ir.GlobalVariable(module, I64, f"{name} count")
    count.linkage, count.initializer = "internal", ir.Constant(I64, 0)
    build = Builder(function.append_basic_block())
    place = build.ptrtoint(count, I64).pointer()
    before = place.load(I64, 8)
    place.store(build.select(build.icmp_unsigned("==", function.args[0], ir.Constant(I32, 0)), ir.Constant(I64, 0), before + 1), 8)
    build.ret(before)


def _build_return(module: ir.Module, name: str) -> None:
    Frame(module, name).build.ret_void()


@contextmanager
def _trap_handler(handler: int) -> Iterator[None]:
    """Calls the host function at an address for SIGTRAP. Python's own handlers would run only between its instructions."""
    library: Any = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before = library.signal(signal.SIGTRAP, handler)
    try:
        yield
    finally:
        library.signal(signal.SIGTRAP, before)


class _Body(VectorEmitter):
    """Emits an instruction's arithmetic for waves with all lanes on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.writes_all, self.ops.fix_nan = True, False


def _body_builder(inst: Instruction, mode: Mode, groups: bool) -> tuple[Callable[[ir.Module, str], None], list[int]]:
    """Returns the emitter of an instruction's arithmetic, and its record's slots. groups: True for a loop."""
    plan = Plan(inst)
    places = valu.plan(inst, plan, mode)

    def build(module: ir.Module, name: str) -> None:
        frame = Frame(module, name, (), inst)

        def rows(*masks: Any) -> list[Any]:
            return [old | new for old, (_, new) in zip(masks, _Body(frame, inst, places, mode).emit(), strict=True)]

        zeros = [ir.Constant(I64, 0)] * (places.sdst is not None)
        for mask in frame.by_groups(rows, zeros) if groups else rows(*map(frame.value, zeros)):
            assert places.sdst is not None
            frame.store(mask, frame.operand(places.sdst.slot))
        frame.build.ret_void()

    return build, plan.slots


def host_counts(target: str, count: int, only: str = "") -> list[HostCount]:
    """Returns the counts of the target's commonest vector instructions whose lanes do not depend on each other."""
    steps, found, seen = Steps(), list[HostCount](), set[str]()
    for row in table():
        made = _instruction(row, target)
        if made is None or len(found) == count:
            continue
        inst, mode = made
        handler, slots = falling_through(inst, mode, ())
        line = text(inst)
        if handler.key in seen or only not in line:
            continue
        seen.add(handler.key)
        executed = steps.of(handler.address(compiler()), slots, inst.size // 4)
        least = min(_least(steps, inst, mode, handler.key, groups) for groups in (False, True))
        found.append(HostCount(line, executed, least))
    return found


def _instruction(row: CommonInstruction, target: str) -> tuple[Instruction, Mode] | None:
    try:
        inst = decode(row.code, 0, target)
    except SimError:
        return None
    mode = Mode.of_register(row.mode)
    states = {type_.state for type_ in inst.spec.results}
    apart = inst.spec.kind == "lane" and inst.spec.encoding.startswith("vop") and states <= {""} and inst.form != "dpp"
    return (inst, mode) if apart else None


def _least(steps: Steps, inst: Instruction, mode: Mode, key: str, groups: bool) -> int:
    build, slots = _body_builder(inst, mode, groups)
    return steps.of(compiler().address(f"body|{groups}|{key}", build), slots, inst.size // 4)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--count", type=int, default=90, help="instructions, the commonest first (default: 90)")
    parser.add_argument("--only", default="", help="instructions that contain this")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux":
        parser.error("needs Linux on x86-64, whose trap flag it uses")
    found = host_counts(architecture(options.target), options.count, options.only)
    if options.json:
        console.print_json([{**vars(one), "ratio": one.ratio} for one in found])
        return 0
    rows = [(one.line, one.executed, one.least, f"{one.ratio:.2f}") for one in sorted(found, key=lambda one: -one.ratio)]
    title = f"Host instructions a wave-instruction, {options.target}: {len(found)} commonest vector instructions"
    console.show(console.table(title, ("instruction", "executed", "least", "x"), rows, left=1))
    if found:
        console.show(f"median {statistics.median(one.ratio for one in found):.2f} times the least")
    return 0


if __name__ == "__main__":
    sys.exit(main())
