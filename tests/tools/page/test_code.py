"""A kernel's instructions with their costs: against the run's own counters, the emitter's liveness, the code's branches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simgpu import Device, asm
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.liveness import live_registers, ranges
from simgpu.operators import Softmax, SoftmaxProblem, TiledComputation
from simgpu.tools.page.code import code_document, listing_rows
from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.watching import Watching

TREES = (
    TiledComputation(40, 33, 70, target="mi300x", dtype="f16"),
    TiledComputation(17, 65, 9, target="mi100"),
    Softmax(SoftmaxProblem(5, 300), "mi210", "corrected"),
)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: f"{type(tree).__name__}-{tree.descriptor.arch}")
def test_live_registers_are_the_emitters(tree: TiledComputation) -> None:
    """Both analyses go backwards over the same instructions: the emitter's over its items, ours over the decoded bytes."""
    kernel = asm.emit(tree)
    device = Device(tree.descriptor.name)
    module = device.load(kernel.assemble())
    for step in kernel.steps:
        info = module[step.name].info
        document = code_document(module.code, info, listing_rows(module.code, info))
        want = [ranges(live) for live in live_registers(step.items)]
        emitted = [item for item in step.items if isinstance(item, Instr)]
        assert len(document["live"]) == len(emitted)
        named = [" ".join(part for part in text.split() if part[0] in "vas" and part[1].isdigit()) for text in want]
        assert document["live"] == named


def test_columns_add_up_to_the_counters() -> None:
    tree = TREES[0]
    kernel, device, watching = asm.emit(tree), Device("mi300x"), Watching()
    rng = np.random.default_rng(3)
    p = tree.problem
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in ((p.m, p.k), (p.k, p.n))]
    buffers = [device.upload(array) for array in (*arrays, np.zeros((p.m, p.n), np.float32))]
    for entry, call in asm.Prepared(kernel, device).calls(*buffers):
        watching.launch(entry, **call)
    (one,) = watching.launches
    assert one.run is not None
    document = launches_document(watching.launches)["kernels"][0]
    columns, counters = document["code"]["columns"], one.run.counters
    assert sum(columns["executions"]) == one.run.instructions
    of_class = {name: 0 for name in columns["class"]}
    for name, times in zip(columns["class"], columns["executions"], strict=True):
        of_class[name] += times
    assert of_class == {name: counters[f"instructions_{name}"] for name in of_class}
    moved = ("global_read_bytes", "global_write_bytes", "lds_read_bytes", "lds_write_bytes", "scalar_read_bytes")
    assert sum(columns["bytes"]) == sum(counters[name] for name in moved)
    assert sum(int(np.bitwise_count(touched.read).sum()) for touched in one.touched) == counters["unique_read_bytes"]
    assert sum(int(np.bitwise_count(touched.written).sum()) for touched in one.touched) == counters["unique_write_bytes"]


def test_looking_leaves_memory_and_the_run_as_they_are() -> None:
    """C is read and written: if it were not restored, the second look at it would differ."""
    tree = TiledComputation(24, 24, 24, target="mi300x", dtype="f16", beta=1.0)
    results = []
    for watched in (False, True):
        device, watching = Device("mi300x"), Watching()
        rng = np.random.default_rng(3)
        arrays = [rng.standard_normal((24, 24)).astype(kind) for kind in (np.float16, np.float16, np.float32)]
        buffers = [device.upload(array) for array in arrays]
        for entry, call in asm.Prepared(asm.emit(tree), device).calls(*buffers):
            run = watching.launch(entry, **call) if watched else entry.launch(**call)
        results.append((run.instructions, dict(run.counters), buffers[2].download().tobytes()))
    assert results[0] == results[1]


def test_source_files_are_found_beside_the_kernel(tmp_path: Path) -> None:
    text = """.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
.text
.globl k
.p2align 8
.type k,@function
k:
  s_mov_b32 s0, 3
loop:
  s_sub_u32 s0, s0, 1
  s_cmp_lg_u32 s0, 0
  s_cbranch_scc1 loop
  s_endpgm
"""
    (tmp_path / "k.s").write_text(text + KERNEL)
    device = Device("gfx90a")
    module = device.load(asm.assemble(text + KERNEL, "gfx90a", "k.s"))
    run = module["k"].launch(grid=5, block=64)
    info = module["k"].info
    document = code_document(module.code, info, listing_rows(module.code, info), run, folders=[tmp_path])
    assert document["files"]["k.s"][6] == "  s_mov_b32 s0, 3"
    assert document["columns"]["executions"] == [5, 15, 15, 15, 5]
    assert document["jumps"] == [[3, 1]]
    assert [document["lines"][at] for at in document["columns"]["line"]] == ["k.s:7", "k.s:9", "k.s:10", "k.s:11", "k.s:12"]
    assert document["live"] == ["s0", "s0", "s0", "s0", ""]


KERNEL = """
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - {.name: k, .symbol: k.kd, .kernarg_segment_size: 0, .kernarg_segment_align: 8, .group_segment_fixed_size: 0,
     .private_segment_fixed_size: 0, .wavefront_size: 64, .sgpr_count: 8, .vgpr_count: 4, .max_flat_workgroup_size: 64}
...
.end_amdgpu_metadata
"""
