"""Other hosts: an older CPU's code gives the same bits, and AArch64 code needs nothing of x86 or a library."""

from __future__ import annotations

import functools
import io
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import pytest
from elftools.elf.elffile import ELFFile
from llvmlite import ir

from simgpu.alu.control import Control
from simgpu.engine.lowering.handlers import compile_handler, handler_of
from simgpu.hardware.isa import decode
from simgpu.machine import host as machine_host
from simgpu.machine import jit
from simgpu.machine.compiling.object_file import ModuleSource, object_code
from simgpu.machine.host import Host, ask, host
from simgpu.machine.mode import UP, Mode
from simgpu.machine.operands import Plan
from tests.simgpu.engine.test_refusals import instances
from tests.support.host_kernels import digests
from tests.support.places import PYTHON_PATH, ROOT

X86 = platform.machine() in ("x86_64", "AMD64")
AARCH64, LINUX64 = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"
COMMON = ["floats", "rounded up", "lds"]
# AVX2, FMA and F16C; that and AVX-VNNI; then SSE4.2 and none of these.
CPUS = {
    "haswell": [*COMMON, "gemm f16 gfx942", "gemm i8", "matrices"],
    "alderlake": ["gemm i8", "matrices"],
    "nehalem": [*COMMON, "gemm f64", "gemm i8"],
}
NEEDED = {"haswell": "avx2", "alderlake": "avxvnni"}


@pytest.mark.skipif(not X86, reason="CPU names of x86-64 hosts")
@pytest.mark.parametrize("cpu", CPUS)
def test_an_older_cpu_gives_the_same_bits(cpu: str) -> None:
    if cpu in NEEDED and not llvm.get_host_cpu_features().get(NEEDED[cpu]):
        pytest.skip(f"this host has no {NEEDED[cpu]}")
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "SIMGPU_HOST_CPU": cpu}
    environment.pop("SIMGPU_HOST_FEATURES", None)
    script = str(ROOT / "tests" / "support" / "host_kernels.py")
    done = subprocess.run([sys.executable, script, *CPUS[cpu]], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == digests(CPUS[cpu])


class Elsewhere:
    """A stand-in for a compiler: collects code for another machine and does not load it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.code: dict[str, tuple[str, bytes]] = {}  # IR and object file by handler's key

    def address(self, key: str, build: Callable[[ir.Module, str], None]) -> int:
        if key not in self.code:
            module = ir.Module(name="handler")
            module.triple, module.data_layout = self.host.triple, self.host.data_layout
            build(module, "handler")
            self.code[key] = str(module), object_code(self.host.machine, ModuleSource(str(module)))
        return 1

    def undefined(self) -> set[str]:
        """Returns symbols that the handlers would ask a library for."""
        names = set()
        for _, data in self.code.values():
            table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
            names |= {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}
        return names - {""}


def called_name(compiler: jit.Compiler, key: str) -> str:
    """Replaces `Compiler.name`, which would make the function's IR for this machine's compiler."""
    return f"called {key}"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Elsewhere]]:
    """Makes a compiler for a triple and a CPU; handlers are then built for it."""

    def make(triple: str, cpu: str) -> Elsewhere:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        monkeypatch.setattr(machine_host, "ask", functools.partial(ask, triple, cpu))
        monkeypatch.setattr(machine_host, "_kept_name", lambda: "")
        monkeypatch.setattr(jit.Compiler, "name", called_name)
        host.cache_clear()
        return Elsewhere(host())

    yield make
    monkeypatch.undo()
    host.cache_clear()


# A handler of each kind; others take seconds to compile as vectors of four.
MNEMONICS = frozenset(
    "v_fma_f32 v_fma_f16 v_fma_f64 v_cvt_f16_f32 v_cvt_f32_f16 v_exp_f32 v_sqrt_f32 v_cvt_pk_fp8_f32 v_pk_fma_f16 "
    "v_readlane_b32 v_cmp_lt_f32 v_div_scale_f32 v_mul_hi_u32 s_add_u32 s_load_dwordx4 s_waitcnt s_setreg_b32 s_setpc_b64 "
    "s_cbranch_scc0 global_load_dwordx4 global_store_dwordx2 global_atomic_add global_atomic_add_f32 buffer_load_dword "
    "flat_load_dword scratch_load_dword ds_read_b128 ds_write_b64 ds_bpermute_b32 ds_add_rtn_u32 v_mfma_i32_16x16x32_i8 "
    "v_mfma_f64_4x4x4_4b_f64".split()
)


def build(where: Elsewhere, mode: Mode) -> set[str]:
    """Builds a handler of each kind and returns their mnemonics."""
    found = set()
    for inst in instances("gfx942"):
        if inst.mnemonic not in MNEMONICS:
            continue
        found.add(inst.mnemonic)
        if inst.spec.kind == "control":
            plan = Plan(inst)
            compile_handler(inst, plan, Control(inst, plan).emit, where)  # type: ignore[arg-type]
        else:
            handler_of(inst, mode, where)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("triple", "cpu", "machine", "mode", "extensions"), [
    (AARCH64, "generic", "EM_AARCH64", Mode(), set()),
    (LINUX64, "haswell", "EM_X86_64", Mode(round32=UP, round16_64=UP), {"avx2"}),
], ids=["aarch64", "haswell"])  # fmt: skip
def test_handlers_need_no_library(
    triple: str, cpu: str, machine: str, mode: Mode, extensions: set[str], elsewhere: Callable[[str, str], Elsewhere]
) -> None:
    """Handlers call only the host's intrinsics; on Haswell they round upward, where LLVM rejects some conversions."""
    where = elsewhere(triple, cpu)
    assert build(where, mode) == MNEMONICS
    assert where.undefined() <= {jit.compiler().name(key) for key in jit.CALLED}
    for text, data in where.code.values():
        assert set(re.findall(r"llvm\.x86\.(\w+)", text)) <= extensions
        assert ELFFile(io.BytesIO(data)).header["e_machine"] == machine


def test_abilities_are_those_of_the_cpu() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    able = {}
    for cpu in ("nehalem", "ivybridge", "haswell", "alderlake", "knl", "x86-64-v4", "znver4"):
        found = ask(LINUX64, cpu)
        able[cpu] = (found.has_wide_masks, found.word_lanes, found.dots_bytes, found.converts_half)
    assert able == {
        "nehalem": (False, 0, False, False), "ivybridge": (False, 0, False, True), "haswell": (False, 16, False, True),
        "alderlake": (False, 16, True, True), "knl": (True, 16, False, True), "x86-64-v4": (True, 32, False, True),
        "znver4": (True, 32, True, True),
    }  # fmt: skip
    less = ask(LINUX64, "haswell", "-f16c")
    assert not less.converts_half
    arm = ask(AARCH64, "generic")
    assert (arm.has_wide_masks, arm.word_lanes, arm.dots_bytes, arm.converts_half) == (False, 0, False, True)


def test_the_cpu_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_HOST_CPU", "generic")
    monkeypatch.delenv("SIMGPU_HOST_FEATURES", raising=False)
    named = ask()
    assert named.cpu == "generic"
    assert "avx512f" not in named.features
    monkeypatch.setenv("SIMGPU_HOST_FEATURES", "+crc32")
    assert "+crc32" in ask().features.split(",")
    monkeypatch.delenv("SIMGPU_HOST_CPU")
    assert ask().cpu == llvm.get_host_cpu_name()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Gives the process an empty cache, and makes it forget its host."""
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    host.cache_clear()
    yield tmp_path
    host.cache_clear()


@pytest.mark.skipif(not machine_host._kept_name(), reason="what LLVM says of this host is not kept")
def test_what_llvm_says_of_the_host_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(machine_host, "ask", lambda: asked.append(1) or ask())

    def again() -> Host:
        host.cache_clear()
        return host()

    assert again() == again() == ask() and len(asked) == 1
    for variable in machine_host.VARIABLES:
        monkeypatch.setenv(variable, "generic" if variable.endswith("CPU") else "+crc32")
        assert again() == again() == ask()
    assert len(asked) == 3 and len(list((folder / "hosts").glob("[!.]*"))) == 3
    name, kept = machine_host._kept_name(), machine_host.cache.Folder("hosts")
    for content in (b"", b"[]", b"{", b"\xff", b'{"cpu": "generic"}'):
        kept.store(name, content)
        assert again() == ask()
    for owner, changed, value in ((llvmlite, "__version__", "99"), (machine_host, "_processor", lambda: "another")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, changed, value)
            assert machine_host._kept_name() not in (name, "")


@pytest.mark.parametrize("missing", ["_processor", "_library"])
def test_a_host_that_cannot_be_told_apart_is_asked_each_time(
    missing: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_host, missing, lambda: None)
    assert host() == ask() and not (folder / "hosts").exists()


@pytest.mark.skipif(not X86 or platform.system() != "Linux", reason="LLVM loads all object files of this host")
def test_a_process_that_compiles_nothing_does_not_load_llvm(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.support.engine_kernel import execute\n"
        "execute('gfx942', 'v_add_u32 v1, 1, v0', ['v1'])\nprint('llvmlite.binding' in sys.modules)"
    )
    environment = {**os.environ, "SIMGPU_CACHE_DIR": str(tmp_path)}
    done = [
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert done == ["True\n", "False\n"]


def test_waiting_orders_memory_on_weakly_ordered_hosts(elsewhere: Callable[[str, str], Elsewhere]) -> None:
    """A wave of another thread that sees a flag sees earlier stores: AArch64 needs a barrier for that."""
    where = elsewhere(AARCH64, "generic")
    inst = decode((0xBF8C0000).to_bytes(4, "little"), 0, "gfx942")
    assert inst.mnemonic == "s_waitcnt"
    plan = Plan(inst)
    compile_handler(inst, plan, Control(inst, plan).emit, where)  # type: ignore[arg-type]
    ((text, _),) = where.code.values()
    assert "dmb\tish" in where.host.machine.emit_assembly(llvm.parse_assembly(text))
