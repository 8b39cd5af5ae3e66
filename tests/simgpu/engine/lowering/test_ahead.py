"""Handlers of common instructions are compiled ahead, and a program then finds them under the same keys."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from simgpu import Device, asm, operators
from simgpu.engine.lowering import ahead
from simgpu.engine.lowering.handlers import Handler
from simgpu.engine.lowering.turns import lets_others_on
from simgpu.engine.program import Program
from simgpu.hardware import cache
from simgpu.hardware.isa import text
from simgpu.hardware.targets import architectures
from simgpu.machine.jit import Compiler
from simgpu.machine.mode import Mode

TARGET = "gfx942"
ENDPGM = bytes.fromhex("000081bf")


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """An empty cache, and a compiler that uses it."""
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    ahead._folder.cache_clear()
    yield Compiler()
    ahead._folder.cache_clear()


def shorten(monkeypatch, count):
    """Leaves the table the first instructions that one handler each serves on TARGET, without jumps."""
    rows = [row for row in ahead.table() if (made := row.handler(TARGET)) and made.inst.spec.kind in ("lane", "scalar")][:count]
    assert len(rows) == count
    monkeypatch.setattr(ahead, "table", lambda: rows)
    return rows


@pytest.mark.parametrize("target", architectures())
def test_each_target_has_most_rows_and_each_row_once(target):
    keys = [handler.key for handler in ahead.common_handlers(target)]
    assert len(keys) > 500
    repeated = len(keys) - len(set(keys))
    assert repeated < 20, "rows of another target may decode to the same instruction here, but few do"


def test_each_row_is_an_instruction_of_some_target():
    for line, row in zip(ahead.TABLE.read_text().splitlines(), ahead.table(), strict=True):
        shown = set()
        for target in architectures():
            made = row.handler(target)
            shown |= {text(made.inst)} if made else set()
        assert line.split("\t")[3] in shown


def test_a_program_finds_what_was_compiled_ahead(compiler, monkeypatch):
    rows = shorten(monkeypatch, 12)
    ahead.compile_common(TARGET, compiler)
    assert compiler.compiled > 12 and ahead.is_compiled(TARGET, compiler)
    other = Compiler()
    for mode in {row.mode for row in rows}:
        code = b"".join(row.code for row in rows if row.mode == mode) + ENDPGM
        Program(code, 0, TARGET, Mode.of_register(mode), other).lower(0)
    assert other.compiled == 1, "only s_endpgm, which the shortened table lacks"


def test_keys_are_those_of_programs(monkeypatch):
    """An emitted GEMM has branches, waits with and without turns, LDS and vector memory."""
    emitted = asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x", dtype="f16"))
    used = set()
    monkeypatch.setattr(Handler, "address", lambda self, compiler, lean=False: used.add(self.key) or 0)
    kernel = Device("mi300x").load(emitted.assemble())[emitted.name]
    program = kernel.module.program(kernel.info, kernel.mode, True)
    program.lower((kernel.info.start + kernel.module.bias - program.base) // 4)
    mode = Mode.of_register(kernel.mode)
    made = set()
    for index, inst in program.instructions.items():
        turns = lets_others_on(inst, program._instructions_after(index, inst))
        made.add(ahead.plain_handler(inst, mode, turns).key)
    assert made == used and any(key.endswith("turns") for key in made)


def test_the_process_in_the_background_compiles_once(compiler, monkeypatch):
    shorten(monkeypatch, 3)
    niceness = []
    monkeypatch.setattr(os, "nice", niceness.append)
    monkeypatch.setattr(sys, "argv", ["", TARGET])
    monkeypatch.setattr(ahead.jit, "compiler", lambda: compiler)
    with ahead._folder().made_once("process"):
        ahead.main()  # another process is at work
    assert compiler.compiled == 0 and not ahead.is_compiled(TARGET, compiler)
    ahead.main()
    compiled = compiler.compiled
    assert compiled > 3 and ahead.is_compiled(TARGET, compiler) and not ahead.is_compiled("gfx90a", compiler)
    ahead.main()
    assert compiler.compiled == compiled and niceness == [19] * 3


@pytest.mark.parametrize("reason", ["wanted", "switched off", "compiled", "one core", "no cache"])
def test_when_the_process_in_the_background_starts(compiler, monkeypatch, reason):
    shorten(monkeypatch, 1)
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append(command) or FinishedProcess())
    monkeypatch.setattr(ahead, "hardware_threads", lambda: 1 if reason == "one core" else 2)
    monkeypatch.setenv(cache.AHEAD, "0" if reason == "switched off" else "1")
    if reason == "compiled":
        ahead._folder().store(ahead._note(TARGET, compiler), b"")
    if reason == "no cache":
        monkeypatch.setattr(compiler.kept, "_usable", False)
    for _ in range(2):
        ahead.begin(TARGET, compiler)
    assert [command[-1] for command in started] == [TARGET] * (reason == "wanted")


class FinishedProcess:
    """Acts as a process that has ended."""

    def wait(self):
        return 0
