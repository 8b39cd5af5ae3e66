"""Kernels of several devices: they run at the same time, and checked mode knows what orders their accesses."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.forks import hip
from tests.support.hip_compiler import PROGRAMS, compiled

AGENT = "-DSCOPE=__HIP_MEMORY_SCOPE_AGENT"
FENCE = '__builtin_amdgcn_fence(__ATOMIC_{}, "{}")'
RELAXED = "-DPUT=__ATOMIC_RELAXED", "-DSEE=__ATOMIC_RELAXED"


def fences(before: str, after: str) -> tuple[str, ...]:
    """Returns options of all_reduce.hip: relaxed flags with fences of these scopes, "" for none."""
    words = ("BEFORE", "RELEASE", before), ("AFTER", "ACQUIRE", after)
    return (*RELAXED, *(f"-D{name}={FENCE.format(order, scope)}" for name, order, scope in words if scope != "-"))


# clang 22 drops the wait after a write-back if no other access is outstanding (llvm #178316). A flag may then pass the write-back.
WAITED = (
    *RELAXED, f'-DBEFORE={FENCE.format("RELEASE", "")};asm volatile("s_waitcnt vmcnt(0)" ::: "memory")',
    f'-DAFTER={FENCE.format("ACQUIRE", "")}',
)  # fmt: skip


def past_caches(stored: int = 16, loaded: int = 16, data: int = 3) -> tuple[str, ...]:
    """Returns options of all_reduce.hip: buffer accesses with these cache bits, and relaxed flags after a wait. data: memory"""
    words = f"-DSTORED={stored}", f"-DLOADED={loaded}", f"-DDATA={data}"
    return (*RELAXED, *words, '-DBEFORE=asm volatile("s_waitcnt vmcnt(0)" ::: "memory")')


RIGHT = {
    "as written": (), "fences": fences("", ""), "fine-grained flags": ("-DFLAGS=1",), "uncached data": ("-DDATA=3",),
    "uncached data, fences": ("-DDATA=3", *fences("", "")),
}  # fmt: skip
# Options that weaken the program, and what checked mode says, by gfx90a and by gfx942.
WRONG = {
    "relaxed flags": (RELAXED, "stale-read", "stale-read"),
    "nothing is released": (("-DPUT=__ATOMIC_RELAXED",), "buffer_wbl2 and", "buffer_wbl2 sc0 sc1 and s_waitcnt vmcnt(0)"),
    "nothing is acquired": (("-DSEE=__ATOMIC_RELAXED",), "buffer_invl2", "buffer_inv sc0 sc1 needed after the acquire"),
    "no release fence": (fences("-", ""), "buffer_wbl2 and s_waitcnt vmcnt(0)", "buffer_wbl2 sc0 sc1 and s_waitcnt vmcnt(0)"),
    "no acquire fence": (fences("", "-"), "buffer_invl2", "buffer_inv sc0 sc1 needed after the acquire"),
    "flags of agent scope": ((AGENT,), "buffer_wbl2", "both need scope system (__HIP_MEMORY_SCOPE_SYSTEM)"),
    "a release fence of agent scope": (fences("agent", ""), "buffer_wbl2", "buffer_wbl2 sc0 sc1 and s_waitcnt vmcnt(0)"),
    "an acquire fence of agent scope": (fences("", "agent"), "buffer_invl2", "buffer_inv sc0 sc1 needed after the acquire"),
    "fences of agent scope, uncached data": (
        ("-DDATA=3", *fences("agent", "agent")), "buffer_wbl2", "buffer_wbl2 sc0 sc1 and s_waitcnt vmcnt(0)",
    ),
    "coarse-grained flags": (("-DFLAGS=0",), "coarse-grained memory", "coarse-grained memory"),
}  # fmt: skip


@cache
def built(target: str, options: tuple[str, ...]) -> Path:
    return compiled(PROGRAMS / "all_reduce.hip", target, options=options)


def run(target: str, devices: int, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return hip("--target", target, "--devices", devices, *words, built(target, options))


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.exhaustive), 8])
def test_kernels_of_several_devices_wait_for_each_other(devices: int) -> None:
    done = run("gfx942", devices)
    assert (done.stdout, done.stderr, done.returncode) == ("PASS\n", "", 0)


QUICK = ("gfx942", "as written", 4), ("gfx942", "flags of agent scope", 2), ("gfx90a", "coarse-grained flags", 2)


@pytest.mark.parametrize(
    "target, name, devices",
    [
        pytest.param(target, name, devices, marks=() if (target, name, devices) in QUICK else pytest.mark.exhaustive)
        for target in ("gfx90a", "gfx942", "gfx950")
        for names, counts in ((RIGHT, (2, 4, 8)), (WRONG, (2,)))
        for name in names
        for devices in counts
    ],
)
def test_checked_mode_reports_what_is_weakened_and_nothing_else(target: str, name: str, devices: int) -> None:
    options, *said = WRONG.get(name, (RIGHT.get(name, ()),))
    done = run(target, devices, "--check", options=options)
    if name in RIGHT:
        assert (done.stdout, done.stderr, done.returncode) == ("PASS\n", "", 0)
        return
    assert done.returncode == 1 and said[target != "gfx90a"] in done.stderr, done.stderr
    assert_places(done.stderr)


def assert_places(text: str) -> None:
    """Checks that findings name the lines that store and load the parts."""
    lines = (PROGRAMS / "all_reduce.hip").read_text().splitlines()
    for words in ("STORE_PART(ranks", "LOAD_PART(ranks"):
        (number,) = (at for at, line in enumerate(lines, 1) if words in line)
        assert f"all_reduce.hip:{number}" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("target", [pytest.param("gfx950", marks=pytest.mark.exhaustive), "gfx942"])
def test_buffer_accesses_past_the_caches(target: str) -> None:
    """They need a wait only, if their memory is fine-grained."""
    done = run(target, 2, "--check", options=past_caches())
    assert (done.stdout, done.stderr, done.returncode) == ("PASS\n", "", 0)
    back = "buffer_wbl2 sc0 sc1 and s_waitcnt vmcnt(0) needed before the release, scope system"
    for options, said in (
        (past_caches(stored=0), "the store has scope wavefront and may still be in another GPU's L2: " + back),
        (past_caches(loaded=0), "buffer_inv sc0 sc1 needed after the acquire, scope system"),
        (past_caches(data=0), back),
    ):
        done = run(target, 2, "--check", options=options)
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert_places(done.stderr)


@pytest.mark.slow
def test_weak_mode_has_an_l2_for_each_device() -> None:
    right = run("gfx942", 2, "--weak", "1:6", options=WAITED)
    assert (right.returncode, right.stderr) == (0, "") and "6 seeds, all with the right result" in right.stdout
    options, *_ = WRONG["an acquire fence of agent scope"]
    wrong = run("gfx942", 2, "--weak", "1:20", options=options)
    assert wrong.returncode == 1 and "the program ends with status 1" in wrong.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("more", [(), ("-DFLAGS=1",), ("-DDATA=3",)])
def test_right_programs_in_weak_mode_with_several_devices(more: tuple[str, ...], target: str) -> None:
    assert run(target, 2, "--weak", "1:60", options=WAITED + more).returncode == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["relaxed flags", "no acquire fence", "a release fence of agent scope"])
def test_weak_mode_with_several_devices(name: str, target: str) -> None:
    options, *_ = WRONG[name]
    assert run(target, 2, "--weak", "1:60", options=options).returncode == 1
