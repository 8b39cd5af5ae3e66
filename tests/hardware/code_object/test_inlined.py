"""Inlined code is traced back to the calls that it came from."""

from __future__ import annotations

import pytest

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.debug import DebugInformation
from simgpu.hardware.isa import disassemble
from tests.support.clang import linked

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
def test_call_sites(dwarf: int) -> None:
    code = CodeObject.parse(linked(SOURCE, "-O2", f"-gdwarf-{dwarf}", target="gfx942"))
    kernel = code.kernels["k"]
    found = {}
    for offset, text in disassemble(code.read(kernel.entry, kernel.code_size), "gfx942"):
        address = kernel.entry + offset
        found[text.split()[0]] = [str(frame.line) for frame in code.debug.frames(address)]
    assert found["v_fma_f32"] == ["k.c:2", "k.c:5", "k.c:8"]
    assert found["v_mul_f32_e32"] == ["k.c:5", "k.c:8"]
    assert found["global_store_dword"] == ["k.c:8"]


def test_damaged_debug_information_counts_as_absent() -> None:
    debug = DebugInformation(b"\x7fELF, cut off", ["k"])
    assert debug.frames(0) == () and debug.parameters("k", 1) == ()
