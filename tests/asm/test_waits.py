"""Waits by rule: exact counts in straight lines, across branches and loops; nops by the tables."""

from __future__ import annotations

import random

import pytest

from simgpu import asm
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import RegisterFile
from simgpu.asm.builder.waits import Label, blocks_of, schedule
from simgpu.hardware.timing_rules.hazards import clashes, max_states
from simgpu.hardware.timing_rules.waits import VM
from simgpu.operators.gemm.tree import TiledComputation

v, s, a = (RegisterFile(letter, 256) for letter in "vsa")
RSRC = s[4:7]


def lines(k):
    """Returns the instructions of the text, without operands except for waits and nops."""
    k.s_endpgm()
    body = k.finish().text.split("kernel:\n", 1)[1].split(".Lkernel_end:")[0]
    words = [line.split(";")[0].split() for line in body.splitlines()]
    return [" ".join(w) if w[0] in ("s_waitcnt", "s_nop") else w[0] for w in words if w][:-1]


def builder(target="gfx908"):
    return KernelBuilder("kernel", target, 64)


def loads(k, count, first=10):
    for number in range(count):
        k.buffer_load_dword(v[first + number], v[1], RSRC, 0, offen=True)


def test_vmcnt_counts_what_was_issued_later():
    k = builder()
    loads(k, 3)
    k.v_mov_b32(v[2], v[10])
    k.v_mov_b32(v[2], v[12])
    k.v_mov_b32(v[2], v[11])
    assert lines(k)[3:] == ["s_waitcnt vmcnt(2)", "v_mov_b32", "s_waitcnt vmcnt(0)", "v_mov_b32", "v_mov_b32"]


def test_stores_count_on_vmcnt_but_are_not_waited_for():
    k = builder()
    loads(k, 1)
    k.buffer_store_dword(v[20], v[1], RSRC, 0, offen=True)
    k.v_mov_b32(v[20], 0)
    k.v_mov_b32(v[2], v[10])
    assert lines(k)[2:] == ["v_mov_b32", "s_waitcnt vmcnt(1)", "v_mov_b32"]


def test_overwriting_and_addressing_wait_too():
    k = builder()
    loads(k, 2)
    k.v_mov_b32(v[10], 0)
    k.buffer_store_dword(v[20], v[11], RSRC, 0, offen=True)
    assert lines(k)[2:] == ["s_waitcnt vmcnt(1)", "v_mov_b32", "s_waitcnt vmcnt(0)", "buffer_store_dword"]


def test_lds_returns_in_order_and_scalar_loads_do_not():
    k = builder()
    k.ds_read_b32(v[10], v[1])
    k.ds_read_b32(v[11], v[1], offset=4)
    k.v_mov_b32(v[2], v[10])
    k.s_load_dword(s[20], s[0:1], 0)
    k.v_mov_b32(v[2], v[11])
    k.s_mov_b32(s[21], s[20])
    assert lines(k)[2:] == [
        "s_waitcnt lgkmcnt(1)", "v_mov_b32", "s_load_dword", "s_waitcnt lgkmcnt(0)", "v_mov_b32", "s_mov_b32",
    ]  # fmt: skip


def test_counts_stop_at_what_the_field_holds():
    k = builder()
    loads(k, 70)
    k.v_mov_b32(v[2], v[10])
    for number in range(20):
        k.ds_read_b32(v[100 + number], v[1])
    k.v_mov_b32(v[2], v[100])
    waits = [line for line in lines(k) if line.startswith("s_waitcnt")]
    assert waits == ["s_waitcnt vmcnt(62)", "s_waitcnt lgkmcnt(14)"]  # the largest value waits for nothing


def test_a_barrier_waits_for_lds_only():
    k = builder()
    loads(k, 1)
    k.ds_write_b32(v[1], v[2])
    k.s_barrier()
    k.s_barrier()
    assert lines(k) == ["buffer_load_dword", "ds_write_b32", "s_waitcnt lgkmcnt(0)", "s_barrier", "s_barrier"]


def test_the_shorter_of_two_paths_decides():
    for before in (1, 2):
        k = builder()
        skip = k.new_label("skip")
        loads(k, before)
        k.s_cbranch_scc1(skip)
        loads(k, 2, first=20)
        k.label(skip)
        k.v_mov_b32(v[2], v[10])
        assert f"s_waitcnt vmcnt({before - 1})" in lines(k)


def test_a_back_edge_carries_what_is_in_flight():
    """In a software pipeline, the load of the last iteration is waited for with the next in flight."""
    k = builder()
    loads(k, 1)
    with k.loop("k", s[20]):
        k.v_mov_b32(v[30], v[10])
        loads(k, 1)
        loads(k, 3, first=40)
    text = lines(k)
    assert text[:4] == ["buffer_load_dword", ".Lkernel_k_0:", "s_waitcnt vmcnt(0)", "v_mov_b32"]
    k = builder()
    loads(k, 1)
    loads(k, 3, first=40)
    with k.loop("k", s[20]):
        k.v_mov_b32(v[30], v[10])
        loads(k, 1)
        loads(k, 3, first=40)
    assert lines(k)[5:7] == ["s_waitcnt vmcnt(3)", "v_mov_b32"]


@pytest.mark.parametrize(("target", "passes_states"), [("gfx908", 10), ("gfx90a", 11), ("gfx942", 10), ("gfx950", 10)])
def test_nops_before_reading_accumulators(target, passes_states):
    """Distances of v_mfma_f32_16x16x4f32 (8 passes) to a VALU read of its result (ISA facts, 4a)."""
    k = builder(target)
    k.v_mfma_f32_16x16x4f32(a[0:3], v[2], v[4], a[0:3])
    k.s_mov_b32(s[20], 0)
    k.v_accvgpr_read_b32(v[10], a[0])
    nops = [int(line.split()[1]) + 1 for line in lines(k) if line.startswith("s_nop")]
    assert sum(nops) == passes_states - 1


def test_nops_across_a_branch():
    k = builder()
    skip = k.new_label("skip")
    k.v_mov_b32(v[2], 1.0)
    k.s_cbranch_scc1(skip)
    k.v_mfma_f32_16x16x4f32(a[0:3], v[5], v[4], a[0:3])
    k.label(skip)
    k.v_accvgpr_read_b32(v[10], a[0])
    k.v_mfma_f32_16x16x4f32(a[4:7], v[2], v[4], a[4:7])
    text = lines(k)
    at = text.index(".Lkernel_skip_0:")
    assert text[at + 1] == "s_nop 7" and text[at + 2] == "s_nop 1"


# -- an independent check of whole kernels: walk them as a wave would -----------------------------


def walks(items, seed, steps):
    """Yields instructions along a random path, with each branch taken at random."""
    source = random.Random(seed)
    places = {item.name: i for i, item in enumerate(items) if isinstance(item, Label)}
    position = 0
    for _ in range(steps):
        while not isinstance(items[position], Instr):
            position += 1
        instr = items[position]
        yield instr
        control = instr.effect.control
        if control == "endpgm":
            return
        taken = control == "branch" or (control.startswith("cbranch") and source.random() < 0.5)
        position = places[instr.target] if taken else position + 1


def check_walk(path, target):
    """Asserts that no register is used before its load is known to be complete, and that no hazard distance is short."""
    queues = {"vm": [], "lgkm": []}
    window = []
    for instr in path:
        effect = instr.effect
        if effect.control == "waitcnt":
            for part in instr.operands[0].split(" & "):
                name, count = part.rstrip(")").split("(")
                queue = queues["vm" if name == "vmcnt" else "lgkm"]
                done = len(queue) - int(count)
                # Scalar loads return in any order: a count above 0 gives no information about them.
                if int(count) and any(kind == "smem" for kind, _ in queue):
                    done = 0
                del queue[: max(0, done)]
        pending = {reg for queue in queues.values() for _, regs in queue for reg in regs}
        assert not pending & effect.registers, f"{instr.where}: {instr.text()}"
        if effect.control == "barrier":
            assert not any(kind == "ds" for kind, _ in queues["lgkm"]), "LDS in flight at a barrier"
        if effect.queue is VM:
            queues["vm"].append(("vm", effect.pending))
        elif effect.queue is not None:
            queues["lgkm"].append((effect.queue.name, effect.pending))
        short = clashes(window, effect.access, target)
        assert not short, f"{instr.where}: {instr.text()}: {short}"
        window = [*window, effect.access][-max_states(target) - 1 :]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("trans", [(False, False), (True, True)])
@pytest.mark.parametrize("policy", ["corrected", "published"])
def test_emitted_kernels_wait_enough_on_random_paths(target, trans, policy, monkeypatch):
    seen = []
    original = schedule

    def recording(items, gfx):
        seen[:] = original(items, gfx)
        return list(seen)

    monkeypatch.setattr("simgpu.asm.builder.kernel.schedule", recording)
    trans_a, trans_b = trans
    asm.emit(TiledComputation(300, 300, 300, target, policy, trans_a=trans_a, trans_b=trans_b))
    assert len(blocks_of(seen).nodes) > 10
    for seed in range(12):
        check_walk(walks(seen, seed, 3000), target)
