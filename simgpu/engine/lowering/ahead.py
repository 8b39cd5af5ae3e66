"""Compiles the handlers of common instructions ahead of their first use, so that a new kernel finds most of its own in the cache.

`common.tsv` lists instructions of compilers' and our kernels, the commonest first: MODE, code, "turns" if the workgroup's other
waves may run after it, text. `tools/benchmarks/common_instructions.py` writes it. The first process that compiles a handler
starts another process, which compiles the rest of the table for the same target at the lowest priority and outlives it. There
is one such process at a time for a cache. `SIMGPU_AHEAD=0` turns it off.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import simgpu
from simgpu.alu.control import Control
from simgpu.engine.lowering.handlers import FIXED, Handler, falling_through
from simgpu.engine.workers import running
from simgpu.hardware import cache
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import jit
from simgpu.machine.compiling.batch import Batch
from simgpu.machine.compiling.helpers import hardware_threads
from simgpu.machine.jit import Compiler, pause_gc
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan

TABLE = Path(__file__).with_name("common.tsv")
TOGETHER = 64  # handlers whose IR is made before LLVM compiles them
PROGRAM = "from simgpu.engine.lowering.ahead import main; main()"


class CommonInstruction(NamedTuple):
    """A row of the table."""

    mode: int  # MODE register
    code: bytes
    turns: bool  # see `Handler`

    def handler(self, target: str) -> Handler | None:
        """Returns its handler on a target, None if the target does not have the instruction."""
        try:
            return plain_handler(decode(self.code, 0, target), Mode.of_register(self.mode), self.turns)
        except SimError:
            return None


def table() -> list[CommonInstruction]:
    """Returns the rows, the commonest instruction first.

    >>> table()[0].handler("gfx942").inst.mnemonic
    's_endpgm'
    """
    rows = (line.split("\t") for line in TABLE.read_text().splitlines())
    return [CommonInstruction(int(mode, 16), bytes.fromhex(code), turns == "turns") for mode, code, turns, _ in rows]


def plain_handler(inst: Instruction, mode: Mode, turns: bool) -> Handler:
    """Returns the handler that a program without checks uses for an instruction."""
    if inst.spec.kind != "control":
        return falling_through(inst, mode, (), turns)[0]
    plan = Plan(inst)
    return Handler(inst, plan, Control(inst, plan, turns).emit)


def common_handlers(target: str) -> list[Handler]:
    """Returns the handlers of the table's instructions that a target has."""
    return [handler for row in table() if (handler := row.handler(target)) is not None]


def compile_common(target: str, compiler: Compiler, background: bool = False, step: Callable[[], None] = lambda: None) -> None:
    """Compiles `common_handlers` and what every launch needs, and notes in the cache that they are there.

    background: True to use this process only, without helpers. step: called after each handler
    """
    handlers, batch = common_handlers(target), Batch(compiler, background)
    batch.address_of_source(running.LOOP, running.loop_source)
    for key, build in FIXED.items():
        batch.address(key, build)
    for first in range(0, len(handlers), TOGETHER):
        group = handlers[first : first + TOGETHER]
        with pause_gc():
            for handler in group:
                handler.address(batch)
            batch.finish()
        for _ in group:
            step()
    _folder().store(_note(target, compiler), b"")


def is_compiled(target: str, compiler: Compiler) -> bool:
    """True if the cache had all handlers of the table for a target."""
    return _folder().load(_note(target, compiler)) is not None


def begin(target: str, compiler: Compiler) -> None:
    """Starts the process in the background, unless the table's handlers are cached, or the process runs, or nobody wants it."""
    if os.environ.get(cache.AHEAD) != "0" and hasattr(os, "nice") and hardware_threads() > 1 and compiler.kept.path is not None:
        _begin_once(target, compiler)


@functools.cache
def _begin_once(target: str, compiler: Compiler) -> None:
    if is_compiled(target, compiler):
        return
    root = str(Path(simgpu.__file__).resolve().parents[1])  # the process does not import from the current folder
    environment = {**os.environ, cache.AHEAD: "0", "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), root])}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, target], env=environment, start_new_session=True, cwd=os.sep,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:  # the host starts no more processes
        return
    threading.Thread(target=process.wait, daemon=True).start()


def main() -> None:
    """Runs the process in the background."""
    os.nice(19)
    target = sys.argv[1]
    with _folder().made_once("process", wait=False) as alone:
        compiler = jit.compiler()
        if alone and not is_compiled(target, compiler):
            compile_common(target, compiler, background=True)


@functools.cache
def _folder() -> cache.Folder:
    return cache.Folder("ahead")


def _note(target: str, compiler: Compiler) -> str:
    """Returns the name of the cached note that the table's handlers are compiled, with this version and for this host."""
    about = target, jit.source_digest(), jit.machine_digest(compiler.host), hashlib.sha256(TABLE.read_bytes()).hexdigest()
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]
