"""Inlined code is traced back to the calls that it came from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa import disassemble

SOURCE = """static __attribute__((always_inline)) inline float inner(float x) {
  return x * x + 1.0f;
}
static __attribute__((always_inline)) inline float outer(float x) {
  return inner(x) * 3.0f;
}
__attribute__((amdgpu_kernel)) void k(__attribute__((address_space(1))) float *p) {
  p[0] = outer(p[1]);
}
"""


@pytest.mark.parametrize("dwarf", [4, 5])
def test_call_sites(tmp_path: Path, dwarf: int) -> None:
    (tmp_path / "inl.c").write_text(SOURCE)
    clang = ["clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942", "-O2", f"-gdwarf-{dwarf}", "-nogpulib", "-c", "inl.c"]
    for command in ([*clang, "-o", "inl.o"], ["ld.lld", "-shared", "inl.o", "-o", "inl.co"]):
        subprocess.run([sys.executable, "-m", "ziglang", *command], cwd=tmp_path, check=True)
    code = CodeObject.parse((tmp_path / "inl.co").read_bytes())
    kernel = code.kernels["k"]
    found = {}
    for offset, text in disassemble(code.read(kernel.entry, kernel.code_size), "gfx942"):
        address = kernel.entry + offset
        found[text.split()[0]] = [code.source_line(address), *(str(place) for place in code.call_sites(address))]
    assert found["v_fma_f32"] == ["inl.c:2", "inl.c:5", "inl.c:8"]
    assert found["v_mul_f32_e32"] == ["inl.c:5", "inl.c:8"]
    assert found["global_store_dword"] == ["inl.c:8"]


def test_damaged_debug_information_counts_as_absent() -> None:
    code = CodeObject("gfx942", "any", "any", 5, {}, {}, (), (), {}, b"\x7fELF, cut off")
    assert code.call_sites(0) == ()
