"""Advice on kernels with a known best change: the first one is that change, and the changed kernel takes the predicted time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import simgpu
from simgpu.advice.barriers import unneeded_barriers
from simgpu.advice.counters import counters
from simgpu.advice.profile import Profile, profile, profile_launch
from simgpu.timing.predict import predict
from simgpu.timing.without import NOTHING, Without
from simgpu.tools.cases.sources import compile, load
from tests.support.slow_kernels import KERNELS, SlowKernel
from tests.support.timed_kernels import LOOP, kernel_on_words

# In the default run: of memory, computation, both, a shared line, and one more workgroup on a CU.
SAMPLE = ("stride", "division", "uniform", "one_address", "occupancy")


def launch(one: SlowKernel, text: str) -> tuple[Any, dict[str, Any]]:
    """Loads the kernel in `text` and returns it with the arguments of its launch."""
    module = load(text, "mi300x")
    (name,) = module
    arguments = [module.device.upload(given) if hasattr(given, "dtype") else given for given in one.arguments]
    return module[name], {"grid": one.grid, "block": one.block, "args": arguments}


def line_of(place: str, text: str) -> str:
    """Returns the source line that a place names."""
    return text.splitlines()[int(place.rpartition(":")[2]) - 1] if place else ""


def profiled(one: SlowKernel) -> Profile:
    kernel, call = launch(one, one.text)
    return profile_launch(kernel, **call)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.exhaustive]) for n in KERNELS])
def test_the_first_advice_is_the_known_change(name: str) -> None:
    one = KERNELS[name]
    found = profiled(one)
    first = found.advice[0]
    assert first.cause.kind == one.kind, [(each.cause.kind, each.gain) for each in found.advice]
    assert one.at in line_of(first.cause.place, one.text)
    kernel, call = launch(one, one.changed)
    before, after = found.prediction.seconds, kernel.time(**call).seconds
    assert after < before
    assert abs(first.seconds - after) <= one.near * before, (before, first.seconds, after)
    if not first.cause.bound:  # the order is that of the gains
        assert all(other.gain <= first.gain for other in found.advice if not other.cause.bound)


def test_a_bound_is_not_passed() -> None:
    """A chain of loads cannot become shorter than without the loads."""
    one = KERNELS["chase"]
    first = profiled(one).advice[0]
    kernel, call = launch(one, one.changed)
    assert first.cause.bound and first.seconds < kernel.time(**call).seconds


@pytest.mark.exhaustive
def test_only_barriers_that_order_nothing_are_called_unneeded() -> None:
    assert len(unneeded_barriers(*launch(KERNELS["barrier"], KERNELS["barrier"].text))) == 1
    assert unneeded_barriers(*launch(KERNELS["transpose"], KERNELS["transpose"].text)) == frozenset()


# Each lane reads the same bank, at one place or at two.
CONFLICTS = """
v_lshlrev_b32 v1, 7, v0
s_movk_i32 s6, 100
again:
ds_read_b32 v2, v1
{more}
s_waitcnt lgkmcnt(0)
s_sub_u32 s6, s6, 1
s_cmp_lg_u32 s6, 0
s_cbranch_scc1 again
"""


def test_all_places_of_bank_conflicts_are_named() -> None:
    for more, others in (("s_nop 0", ""), ("ds_read_b32 v3, v1 offset:4", "; also at kernel.s:14")):
        kernel, buffer = kernel_on_words(CONFLICTS.format(more=more), 256, group_segment_fixed_size=65536)
        found = profile_launch(kernel, grid=8, block=64, args=[buffer])
        (why,) = (one.cause.why for one in found.advice if one.cause.kind == "bank-conflict")
        assert why == f"64 clocks of LDS an access; without bank conflicts 2{others}"


def test_without_nothing_and_without_all() -> None:
    """Leaving out nothing changes nothing. Each cause left out only shortens the launch, and both together most."""
    kernel, buffer = kernel_on_words(LOOP, 256 * 2048)
    one = kernel.time(2048, 64, [buffer])
    loads = frozenset(n for n, inst in one.sampled.instructions.items() if inst.mnemonic.startswith("global_load"))
    waits = frozenset(n for n, inst in one.sampled.instructions.items() if inst.mnemonic.startswith("s_waitcnt"))
    assert predict(one.sampled, without=NOTHING).cycles == one.cycles
    instant, removed = Without(instant=loads), Without(removed=waits)
    times = [predict(one.sampled, without=each).cycles for each in (instant, removed, instant | removed)]
    assert max(times) < one.cycles and times[2] <= min(times)
    assert (instant | removed).numbers == loads | waits


def test_instructions_stand_for_lines_without_line_information() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 2048)
    found = profile(kernel.time(2048, 64, [buffer]))
    assert found.lines[0].place.partition(" ")[2].startswith("s_waitcnt") and not found.lines[0].known
    assert found.advice and "0x" in found.advice[0].cause.why


def test_counters_count_what_the_launch_executes() -> None:
    kernel, buffer = kernel_on_words(LOOP, 256 * 608)
    one, run = kernel.time(608, 64, [buffer]), kernel.launch(608, 64, [buffer])
    made = counters(one, list(profile(one).lines))
    assert made["SQ_WAVES"] == 608 and made["GRBM_GUI_ACTIVE"] == round(one.cycles)
    near = partial(pytest.approx, rel=0.05)  # every second workgroup does more: 128 of 608 are samples
    assert made["SQ_INSTS_VMEM_RD"] + made["SQ_INSTS_VMEM_WR"] == near(run.counters["instructions_vmem"])
    assert made["SQ_INSTS_VALU"] == near(run.counters["instructions_valu"])
    assert made["SQ_INSTS_SMEM"] == near(run.counters["instructions_smem"])
    assert made["SQ_LDS_BANK_CONFLICT"] == made["SQ_INSTS_LDS"] == 0
    assert made["TCC_HIT_sum"] + made["TCC_MISS_sum"] == pytest.approx(made["TCC_REQ_sum"], abs=1)
    assert made["L2CacheHit"] == pytest.approx(100 * made["TCC_HIT_sum"] / made["TCC_REQ_sum"], abs=0.1)


COPY = """__global__ void copy(double* to, const double* from) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    to[i] = from[i] + (AGAIN ? from[i ^ 4096] : 0);
}"""


@pytest.mark.slow
@pytest.mark.parametrize("again, loads", [(0, 4), (1, 8)])
def test_a_copy_moves_each_byte_once(again: int, loads: int) -> None:
    """A wave loads four lines of L2 and stores eight halves of four; a second load finds lines of a workgroup near by."""
    gpu, groups = simgpu.Device("mi210", threads=1), 1 << 13
    nbytes = 8 * 256 * groups
    kernel = gpu.load(compile(COPY.replace("AGAIN", str(again)), "mi210"))["_Z4copyPdPKd"]
    one = kernel.time(groups, 256, [gpu.alloc(nbytes), gpu.alloc(nbytes)])
    made, waves = counters(one, list(profile(one).lines)), 4 * groups
    assert made["FETCH_SIZE"] * 1024 == pytest.approx(nbytes, rel=0.01) == made["WRITE_SIZE"] * 1024
    assert made["TCC_REQ_sum"] == pytest.approx((loads + 8) * waves, rel=0.01)
    assert made["TCC_MISS_sum"] == pytest.approx(8 * waves, rel=0.01)
