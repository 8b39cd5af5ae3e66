"""Declared resources in checked mode: each broken descriptor gives its finding, its repaired twin none."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.engine.finding import Finding
from tests.support.kernels import KernelText, assemble


def check(target: str, lines: str, how: bool | str = True, **options: int) -> list[Finding]:
    gpu = simgpu.Device(target, check=how, threads=1)
    kernel = gpu.load(assemble(target, KernelText("k", lines, (), options)))["k"]
    return [f for f in kernel.launch(grid=1, block=64).findings if f.kind == "resource"]


def one(found: list[Finding], text: str, place: str) -> Finding:
    assert [(f.text, f.place, f.severity) for f in found] == [(text, place, "error")], [str(f) for f in found]
    return found[0]


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_vector_registers(target: str) -> None:
    """Granules are 4 registers on gfx908 and 8 after an accum_offset of 4 elsewhere."""
    unified = {} if target == "gfx908" else {"accum_offset": 16}
    lines, text = "v_mov_b32 v15, 0\nv_mov_b32 v16, 0", "v_mov_b32_e32 v16, 0"
    one(check(target, lines, next_free_vgpr=16, **unified), text, "v16")
    unified = {} if target == "gfx908" else {"accum_offset": 20}
    assert check(target, lines, next_free_vgpr=20, **unified) == []


def test_registers_of_code_that_did_not_run() -> None:
    """Counts what direct branches reach; the code of another kernel in the same object is not this one's."""
    lines = "s_cmp_eq_u32 s0, s0\ns_cbranch_scc1 past\nv_mov_b32 v16, 0\npast:"
    one(check("gfx908", lines, next_free_vgpr=16), "v_mov_b32_e32 v16, 0", "v16")
    assert check("gfx908", lines, next_free_vgpr=20) == []
    assert check("gfx908", "s_endpgm\nv_mov_b32 v16, 0", next_free_vgpr=16) == []


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_accumulators_behind_accum_offset(target: str) -> None:
    lines, text = "v_accvgpr_write_b32 a3, 0\nv_accvgpr_write_b32 a8, 0", "v_accvgpr_write_b32 a8, 0"
    found = one(check(target, lines, next_free_vgpr=40, accum_offset=32), text, "a8")
    assert "next_free_vgpr must be 41" in found.message
    assert check(target, lines, next_free_vgpr=41, accum_offset=32) == []


def test_accum_offset_too_low() -> None:
    lines = "v_mov_b32 v12, 0"
    found = one(check("gfx90a", lines, next_free_vgpr=32, accum_offset=8), "v_mov_b32_e32 v12, 0", "v12")
    assert "accum_offset must be 16" in found.message
    assert check("gfx90a", lines, next_free_vgpr=32, accum_offset=16) == []


def test_accumulators_of_gfx908() -> None:
    lines, text = "v_accvgpr_write_b32 a8, 0", "v_accvgpr_write_b32 a8, 0"
    one(check("gfx908", lines, next_free_vgpr=8), text, "a8")
    assert check("gfx908", lines, next_free_vgpr=9) == []


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_scalar_registers(target: str) -> None:
    lines = "s_mov_b32 s40, 0\nv_cmp_eq_u32 vcc, v0, v0"
    found = one(check(target, lines, next_free_sgpr=24), "s_mov_b32 s40, 0", "s40")
    assert "next_free_sgpr must be 41" in found.message
    assert check(target, lines, next_free_sgpr=41) == []


def test_what_is_not_reached_is_not_counted() -> None:
    assert check("gfx90a", "s_endpgm\nv_mov_b32 v99, 0", next_free_vgpr=16, accum_offset=16) == []


def test_waves_of_a_simd() -> None:
    """72 registers let 7 of 8 waves reside; a granule of 8 less lets all."""
    assert check("gfx90a", "s_nop 0", next_free_vgpr=72, accum_offset=72) == []
    (note,) = check("gfx90a", "s_nop 0", "performance", next_free_vgpr=72, accum_offset=72)
    assert note.severity == "note" and note.message.startswith("7 waves a SIMD")
    assert "8 VGPRs less would give 8" in note.message
    (note,) = check("gfx908", "s_nop 0", "performance", next_free_vgpr=25)
    assert note.message.startswith("9 waves a SIMD") and "4 VGPRs less would give 10" in note.message
    (note,) = check("gfx908", "s_nop 0", "performance", next_free_vgpr=24)
    assert note.message.startswith("10 waves a SIMD") and "less would" not in note.message
