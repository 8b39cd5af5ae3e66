"""Tgsplit mode, in which the waves of a workgroup may be on different CUs: LLVM's code for it is ordered, its other code is not."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import simgpu
from simgpu.hardware.code_object.code_object import CodeObject
from tests.support.clang import linked
from tests.support.race_findings import check

TARGETS = ("gfx90a", "gfx942", "gfx950")
SPLIT_BIT = 16  # ENABLE_TG_SPLIT of COMPUTE_PGM_RSRC3
SOURCE = """
#define KERNEL __attribute__((amdgpu_kernel)) void
#define WG __MEMORY_SCOPE_WRKGRP
#define GPU __MEMORY_SCOPE_DEVICE
typedef __attribute__((address_space(1))) int *ints;
static int item(void) { return __builtin_amdgcn_workitem_id_x(); }
static int lane(void) { return item() & 63; }
static void meet(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Wave 1 passes data to wave 0.
#define PASS(NAME, PUT, GET) \\
    KERNEL NAME(ints data, ints flag, ints out) { \\
        if (item() >= 64) { \\
            data[lane()] = lane() + 5; \\
            PUT; \\
        } else { \\
            GET; \\
            out[lane()] = data[lane()]; \\
        } \\
    }
#define STORE(ORDER, SCOPE) __scoped_atomic_store_n(flag, 1, ORDER, SCOPE)
#define SPIN(ORDER, SCOPE) while (!__scoped_atomic_load_n(flag, ORDER, SCOPE)) __builtin_amdgcn_s_sleep(1)
#define FENCE(ORDER) __builtin_amdgcn_fence(ORDER, "workgroup")
PASS(flags, STORE(__ATOMIC_RELEASE, WG), SPIN(__ATOMIC_ACQUIRE, WG))
PASS(fences, FENCE(__ATOMIC_RELEASE); STORE(__ATOMIC_RELAXED, WG), SPIN(__ATOMIC_RELAXED, WG); FENCE(__ATOMIC_ACQUIRE))
PASS(counts, __scoped_atomic_fetch_or(flag, 1, __ATOMIC_RELEASE, WG),
     while ((__scoped_atomic_fetch_add(flag, 2, __ATOMIC_ACQUIRE, WG) & 1) == 0) __builtin_amdgcn_s_sleep(1))
PASS(unreleased, STORE(__ATOMIC_RELAXED, WG), SPIN(__ATOMIC_ACQUIRE, WG))
PASS(unacquired, STORE(__ATOMIC_RELEASE, WG), SPIN(__ATOMIC_RELAXED, WG))

KERNEL barriers(ints data, ints flag, ints out) {
    for (int turn = 0; turn < 3; turn++) {
        data[item()] = item() + turn;
        meet();
        out[item()] = data[item() ^ 64];
        meet();
    }
}
// Workgroup 0 passes data to wave 0 of workgroup 1, which meets wave 1 there.
#define BEYOND(NAME, SCOPE) \\
    KERNEL NAME(ints data, ints flag, ints out) { \\
        if (__builtin_amdgcn_workgroup_id_x() == 0) { \\
            if (item() < 64) { \\
                data[lane()] = lane() + 5; \\
                STORE(__ATOMIC_RELEASE, GPU); \\
            } \\
            return; \\
        } \\
        if (item() < 64) SPIN(__ATOMIC_ACQUIRE, SCOPE); \\
        meet(); \\
        out[item()] = data[lane()]; \\
    }
BEYOND(beyond, GPU)
BEYOND(narrow, WG)
"""
KERNELS = ("flags", "fences", "counts", "barriers", "beyond")


@functools.cache
def built(target: str, how: str) -> bytes:
    """Returns the kernels. how: "plain", "split" for tgsplit mode, or "marked", which has it only in descriptors"""
    made = bytearray(linked(SOURCE, "-O2", *(("-mtgsplit",) if how == "split" else ()), target=target))
    if how == "marked":
        code = CodeObject.parse(bytes(made))
        for kernel in code.kernels.values():
            made[made.index(code.read(kernel.descriptor_address, 64)) + 0x2C + SPLIT_BIT // 8] |= 1 << SPLIT_BIT % 8
    return bytes(made)


def launched(kernel: str, target: str, how: str, **options: int) -> tuple[list[simgpu.Finding], np.ndarray]:
    """Returns the findings of a kernel, and its results."""
    gpu = simgpu.Device(target, threads=1, max_instructions=2_000_000, **(options or {"check": True}))  # type: ignore[arg-type]
    buffers = [gpu.upload(np.zeros(256, "i4")) for _ in range(3)]
    code = gpu.load(built(target, how))[kernel]
    assert code.info.descriptor.tg_split == (how != "plain")
    run = code.launch(grid=2 if kernel in ("beyond", "narrow") else 1, block=128, args=buffers)
    return list(run.findings), buffers[2].download("i4")


def expected(kernel: str) -> np.ndarray:
    """Returns what a kernel stores first."""
    items = np.arange(128)
    return {"barriers": (items ^ 64) + 2, "beyond": items % 64 + 5}.get(kernel, items[:64] + 5)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_llvms_code_for_split_workgroups_is_silent(kernel: str, target: str) -> None:
    found, out = launched(kernel, target, "split")
    assert [str(finding) for finding in found] == []
    want = expected(kernel)
    assert np.array_equal(out[: len(want)], want)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_llvms_other_code_is_reported_in_this_mode_only(kernel: str, target: str) -> None:
    found, _ = launched(kernel, target, "marked")
    assert found and {finding.kind for finding in found} <= {"race", "stale-read"}, [str(finding) for finding in found]
    if target != "gfx90a" or kernel not in ("flags", "fences"):  # there, an atomic load of workgroup scope looks like a plain one
        assert launched(kernel, target, "plain")[0] == []


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_weakened_is_reported_with_its_scope(target: str) -> None:
    inv = "buffer_wbinvl1_vol" if target == "gfx90a" else "buffer_inv sc0"
    for kernel, kind, said in (
        ("unreleased", "race", "s_waitcnt vmcnt(0) needed before the release, scope workgroup in tgsplit mode"),
        ("unacquired", "stale-read", f"{inv} needed after the acquire, scope workgroup in tgsplit mode"),
    ):
        (found,) = launched(kernel, target, "split")[0]
        assert found.kind == kind and said in found.message, str(found)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_an_invalidate_of_the_l1_orders_no_other_workgroup(target: str) -> None:
    found, _ = launched("narrow", target, "split")
    assert any("both need scope agent" in finding.message for finding in found)


MEET = """
v_lshlrev_b32 v2, 2, v0
v_xor_b32 v3, 0x100, v2
global_store_dword v2, v0, s[4:5]
{}
s_barrier
{}
global_load_dword v4, v3, s[4:5]
s_waitcnt vmcnt(0)
"""
WAIT, DROP = "s_waitcnt vmcnt(0)", "buffer_inv sc0"


@pytest.mark.parametrize("before, after, said", [
    (WAIT, DROP, ""), ("", DROP, "race: release without vmcnt"), (WAIT, "", "stale-read: buffer_inv sc0 needed"),
])  # fmt: skip
def test_a_barrier_orders_what_is_complete(before: str, after: str, said: str) -> None:
    def found(split: int) -> list[simgpu.Finding]:
        options = {"target": "gfx942", "block": 128, "lds": 0, "kinds": ("race", "stale-read"), "split": split}
        return check(MEET.format(before, after), **options)  # type: ignore[arg-type]

    assert found(0) == []
    kind, _, words = said.partition(": ")
    assert [(each.kind, words in each.message) for each in found(1)] == ([(kind, True)] if said else [])


def test_lds_is_reported() -> None:
    (found,) = check("s_nop 0", target="gfx942", lds=64, kinds=("resource",), split=1)
    assert found.severity == "error" and "64 bytes of LDS in tgsplit mode" in found.message
    assert check("s_nop 0", target="gfx942", lds=0, kinds=("resource",), split=1) == []
