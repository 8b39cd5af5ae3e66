"""Notes on waits and nops that ask for more than is needed, and the twins of each that give none."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu import Finding, asm, operators
from tests.support.checked import assembled, findings, line_of

LOAD = "global_load_dword v{}, v60, s[4:5]"
STORE = "global_store_dword v60, v{}, s[6:7]"
ONE, TWO, THREE = (LOAD.format(n) for n in (1, 2, 3))
USE = "v_mov_b32 v9, v{}"
USE_1, USE_2, USE_3 = (USE.format(n) for n in (1, 2, 3))
LDS_ONE, LDS_TWO, LDS_STORE = "ds_read_b32 v1, v60", "ds_read_b32 v2, v60 offset:256", "ds_write_b32 v60, v60 offset:512"
SCALAR = "s_load_dword s20, s[4:5], 0x0"
ENDS = "s_endpgm"  # the kernel's own end waits for everything
EXEC = "v_cmpx_eq_u32 s[22:23], v60, v60"
DPP = "v_mov_b32_dpp v9, v60 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf"


def notes(target: str, lines: list[str], block: int = 64) -> list[Finding]:
    """Returns the notes on waits and nops of these lines, by the order of the code."""
    gpu = simgpu.Device(target.partition(":")[0], check="performance", threads=1)
    buffers = [gpu.upload(np.zeros(4096, np.uint32)) for _ in range(2)]
    run = gpu.load(assembled(target, lines))["k"].launch(grid=1, block=block, args=buffers)
    found = [f for f in run.findings if f.kind == "performance" and f.text.startswith(("s_waitcnt", "s_nop"))]
    first, last = (int(line_of(target, lines, index).partition(":")[2]) for index in (0, len(lines) - 1))
    return [f for f in found if first <= int(f.source.partition(":")[2]) <= last]


# Lines; the index of the line that gets the note; its replacement ("": none needed); the use and the operation that it names.
TOO_MUCH: dict[str, tuple[list[str], int, str, str]] = {
    "loads behind": ([ONE, TWO, THREE, "s_waitcnt vmcnt(0)", USE_1, "s_waitcnt vmcnt(1)", USE_2, "s_waitcnt vmcnt(0)", USE_3], 3,
                     "s_waitcnt vmcnt(2)", ONE),
    "the store behind": ([ONE, STORE.format(60), "s_waitcnt vmcnt(0)", USE_1], 2, "s_waitcnt vmcnt(1)", ONE),
    "one less": ([ONE, TWO, THREE, "s_waitcnt vmcnt(1)", USE_1, "s_waitcnt vmcnt(0)", USE_2, USE_3], 3, "s_waitcnt vmcnt(2)", ONE),
    "never used": ([ONE, "s_waitcnt vmcnt(0)", USE_2], 1, "", ""),
    "used behind a later wait": ([ONE, "s_waitcnt vmcnt(0)", USE_2, "s_waitcnt vmcnt(0)", USE_1], 1, "", ""),
    "a store at the end": ([STORE.format(60), "s_waitcnt vmcnt(0)"], 1, "", ""),
    "done by then": ([ONE, "s_waitcnt vmcnt(0)", USE_1, "s_waitcnt vmcnt(0)", USE_1], 3, "", ""),
    "LDS": ([LDS_ONE, LDS_TWO, "s_waitcnt lgkmcnt(0)", USE_1, "s_waitcnt lgkmcnt(0)", USE_2], 2, "s_waitcnt lgkmcnt(1)", LDS_ONE),
    "LDS behind scalar loads": ([LDS_ONE, SCALAR, LDS_TWO, "s_waitcnt lgkmcnt(0)", USE_1, "s_waitcnt lgkmcnt(0)",
                                 "v_mov_b32 v9, s20"], 3, "s_waitcnt lgkmcnt(1)", LDS_ONE),
    "one of two counters": ([LDS_ONE, TWO, "s_waitcnt vmcnt(0) lgkmcnt(0)", USE_1, "s_waitcnt vmcnt(0)", USE_2], 2,
                            "s_waitcnt lgkmcnt(0)", ""),
    "an LDS store in one wave": ([LDS_STORE, "s_waitcnt lgkmcnt(0)", "s_barrier"], 1, "", ""),
    "nop too long": ([EXEC, "s_nop 6", DPP], 1, "s_nop 4", ""),
    "nop without a hazard": ([USE_1, "s_nop 1", USE_1], 1, "", ""),
    "the second of two nops": ([EXEC, "s_nop 3", "s_nop 3", DPP], 2, "s_nop 0", ""),
    "nop and other instructions": ([EXEC, USE_1, USE_1, "s_nop 4", DPP], 3, "s_nop 2", ""),
}  # fmt: skip


@pytest.mark.parametrize("target", ["gfx90a:xnack-", "gfx942"])
@pytest.mark.parametrize("row", TOO_MUCH)
def test_each_kind(row: str, target: str) -> None:
    lines, at, instead, operation = TOO_MUCH[row]
    lines = [*lines, ENDS]
    (note,) = notes(target, lines)
    assert note.severity == "note"
    assert note.source == line_of(target, lines, at)
    assert note.message.startswith(f"{instead} would do: on all paths" if instead else "it can go: on all paths")
    if operation:
        operation_at = line_of(target, lines, lines.index(operation))
        used = next(i for i in range(at, len(lines)) if lines[i].startswith("v_mov_b32 v9, v"))
        assert note.other_source == operation_at and f"({line_of(target, lines, used)})" in note.message
    better = [*lines[:at], *([instead] if instead else []), *lines[at + 1 :]]
    assert notes(target, better) == []
    assert [f for f in findings(target, better) if f.severity == "error"] == []


NEEDED = {
    "a load that is used": [ONE, "s_waitcnt vmcnt(0)", USE_1],
    "a load that is overwritten": [ONE, "s_waitcnt vmcnt(0)", "v_mov_b32 v1, 0"],
    "LDS stores before a barrier": [LDS_STORE, "s_waitcnt lgkmcnt(0)", "s_barrier"],
    "stores before a barrier": [STORE.format(60), "s_waitcnt vmcnt(0)", "s_barrier"],
    "stores before an atomic": [STORE.format(60), "s_waitcnt vmcnt(0)", "global_atomic_add v60, v60, s[6:7] offset:2048"],
    "stores before a scalar load": [STORE.format(60), "s_waitcnt vmcnt(0)", SCALAR],
    "before a clock": [ONE, "s_waitcnt vmcnt(0)", "s_memtime s[22:23]"],
    "scalar loads out of order": [SCALAR, "s_load_dword s21, s[4:5], 0x4", "s_waitcnt lgkmcnt(0)", "v_mov_b32 v9, s20"],
    "an exact count": [ONE, TWO, "s_waitcnt vmcnt(1)", USE_1, "s_waitcnt vmcnt(0)", USE_2],
    "the nop that a hazard needs": [EXEC, "s_nop 4", DPP],
    "two nops": [EXEC, "s_nop 2", "s_nop 1", DPP],
}


@pytest.mark.parametrize("row", NEEDED)
def test_silence(row: str) -> None:
    assert notes("gfx942", [*NEEDED[row], ENDS], block=128) == []


def test_a_signal_by_a_plain_store() -> None:
    """gfx90a's atomic stores are plain ones; gfx942's have a bit."""
    lines = [STORE.format(60), "s_waitcnt vmcnt(0)", "global_store_dword v60, v60, s[6:7] offset:2048", ENDS]
    assert notes("gfx90a:xnack-", lines) == []
    assert len(notes("gfx942", lines)) == 1
    lines[2] += " sc1"
    assert notes("gfx942", lines) == []


LOOP = ["s_mov_b32 s30, 4", ONE, "loop:", TWO, "s_waitcnt vmcnt({})", USE_1, "s_waitcnt vmcnt(0)", USE_2, ONE,
        "s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0", "s_cbranch_scc1 loop", "s_waitcnt vmcnt(0)", USE_1, ENDS]  # fmt: skip


def test_a_loop() -> None:
    """A load of one turn is waited for in the next, where another load has followed it."""
    lines = [line.format(0) for line in LOOP]
    (note,) = notes("gfx942", lines)
    assert note.source == line_of("gfx942", lines, 4) and note.count == 4
    assert note.message.startswith("s_waitcnt vmcnt(1) would do: on all paths")
    assert notes("gfx942", [line.format(1) for line in LOOP]) == []


@pytest.mark.parametrize("skips", [0, 1])
def test_a_path_that_needs_it(skips: int) -> None:
    """Only the branch's other side needs the wait; one of the two launches never takes it."""
    lines = [f"s_cmp_eq_u32 s4, s{4 if skips else 5}", ONE, TWO, "s_waitcnt vmcnt(0)", USE_1, "s_cbranch_scc1 past", USE_2,
             "past:", ENDS]  # fmt: skip
    found = notes("gfx942", lines)
    assert len(found) == skips
    for note in found:
        assert note.message.startswith("s_waitcnt vmcnt(1) would do: on the paths that ran (1 branch always went one way), ")
        assert "v_mov_b32_e32 v9, v1" in note.message


def test_a_wait_that_a_hazard_needs_as_a_wait_state() -> None:
    lines = [EXEC, "s_nop 3", "s_waitcnt vmcnt(0)", DPP, ENDS]
    (note,) = notes("gfx942", lines)
    assert note.message.endswith("it is a wait state that a hazard needs: s_nop 0 in its place")
    assert notes("gfx942", [*lines[:2], "s_nop 0", *lines[3:]]) == []


def test_emitted_kernels_give_true_notes_only() -> None:
    """Doing in the emitted assembly as the notes say changes no result and brings no finding."""
    kernel = asm.emit(operators.TiledComputation(40, 40, 70, target="mi300x"))
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype("f4") for shape in ((40, 70), (70, 40)))
    gpu = simgpu.Device("mi300x", check="performance", threads=1)
    buffers = gpu.upload(a), gpu.upload(b), gpu.alloc(4 * 1600)
    found = [note for run in asm.launch(kernel, gpu, *buffers) for note in run.findings]
    assert [note for note in found if note.severity == "error"] == []
    lines = kernel.source.split("\n")
    wanted = buffers[2].download("f4", (40, 40))
    for note in found:
        if note.text.startswith(("s_waitcnt", "s_nop")):
            number = int(note.source.partition(":")[2].partition(" ")[0]) - 1
            instead = note.message.partition(" would do")[0] if " would do" in note.message else ""
            assert lines[number].split(";")[0].strip() == note.text
            lines[number] = "s_nop 0" if "s_nop 0 in its place" in note.message else instead
    module = gpu.load(asm.assemble("\n".join(lines), "gfx942"))
    c = gpu.alloc(4 * 1600)
    scratch = {name: gpu.alloc(nbytes) for name, nbytes in kernel.scratch}
    named = dict(zip(kernel.operands, (*buffers[:2], c), strict=True)) | scratch
    for step in kernel.steps:
        run = module[step.name].launch(grid=step.grid, block=step.block, args=step.bind(named))
        assert [f for f in run.findings if f.severity == "error" or f.text.startswith(("s_waitcnt", "s_nop"))] == []
    assert np.array_equal(c.download("f4", (40, 40)), wanted)
