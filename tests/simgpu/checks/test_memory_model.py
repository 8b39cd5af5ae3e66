"""Order by release and acquire in checked mode: ordered accesses are silent, unordered ones are found."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import simgpu
from tests.support.forks import hip
from tests.support.hip_compiler import PROGRAMS, device_code, program
from tests.support.race_findings import check, one

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
BLOCKS = 8
ORDERED = (
    "last_block", "stream_k", "split_k", "grid_barrier", "ticket_lock", "spin_lock", "persistent", "look_back", "hand_over",
    "fence_each", "volatile_flag", "merge_tree", "work_queue",
)  # fmt: skip


@functools.cache
def built(name: str, target: str, *changes: tuple[str, str]) -> bytes:
    """Compiles a HIP program's kernels, after replacing some of its text, once each."""
    text = (PROGRAMS / f"{name}.hip").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, f"{name}.hip")
        source.write_text(text)
        Path(folder, "api.h").write_text((PROGRAMS / "api.h").read_text())
        return device_code(source, target, Path(folder))


def ordered(kernel: str, target: str, threads: int = 1, *changes: tuple[str, str]) -> tuple[list[simgpu.Finding], np.ndarray]:
    """Returns findings of a kernel of ordered.hip, and its stores in `out`."""
    values = np.arange(256 * BLOCKS, dtype="u4") % 97
    gpu = simgpu.Device(target, check=True, threads=threads, max_instructions=20_000_000)
    buffers = [gpu.upload(values), *(gpu.upload(np.zeros_like(values)) for _ in range(3))]
    run = gpu.load(built("ordered", target, *changes))[kernel].launch(grid=BLOCKS, block=256, args=buffers)
    return run.findings, buffers[2].download("u4")


def expected(kernel: str) -> np.ndarray:
    """Computes by numpy what a kernel of ordered.hip stores first in `out`."""
    rows = (np.arange(256 * BLOCKS, dtype="u4") % 97).reshape(BLOCKS, 256)
    if kernel == "grid_barrier":
        mine = rows.copy()
        for turn in range(4):
            mine = mine + np.roll(mine + np.uint32(turn), -1, axis=0)
        return mine.ravel()
    return {
        "last_block": rows.sum(dtype="u4", keepdims=True).ravel(),
        "stream_k": rows[0] + rows[1],
        "split_k": rows.sum(axis=0, dtype="u4"),
        "ticket_lock": 3 * rows.sum(axis=0, dtype="u4"),
        "spin_lock": rows.sum(axis=0, dtype="u4"),
        "persistent": 3 * rows.ravel(),
        "look_back": rows.ravel().cumsum(dtype="u4"),
        "hand_over": 5 * rows[0] + 15,
        "fence_each": rows.sum(axis=0, dtype="u4"),
        "volatile_flag": rows[1],
        "merge_tree": rows.sum(axis=0, dtype="u4"),
        "work_queue": (rows[0] + np.arange(6, dtype="u4")[:, None]).ravel(),
    }[kernel]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", ORDERED)
def test_what_the_model_orders_is_silent(kernel: str, threads: int, target: str) -> None:
    found, out = ordered(kernel, target, threads)
    assert [str(finding) for finding in found] == []
    want = expected(kernel)
    assert np.array_equal(out[: len(want)], want)


class Weakened(NamedTuple):
    """A kernel of ordered.hip, a replacement in it, and the kind of the finding."""

    kernel: str
    old: str
    new: str
    kind: str


RACE, STALE = "race", "stale-read"
MEET = "\n        __syncthreads();"
FENCE = "\n        fence();  // "
WEAKENED = {
    "the last block does not release": Weakened("last_block", f"= sums[0];{FENCE}releases", "= sums[0];", RACE),
    "the last block does not acquire": Weakened("last_block", f"== groups - 1;{FENCE}acquires", "== groups - 1;", STALE),
    "stream-K does not release": Weakened("stream_k", "1u, RELEASE);\n    } else", "1u, RELAXED);\n    } else", RACE),
    "stream-K does not acquire": Weakened("stream_k", "[group + 1], ACQUIRE)", "[group + 1], RELAXED)", STALE),
    "stream-K's threads do not meet before": Weakened("stream_k", f"= mine;{MEET}", "= mine;", RACE),
    "stream-K's threads do not meet behind": Weakened("stream_k", f") == 0);{MEET}\n        out", ") == 0);\n        out", RACE),
    "split-K only releases": Weakened("split_k", "ADD(count, 1u, BOTH)", "ADD(count, 1u, RELEASE)", STALE),
    "split-K only acquires": Weakened("split_k", "ADD(count, 1u, BOTH)", "ADD(count, 1u, ACQUIRE)", RACE),
    "the grid does not release": Weakened("grid_barrier", f"{FENCE}releases\n        uint old", "\n        uint old", RACE),
    "the grid does not acquire": Weakened("grid_barrier", f"s_sleep(1);{FENCE}acquires", "s_sleep(1);", STALE),
    "tickets do not acquire": Weakened("ticket_lock", "LOAD(&lock[1], ACQUIRE)", "LOAD(&lock[1], RELAXED)", STALE),
    "tickets do not release": Weakened("ticket_lock", "ADD(&lock[1], 1u, RELEASE)", "ADD(&lock[1], 1u, RELAXED)", RACE),
    "the lock does not acquire": Weakened("spin_lock", "&free, 1u, ACQUIRE", "&free, 1u, RELAXED", STALE),
    "the lock does not release": Weakened("spin_lock", "STORE(lock, 0u, RELEASE)", "STORE(lock, 0u, RELAXED)", RACE),
    "look-back does not acquire": Weakened("look_back", "LOAD(&flags[at], ACQUIRE)", "LOAD(&flags[at], RELAXED)", STALE),
    "look-back does not release": Weakened("look_back", "[group], 2u, RELEASE)", "[group], 2u, RELAXED)", RACE),
    "the hand-over does not release": Weakened("hand_over", "[0], round, RELEASE)", "[0], round, RELAXED)", RACE),
    "the hand-over does not acquire": Weakened("hand_over", "LOAD(&flags[0], ACQUIRE)", "LOAD(&flags[0], RELAXED)", STALE),
}


# By default, one weakening of each kernel: a release, then an acquire.
@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if number % 4 in (0, 3) else pytest.mark.exhaustive) for number, name in enumerate(WEAKENED)
])  # fmt: skip
def test_what_is_weakened_is_found(name: str, target: str) -> None:
    weak = WEAKENED[name]
    found, _ = ordered(weak.kernel, target, 1, (weak.old, weak.new))
    assert weak.kind in {finding.kind for finding in found}, [str(finding) for finding in found]


def unordered(kernel: str, target: str) -> list[simgpu.Finding]:
    """Returns findings of a kernel of unordered.hip."""
    gpu = simgpu.Device(target, check=True, threads=1)
    buffers = [gpu.upload(np.zeros(64, "u4")) for _ in range(3)]
    return list(gpu.load(built("unordered", target))[kernel].launch(grid=2, block=64, args=buffers).findings)


UNORDERED = {
    "relaxed": ("race", "release without vmcnt"), "narrow": ("race", "scope"), "published": ("race", "release without vmcnt"),
    "unacquired": ("stale-read", "scope agent"), "early": ("race", ""), "counted": ("race", "two writes"),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", UNORDERED)
def test_what_the_model_does_not_order_is_found_at_both_places(kernel: str, target: str) -> None:
    kind, said = UNORDERED[kernel]
    found = unordered(kernel, target)
    assert {finding.kind for finding in found} == {kind}, [str(finding) for finding in found]
    values = [finding for finding in found if "(value[" in finding.message]
    assert len(values) == 1
    assert all("unordered.hip:" in place for place in (values[0].source, values[0].other_source))
    if kernel != "narrow" or target in ("gfx942", "gfx950"):
        assert said in values[0].message


def test_the_finding_says_which_scopes_it_has_and_needs() -> None:
    (message,) = [finding.message for finding in unordered("narrow", "gfx942") if "(value[" in finding.message]
    assert message.count("has scope workgroup") == 1 and "need scope agent (__HIP_MEMORY_SCOPE_AGENT)" in message
    (message,) = [finding.message for finding in unordered("unacquired", "gfx942")]
    assert "buffer_inv sc1 needed after" in message and "__ATOMIC_ACQUIRE" in message
    (message,) = [finding.message for finding in unordered("unacquired", "gfx90a")]
    assert "buffer_wbinvl1_vol needed after" in message
    (message,) = [finding.message for finding in unordered("relaxed", "gfx942")]
    assert "buffer_wbl2 sc1 and s_waitcnt vmcnt(0)" in message


def test_programs_of_hip() -> None:
    right = hip("--target", "mi300x", "--check", program("ordered", "gfx942"))
    assert (right.returncode, right.stderr) == (0, ""), right.stderr
    # With two host threads, both may look for the other's access before either is recorded.
    wrong = hip("--target", "mi300x", "--threads", 1, "--check", program("unordered", "gfx942"))
    assert wrong.returncode == 1
    for kernel in UNORDERED:
        assert f"{kernel}+0x" in wrong.stderr or f" {kernel}(" in wrong.stderr, wrong.stderr


# -- one instruction at a time ------------------------------------------------------------------------

PASS_ON = """
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
s_cmp_eq_u32 s2, 0
s_cbranch_scc0 poll
global_store_dword v10, v11, s[4:5]
{back}
s_waitcnt vmcnt(0)  // back
global_store_dword v10, v11, s[6:7] {set}
s_branch done
poll:
s_sleep 1
global_load_dword v4, v10, s[6:7] {get}
s_waitcnt vmcnt(0)
v_cmp_eq_u32 vcc, 0, v4
s_cbranch_vccnz poll
{again}
global_load_dword v5, v10, s[4:5] {read}
done:
s_waitcnt vmcnt(0)
"""
NEW = {"back": "buffer_wbl2 sc1", "set": "sc1", "get": "sc1", "again": "buffer_inv sc1", "read": ""}
OLD = {"back": "", "set": "", "get": "glc", "again": "buffer_wbinvl1_vol", "read": ""}
KINDS = (RACE, STALE)


@pytest.mark.parametrize("target", TARGETS)
def test_each_instruction_of_a_release_and_an_acquire_is_needed(target: str) -> None:
    right = NEW if target in ("gfx942", "gfx950") else OLD

    def found(**changes: str) -> set[str]:
        lines = PASS_ON.format(**(right | changes))
        return {finding.kind for finding in check(lines, grid=2, block=64, target=target, kinds=KINDS)}

    assert found() == set()
    assert found(again="") == {"stale-read"}
    assert found(get="") >= {"race"}
    if right is OLD:
        return
    for set_, get in (("", "sc1"), ("sc0", "sc1"), ("sc1", "sc0"), ("sc0", "sc0")):
        assert "race" in found(set=set_, get=get), (set_, get)
    assert found(back="") == {"stale-read"} and found(back="buffer_wbl2 sc0") == {"stale-read"}
    assert found(again="buffer_inv sc0") == {"stale-read"}
    assert found(back="buffer_wbl2 sc0 sc1", set="sc0 sc1", get="sc0 sc1", again="buffer_inv sc0 sc1") == set()
    # A load past the caches needs no invalidate, but its value must still be written back.
    assert found(again="", read="sc1") == set()
    assert found(again="", read="sc1", back="") == {"stale-read"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_release_that_does_not_wait(target: str) -> None:
    right = NEW if target in ("gfx942", "gfx950") else OLD
    lines = PASS_ON.format(**right).replace("s_waitcnt vmcnt(0)  // back\n", "")
    racing = check(lines, grid=2, block=64, target=target, kinds=KINDS)
    found = one(racing, "race", "global_store_dword v10, v11, s[4:5]", "global_load_dword v5, v10, s[4:5]")
    assert "release without vmcnt" in found.message


SCALAR = """
s_cmp_eq_u32 s9, 0
s_cbranch_scc0 {other}
global_store_dword v10, v11, s[4:5]
s_waitcnt vmcnt(0)
meet:
{between}
s_load_dword s20, s[4:5], 0x0
s_waitcnt lgkmcnt(0)
done:
"""


@pytest.mark.parametrize("shared", [False, True])
def test_scalar_loads_of_what_was_stored(shared: bool) -> None:
    """Stores by the wave itself, or before a barrier by another one: the scalar cache does not see them."""

    def found(between: str) -> list[simgpu.Finding]:
        lines = SCALAR.format(other="meet" if shared else "done", between=("s_barrier\n" if shared else "") + between)
        return check(lines, block=128, kinds=KINDS)

    (stale,) = found("")
    assert stale.kind == STALE and "s_dcache_inv" in stale.message
    assert {stale.text, stale.other_text} == {"s_load_dword s20, s[4:5], 0x0", "global_store_dword v10, v11, s[4:5]"}
    assert found("s_dcache_inv") == []
