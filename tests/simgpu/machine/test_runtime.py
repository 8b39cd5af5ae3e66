"""Functions that handlers call by name: loaded with kept code, and dependent only on C's memory functions."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from llvmlite import ir

from simgpu.engine.lowering.handlers import handler_of, mnemonic_of
from simgpu.machine import jit
from simgpu.machine.compiling import object_file
from simgpu.machine.host import host
from simgpu.machine.mode import Mode
from simgpu.machine.runtime import part, words
from simgpu.machine.runtime.functions import Runtime
from simgpu.machine.values import I64
from tests.simgpu.engine.test_refusals import instances

MNEMONICS = {"v_add_f32", "ds_write_b64", "global_load_dwordx4", "s_load_dwordx4", "v_mfma_f64_4x4x4_4b_f64"}


def undefined(code: bytes) -> set[str]:
    """Returns symbols that an object file takes from others."""
    table = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab")
    return {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"} - {""}


@pytest.mark.slow
def test_a_kept_caller_loads_what_it_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))

    def thrice(x: int) -> int:
        return 3 * x

    triple = Runtime(thrice)
    monkeypatch.setitem(jit.CALLED, triple.key, triple.source)

    def caller(module: ir.Module, name: str) -> None:
        function = ir.Function(module, ir.FunctionType(I64, [I64]), name)
        build = ir.IRBuilder(function.append_basic_block())
        build.ret(triple.call(build, triple.call(build, function.args[0])))

    for kept in (False, True):
        compiler = jit.Compiler()
        address = compiler.address("caller", caller)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(5) == 45
        assert (compiler.compiled, compiler.loaded) == ((0, 2) if kept else (2, 0))


class Objects(jit.Compiler):
    """A compiler that keeps the object files that it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}

    def _load(self, key: str, code: bytes) -> int:
        self.objects[key] = code
        return super()._load(key, code)


def test_checked_handlers_need_runtime_functions_only() -> None:
    from simgpu.checks.suite import NOTES

    compiler = Objects()
    for inst in instances("gfx942"):
        if inst.mnemonic in MNEMONICS:
            handler_of(inst, Mode(), compiler, NOTES)
    handlers = {key: code for key, code in compiler.objects.items() if key not in jit.CALLED}
    called = {compiler.name(key): code for key, code in compiler.objects.items() if key in jit.CALLED}
    assert {mnemonic_of(key) for key in handlers} == MNEMONICS
    assert set().union(*(undefined(code) for code in handlers.values())) == set(called)
    assert set().union(*(undefined(code) for code in called.values())) <= {"memcpy", "memmove", "memset"}


@part
def joined(marks: np.ndarray) -> int:
    found = 0
    for i in range(marks.size):
        found |= marks[i]
    return found


def test_loops_over_arrays_become_vector_instructions() -> None:
    """Race checks depend on it for bitmaps, though LLVM gives such modules few passes."""

    def marked(address: int, count: int) -> int:
        return joined(words(address, count))

    source = Runtime(marked).source("marked")
    made = str(object_file.with_vectors(host().machine, source.text))
    assert " x i64>" in made and " x i64>" not in source.text
    held = np.array([1, 2, 4, 64] * 9, np.int64)
    address = jit.compiler().address_of_source("test joined", Runtime(marked).source)
    assert ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)(address)(held.ctypes.data, held.size) == 71
