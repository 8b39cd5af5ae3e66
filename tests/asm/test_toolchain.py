"""Assembling: the linked object, its cache, and errors in one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import simgpu
from simgpu import asm
from simgpu.asm.builder import toolchain
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import TargetError, ToolchainError

TEXT = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
  v_mov_b32 v0, {value}
  s_endpgm
.Lend:
.size kernel, .Lend-kernel
.section .rodata,"a"
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_next_free_vgpr 1
  .amdhsa_next_free_sgpr 8
  {accum}
.end_amdhsa_kernel
.data
.globl table
.p2align 3
table: .quad entry
entry: .quad 7
.amdgpu_metadata
---
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .args: []
    .group_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .kernarg_segment_size: 0
    .max_flat_workgroup_size: 64
    .private_segment_fixed_size: 0
    .sgpr_count: 8
    .vgpr_count: 1
    .wavefront_size: 64
amdhsa.version: [1, 2]
...
.end_amdgpu_metadata
"""


def text(target="gfx908", value=1):
    accum = "" if target == "gfx908" else ".amdhsa_accum_offset 4"
    return TEXT.format(target=target, value=value, accum=accum)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("SIMGPU_CLANG", raising=False)
    return tmp_path


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_a_linked_code_object_of_version_5(target):
    code = CodeObject.parse(asm.assemble(text(target), target))
    assert (code.target, code.version, list(code.kernels)) == (target, 5, ["kernel"])
    kernel = code.kernels["kernel"]
    line = code.source_line(kernel.start)
    assert line is not None and line.startswith("kernel.s:")
    assert "v_mov_b32" in text(target).splitlines()[int(line.split(":")[1]) - 1]


def test_relocations_of_a_linked_object():
    """`table` holds the loaded address of `entry`, for any address of the image."""
    code = CodeObject.parse(asm.assemble(text(), "gfx908"))
    place = code.symbols["table"].address
    for load_address in (None, 0x7F12_3456_7000):
        image, base = code.image(load_address)
        bias = 0 if load_address is None else load_address - base
        pointer = int.from_bytes(image[place - base :][:8], "little")
        assert pointer == place + 8 + bias
        assert int.from_bytes(image[pointer - bias - base :][:8], "little") == 7


def test_a_cache_hit_starts_no_process(monkeypatch, own_cache):
    first = asm.assemble(text(), "gfx908")
    other = asm.assemble(text(value=2), "gfx908")
    assert first != other
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a process was started"))
    assert asm.assemble(text(), "gfx908") == first
    assert len(list((own_cache / "objects").glob("[!.]*"))) == 2


def test_the_same_text_gives_the_same_bytes(tmp_path, monkeypatch):
    first = asm.assemble(text(), "gfx908")
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path / "other"))
    assert asm.assemble(text(), "gfx908") == first


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(blocked))
    assert asm.assemble(text(), "gfx908").startswith(b"\x7fELF")


def test_errors_name_the_line():
    with pytest.raises(ToolchainError, match=r"gfx908 assembly, line 8: .*: v_mov_b32 v0, v999") as caught:
        asm.assemble(text(value="v999"), "gfx908")
    assert "\n" not in str(caught.value)
    with pytest.raises(ToolchainError, match="gfx000"):
        asm.assemble(text(), "gfx000")


def test_no_clang_is_said_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain, "_installed_toolchains", lambda: iter(()))
    with pytest.raises(ToolchainError, match=r"ziglang wheel .* SIMGPU_CLANG"):
        asm.assemble(text(), "gfx908")
    monkeypatch.setenv("SIMGPU_CLANG", str(tmp_path / "clang"))
    with pytest.raises(ToolchainError, match=r"SIMGPU_CLANG=.*clang is no executable"):
        asm.assemble(text(), "gfx908")


def fake_tools(folder, targets):
    """Makes a clang that prints targets and otherwise runs the real one, and its ld.lld."""
    real = next(iter(toolchain._installed_toolchains()))
    folder.mkdir()
    for name, command in (("clang", real.clang), ("ld.lld", real.lld)):
        path = folder / name
        path.write_text(
            f'#!{sys.executable}\nimport os, sys\nif "--print-targets" in sys.argv:\n'
            f'    print("{targets}")\n    sys.exit()\n'
            f"os.execv({command[0]!r}, {list(command)!r} + sys.argv[1:])\n"
        )
        path.chmod(0o755)


def test_simgpu_clang_is_used_and_nothing_else(tmp_path, monkeypatch):
    fake_tools(tmp_path / "bin", "amdgcn")
    monkeypatch.setenv("SIMGPU_CLANG", str(tmp_path / "bin" / "clang"))
    (tool,) = toolchain.candidates()
    assert tool.clang[0] == str(tmp_path / "bin" / "clang")
    assert CodeObject.parse(asm.assemble(text(), "gfx908")).target == "gfx908"


def test_a_system_clang_without_amdgcn_is_passed_over(tmp_path, monkeypatch):
    fake_tools(tmp_path / "bin", "x86-64")
    host = toolchain.Toolchain((str(tmp_path / "bin" / "clang"),), ("ld.lld",), probe=True)
    monkeypatch.setattr(toolchain, "_search", lambda: iter((host,)))
    with pytest.raises(ToolchainError, match="no clang with the amdgcn target"):
        asm.assemble(text(), "gfx908")


def test_rocm_comes_before_the_wheel(tmp_path, monkeypatch):
    (tmp_path / "llvm").mkdir()
    fake_tools(tmp_path / "llvm" / "bin", "amdgcn")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert toolchain.candidates()[0].clang == (str(tmp_path / "llvm" / "bin" / "clang"),)
    assert os.access(toolchain.candidates()[0].lld[0], os.X_OK)


def test_boards_stand_for_their_architecture() -> None:
    """A board is accepted for any target, by the disassembler as well."""
    source = text("gfx942")
    assert asm.assemble(source, "MI300X") == asm.assemble(source, "gfx942")
    assert simgpu.disassemble(bytes.fromhex("000081bf"), "mi210") == [(0, "s_endpgm")]
    for wrong in (lambda: simgpu.disassemble(b"", "mi9"), lambda: asm.assemble(source, "mi9")):
        with pytest.raises(TargetError, match=r"unknown target 'mi9': use a board \(mi100"):
            wrong()
