"""Compiled functions are kept by their IR: what determines machine code names it, and nothing else does."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import llvmlite
import pytest

from simgpu.engine.lowering.handlers import handler_of
from simgpu.hardware.isa import decode
from simgpu.machine import jit
from simgpu.machine.compiling import object_file
from simgpu.machine.compiling.batch import Batch
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.host import ask
from simgpu.machine.mode import Mode
from tests.simgpu.engine.test_refusals import instances
from tests.support.places import PYTHON_PATH


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], jit.Compiler]:
    """Returns a function that makes the compiler of other sources, as after an edit."""
    edits = iter(range(99))

    def make() -> jit.Compiler:
        digest = f"sources-{next(edits)}"
        monkeypatch.setattr(jit, "source_digest", lambda: digest)
        return jit.Compiler()

    return make


def returns(number: int) -> Callable[[str], ModuleSource]:
    return lambda name: ModuleSource(f'define i64 @"{name}"() {{\nret i64 {number}\n}}\n')


def calls(compiler: jit.Compiler, key: str) -> Callable[[str], ModuleSource]:
    def make(name: str) -> ModuleSource:
        called = compiler.name(key)
        return ModuleSource(f'declare i64 @"{called}"()\ndefine i64 @"{name}"() {{\n%x = call i64 @"{called}"()\nret i64 %x\n}}\n')

    return make


def result(address: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(address)())


def in_batch(compiler: jit.Compiler, key: str, make: Callable[[str], ModuleSource]) -> int:
    made = Batch(compiler)
    promised = made.address_of_source(key, make)
    made.finish()
    address = made.settle(promised)
    assert address is not None
    return address


@pytest.mark.parametrize("want", [jit.Compiler.address_of_source, in_batch], ids=["one", "batch"])
def test_an_edit_compiles_only_the_functions_whose_ir_changes(want: Callable[..., int], edit: Callable[[], jit.Compiler]) -> None:
    first = edit()
    assert [result(want(first, f"test {n}", returns(n))) for n in (1, 2)] == [1, 2] and (first.compiled, first.loaded) == (2, 0)
    second = edit()
    assert [result(want(second, f"test {n}", returns(m))) for n, m in ((1, 1), (2, 3))] == [1, 3]
    assert (second.compiled, second.loaded) == (1, 1)
    third = edit()  # the first function's edit is taken back
    assert [result(want(third, f"test {n}", returns(n))) for n in (1, 2)] == [1, 2] and (third.compiled, third.loaded) == (0, 2)


@pytest.mark.parametrize("want", [jit.Compiler.address_of_source, in_batch], ids=["one", "batch"])
def test_an_edit_of_a_callee_compiles_its_callers(
    want: Callable[..., int], edit: Callable[[], jit.Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, compiled in ((5, 2), (6, 2), (5, 0)):
        monkeypatch.setitem(jit.CALLED, "test called", returns(number))
        compiler = edit()
        assert result(want(compiler, "test caller", calls(compiler, "test called"))) == number
        assert compiler.compiled == compiled


def test_unchanged_sources_emit_no_ir() -> None:
    jit.Compiler().address_of_source("test", returns(4))

    def emit(name: str) -> ModuleSource:
        raise AssertionError

    assert result(jit.Compiler().address_of_source("test", emit)) == 4


def test_keys_of_one_source_share_a_function(folder: Path) -> None:
    compiler = jit.Compiler()
    first, second = (compiler.address_of_source(key, returns(4)) for key in ("test", "other"))
    assert first == second and compiler.compiled == 1 and result(second) == 4
    assert compiler.address_of_source("third", returns(5)) != first


def test_targets_share_a_handler_and_instructions_do_not(folder: Path) -> None:
    """Compiles v_mov_b32 for four targets, and v_accvgpr_mov_b32, which does the same in other registers."""
    compiler = jit.Compiler()

    def address(opcode: int, target: str) -> int:
        code = (0x7E000000 | 1 << 17 | opcode << 9 | 258).to_bytes(4, "little")  # VOP1, from register 2 to 1
        return handler_of(decode(code, 0, target), Mode(), compiler)[0]

    moves = {address(0x01, target) for target in ("gfx908", "gfx90a", "gfx942", "gfx950")}
    assert len(moves) == 1 == compiler.compiled
    assert address(0x52, "gfx942") not in moves and compiler.compiled == 2


def test_names_of_the_latest_sources_are_kept(
    folder: Path, edit: Callable[[], jit.Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkouts that share a cache do not make each other emit IR, and edits do not fill the disk."""
    monkeypatch.setattr(jit, "VERSIONS", 3)
    made = [edit() for _ in range(4)]
    for number, compiler in enumerate(made):
        compiler.named_source("test", returns(number))
    assert len(list((folder / "handler-names").glob("[!.]*"))) == 1
    for number, compiler in enumerate(made):
        monkeypatch.setattr(jit, "source_digest", lambda digest=compiler._sources: digest)
        assert jit.Compiler()._known_name("test") == (compiler.name("test") if number else None)


def test_a_name_that_is_no_name_is_found_anew(folder: Path) -> None:
    compiler = jit.Compiler()
    compiler.address_of_source("test", returns(4))
    (kept,) = [path.name for path in (folder / "handler-names").glob("[!.]*")]
    digest = compiler._sources.encode()
    for content in (b"", b"\xff" * 33, digest, digest + b" ../../etc/passwd", digest + b" h" + b"0" * 32):
        compiler._kept_names.store(kept, content)
        assert result(jit.Compiler().address_of_source("test", returns(4))) == 4


@pytest.mark.slow
def test_a_caller_whose_callee_no_source_makes_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would end the process if it loaded the caller."""
    before = jit.Compiler()
    monkeypatch.setitem(jit.CALLED, "test called", returns(5))
    before.address_of_source("test caller", calls(before, "test called"))
    monkeypatch.setitem(jit.CALLED, "test called", returns(6))
    (before.kept.path or Path()).joinpath("..", "handler-names", before._file_of_names("test called")).unlink()
    after = jit.Compiler()
    assert result(after.address_of_source("test caller", calls(after, "test called"))) == 6 and after.compiled == 2


def test_all_that_determines_machine_code_is_in_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ask("x86_64-unknown-linux-gnu", "znver4", "+avx512f")
    seen = [jit.machine_digest(machine)]
    assert jit.machine_digest(machine) == seen[0]
    for field in ("llvm", "triple", "cpu", "features"):
        seen.append(jit.machine_digest(dataclasses.replace(machine, **{field: "another"})))
    (tmp_path / "passes.py").write_text(Path(object_file.__file__).read_text() + "# an edit\n")
    for owner, name, value in (
        (llvmlite, "__version__", "99"), (object_file, "__file__", str(tmp_path / "passes.py")),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            seen.append(jit.machine_digest(machine))
    assert len(set(seen)) == len(seen) == 7
    compilers = []
    for digest in seen[:2]:
        monkeypatch.setattr(jit, "machine_digest", lambda host, digest=digest: digest)
        compilers.append(jit.Compiler())
        compilers[-1].named_source("test", returns(1))
    assert compilers[0].name("test") != compilers[1].name("test")


class Namer(jit.Compiler):
    """Names functions and compiles none."""

    def address_of_source(self, key: str, make: Callable[[str], ModuleSource]) -> int:
        self.named_source(key, make)
        return 1


def names() -> dict[str, str]:
    """Returns the names of each eightieth handler, plain and checked. Their IR has the names of the functions that they call."""
    from simgpu.checks.suite import NOTES

    compiler = Namer()
    for inst in list(instances("gfx942"))[::80]:
        if inst.spec.kind != "control":
            for checks in ((), NOTES):
                handler_of(inst, Mode(), compiler, checks)
    return compiler._names


@pytest.mark.slow
def test_another_process_makes_the_same_ir(folder: Path) -> None:
    """Compares with a process in which the order of sets differs."""
    program = "import json; from tests.simgpu.machine.test_jit import names; print(json.dumps(names()))"
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "PYTHONHASHSEED": "7", "SIMGPU_CACHE_DIR": str(folder / "other")}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout
    own = names()
    assert json.loads(other) == own and len(own) > 20
