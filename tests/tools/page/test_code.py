"""A kernel's instructions with their costs: against the run's own counters, a search of paths, the code's branches."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

from simgpu import Device, asm
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.checks.lint.registers import bits
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa.code.flow import successors
from simgpu.operators import Softmax, SoftmaxProblem, TiledComputation
from simgpu.timing.lines import lines
from simgpu.timing.perfetto import timeline
from simgpu.timing.predict import predict
from simgpu.timing.thread_trace import documents, stats
from simgpu.tools.cases.sources import compile
from simgpu.tools.page.code import code_document, listing_rows
from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.watching import WatchedLaunch, Watching
from simgpu.tools.tables.live_registers import live_registers, ranges
from simgpu.tools.tables.time_tables import time_text

TREES = (
    TiledComputation(40, 33, 70, target="mi300x", dtype="f16"),
    TiledComputation(17, 65, 9, target="mi100"),
    Softmax(SoftmaxProblem(5, 300), "mi210", "corrected"),
)


def _live(kernel: asm.EmittedKernel) -> tuple[list[LintStep], list[int]]:
    """Returns a kernel's decoded instructions, and the registers that are live after each."""
    code = CodeObject.parse(kernel.assemble())
    rows = [(pc, inst) for pc, inst, _ in listing_rows(code, code.kernels[kernel.name]) if inst is not None]
    steps = [LintStep(pc, inst) for pc, inst in rows]
    return steps, live_registers(steps, {pc: number for number, (pc, _) in enumerate(rows)})


def test_live_registers_by_a_search_of_paths() -> None:
    """Each register is followed forwards until it is read or overwritten; the analysis goes backwards to a fixed point."""
    steps, live = _live(asm.emit(TREES[1]))
    at = {step.pc: number for number, step in enumerate(steps)}
    following = [[at[pc] for pc in successors(step.inst, step.pc) if pc in at] for step in steps]
    assert sum(len(after) == 2 for after in following) >= 2  # it has branches
    every = 0
    for step in steps:
        every |= step.touched

    def is_read(number: int, register: int) -> bool:
        work, visited = list(following[number]), set()
        while work:
            if (here := work.pop()) in visited:
                continue
            visited.add(here)
            if steps[here].reads & register:
                return True
            if not steps[here].writes & register or "partial_write" in steps[here].effect.access.classes:
                work += following[here]
        return False

    registers = [1 << position for position in range(every.bit_length()) if every >> position & 1]
    for number in range(0, len(steps), 23):
        want = sum(register for register in registers if is_read(number, register))
        assert live[number] == want, steps[number].inst


def test_live_registers_follow_reads_writes_and_branches() -> None:
    k = KernelBuilder("live", "gfx908", 64)
    skip = k.new_label("skip")
    k.v_mov_b32(k.v[1], 0)
    k.v_mov_b32(k.v[2], 0)
    k.s_cbranch_scc1(skip)
    k.v_add_u32(k.v[1], k.v[1], k.v[3])
    k.label(skip)
    k.v_add_u32(k.v[4], k.v[1], k.v[2])
    k.buffer_store_dword(k.v[4], k.v[5], k.s[8:11], 0, offen=True)
    k.s_endpgm()
    live = [ranges(registers) for registers in _live(k.finish())[1]]
    assert live[0].startswith("v1,3,5 ") and live[1].startswith("v1-3,5 ")
    assert live[2].startswith("v1-3,5 ") and live[3].startswith("v1-2,5 ") and live[4].startswith("v4-5 ")
    assert live[0].endswith(" scc") and live[5] == live[6] == ""
    assert ranges(bits(["vcc", ("a", 3)])) == "a3 vcc"


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
    assert document["live"] == ["s0", "s0", "s0 scc", "s0", ""]


CALLS = """__device__ __attribute__((noinline)) float twice(const float *x, int i) { return 2.0f * x[i]; }
__device__ __attribute__((noinline)) float unused(float x) { return x + 1; }
__global__ void k(float *y, const float *x, int never) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    y[i] = never ? unused(x[i]) : twice(x, i) + twice(x, i ^ 1);
}"""


def test_functions_that_ran_follow_the_kernel() -> None:
    """Their rows are named, and all executions are shown, of a launch and of the modelled compute unit."""
    module = Device("mi300x", threads=1).load(compile(CALLS, "mi300x"))
    (kernel,) = module.values()
    call = {"grid": 4, "block": 64, "args": [module.device.zeros(256), module.device.zeros(256), 0]}
    run, timed = kernel.launch(**call), kernel.time(**call)
    rows = listing_rows(module.code, kernel.info)
    for document, executed in (
        (code_document(module.code, kernel.info, rows, run), run.instructions),
        (code_document(module.code, kernel.info, rows, timed=lines(timed)), timed.result.hits.sum()),
    ):
        columns = document["columns"]
        assert sum(columns["executions"]) == executed and not document["elsewhere"]
        assert columns["at"][: len(rows)] == [""] * len(rows) and columns["at"][len(rows)] == "twice+0x0"
        assert all(name.startswith("twice+") for name in columns["at"][len(rows) :])
    one = WatchedLaunch(kernel, call, timed=predict(timed.sampled, events=10_000)).look()
    assert len(launches_document([one])["kernels"][0]["waves"]["row"]) == timed.result.hits.sum()
    said = "\n".join(time_text("k", timed, len(columns["text"])))
    assert "for twice+0x" in said and "-0x" not in said and said.index(" 0x0 ") < said.index(" twice+0x0 ")


def test_timelines_name_functions_and_traces_have_addresses_of_the_code_object() -> None:
    """Symbols of the ELF file, which pyelftools reads, say where the function and the kernel are."""
    code = compile(CALLS, "mi300x")
    module = Device("mi300x", threads=1).load(code)
    (kernel,) = module.values()
    timed = kernel.time(4, 64, [module.device.zeros(256), module.device.zeros(256), 0], events=10_000)
    symbols = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab").iter_symbols()
    spans = {one.name: range(one["st_value"], one["st_value"] + one["st_size"]) for one in symbols}
    function, own = spans["_Z5twicePKfi"], spans["_Z1kPfPKfi"]
    assert function.start < own.start
    rows = documents("k", timed)["code.json"]["code"][1:]
    addresses = [row[5] for row in rows]
    assert {own.start, function.start} <= set(addresses) and all(one in own or one in function for one in addresses)
    assert [int(row["Vaddr"]) for row in csv.DictReader(io.StringIO(stats(timed)))] == addresses
    shown = {event["args"]["at"] for event in timeline([("k", timed)])["traceEvents"] if event["ph"] == "X"}
    offsets = {f"twice+{one - function.start:#x}" if one in function else f"{one - own.start:#x}" for one in addresses}
    assert shown == offsets


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
