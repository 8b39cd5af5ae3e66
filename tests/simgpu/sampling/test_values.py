"""Samples without the arithmetic on which no address or branch depends equal samples with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simgpu import Device, asm
from simgpu.checks.path_trace.check import PathTrace
from simgpu.engine.demand import demand_of
from simgpu.sampling import samples
from simgpu.timing.predict import SampledLaunch, predict
from tests.support.host_kernels import OPERATORS, prepared
from tests.support.timed_kernels import kernel_on_words

# Stores a sum with a product, 10 for 8 before, loads it as an address in units of 4 KiB, and loads from there.
ADDRESS_IN_MEMORY = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mov_b32 v1, 1.0
v_mov_b32 v2, 2.0
v_mov_b32 v3, 0
v_mov_b32 v4, 0x41000000
v_mov_b32 v5, 0
v_mov_b32 v6, 0
v_mov_b32 v7, 0
s_nop 1
v_mfma_f32_4x4x1f32 v[4:7], v1, v2, v[4:7]
s_nop 15
s_waitcnt lgkmcnt(0)
global_store_dword v3, v4, s[4:5]
s_waitcnt vmcnt(0)
global_load_dword v8, v3, s[4:5]
s_waitcnt vmcnt(0)
v_cvt_u32_f32 v8, v8
v_lshlrev_b32 v8, 12, v8
global_load_dword v9, v8, s[4:5]
s_waitcnt vmcnt(0)
"""
# The same, and a loop of as many passes as the loaded number says.
PASSES_IN_MEMORY = ADDRESS_IN_MEMORY + """
v_lshrrev_b32 v8, 12, v8
v_readfirstlane_b32 s6, v8
again:
s_sub_u32 s6, s6, 1
s_cmp_lg_u32 s6, 0
s_cbranch_scc1 again
"""


def arrays(one: SampledLaunch) -> list[Any]:
    """Returns all that a prediction reads of the traces."""
    traces = [*one.whole, *one.beginnings]
    named = ("steps", "starts", "accesses", "access_starts", "lines")
    return [[getattr(trace, name).tolist() for name in named] + [trace.complete, trace.group, trace.stretch] for trace in traces]


@pytest.mark.parametrize("name", ["gemm f16 gfx942", "gemm split", "conv2d", "attention"])
def test_the_modelled_time_is_that_with_all_arithmetic(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, kernel, work = prepared(name)
    found = []
    for values in (False, True):
        monkeypatch.setattr(samples, "PathTrace", lambda asked, values=values: PathTrace(values or asked))
        gpu = Device(target, threads=1)
        calls = asm.Prepared(kernel, gpu).calls(*(gpu.upload(array) for array in work.arrays))
        found.append([entry.time(**call).sampled for entry, call in calls])
    for left_out, whole in zip(*found, strict=True):
        assert arrays(left_out) == arrays(whole)
        assert predict(left_out).cycles == predict(whole).cycles


def test_products_of_emitted_kernels_are_left_out() -> None:
    """All but the products of queries and keys in fused attention, which branches on whether a maximum moves."""
    for name in set(OPERATORS) - {"softmax"}:
        target, kernel, work = prepared(name)
        gpu = Device(target, threads=1)
        entry, _ = asm.Prepared(kernel, gpu).calls(*(gpu.upload(array) for array in work.arrays))[0]
        program = entry.module.program(entry.info, 0, False)
        left_out = demand_of(program.code, program._decode, (entry.info.start + entry.module.bias - program.base) // 4).unneeded
        matrix = kernel.text.count("  v_mfma")
        assert len(left_out) == matrix // (2 if name.startswith("attention") else 1) > 0, name


@pytest.mark.parametrize("text", [ADDRESS_IN_MEMORY, PASSES_IN_MEMORY])
def test_an_address_that_went_through_memory_keeps_the_product(text: str) -> None:
    kernel, buffer = kernel_on_words(text, 1 << 16)
    one = kernel.time(4, 64, [buffer]).sampled
    run = kernel.launch(4, 64, [buffer])
    for trace in one.whole:
        _, stored, loaded, last = np.split(trace.lines, len(trace.lines))  # after that of the arguments
        assert stored == loaded and last - loaded == (10 << 12) // 64
    (trace,) = {len(trace) for trace in one.whole}
    assert 4 * trace == run.instructions


def test_passes_by_a_scalar_load_keep_the_product() -> None:
    stored = ADDRESS_IN_MEMORY.split("global_load_dword v8")[0]
    loop = PASSES_IN_MEMORY.split("v_readfirstlane_b32 s6, v8")[1]
    text = stored + "s_load_dword s6, s[4:5], 0x0 glc\ns_waitcnt lgkmcnt(0)\ns_lshr_b32 s6, s6, 20" + loop
    kernel, buffer = kernel_on_words(text, 1 << 16)
    run = kernel.launch(1, 64, [buffer])
    (trace,) = kernel.time(1, 64, [buffer]).sampled.whole
    assert len(trace) == run.instructions > 3 * (0x41200000 >> 20)
