"""Changed registers, variables and memory: the rest of the wave stays, and the kernel goes on with the new values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu.debugger.assign import assign
from simgpu.debugger.debugger import Debugger, debug
from simgpu.debugger.locals import local_values
from simgpu.hardware.errors import LaunchError
from tests.support.exhaustive import examples
from tests.support.kernels import loaded_kernel

TEXT = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v3, v1, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, v2, v3
global_store_dword v1, v2, s[4:5]
s_waitcnt vmcnt(0)
"""


@pytest.fixture
def held() -> Iterator[Debugger]:
    gpu = simgpu.Device("mi300x", threads=1)
    buffer = gpu.upload(np.zeros(64, np.uint32))
    with debug(loaded_kernel(gpu, TEXT, "buffer"), grid=1, block=64, args=[buffer]) as made:
        yield made


def results(held: Debugger, name: str = "buffer") -> np.ndarray:
    held.go_on()
    array = next(iter(held.names.values()))
    return np.frombuffer(held.memory(array.address, 256), np.uint32)


def test_the_kernel_goes_on_with_the_new_values(held: Debugger) -> None:
    held.step(4)
    (name,) = held.names
    assign(held, "$v2[5]", "100")
    assign(held, f"{name}[7]", "1000")
    made = results(held)
    want = np.arange(64, dtype=np.uint32)
    want[5], want[7] = 100, 1007
    assert made.tolist() == want.tolist()
    held.reverse_step(3)  # runs the launch again without the changes
    assert results(held).tolist() == list(range(64))


def test_lanes_that_exec_turns_off_do_nothing(held: Debugger) -> None:
    held.step(4)
    assign(held, "exec", "0xff")
    assign(held, "v2", "7")
    assert results(held).tolist() == [7] * 8 + [0] * 56


@given(st.integers(0, 255), st.integers(0, 63), st.integers(0, 2**32 - 1), st.sampled_from(["v", "a"]))
@settings(max_examples=examples(20))
def test_only_the_named_lane_changes(register: int, lane: int, value: int, file: str) -> None:
    gpu = simgpu.Device("mi300x", threads=1)
    with debug(loaded_kernel(gpu, TEXT, "buffer"), grid=1, block=64, args=[gpu.upload(np.zeros(64, np.uint32))]) as held:
        before = held.replay.bytes_of(0).copy()
        assign(held, f"{file}{register}[{lane}]", hex(value))
        assert held.registers(f"{file}{register}[{lane}]").tolist() == [value]
        changed = np.flatnonzero(held.replay.bytes_of(0) != before)
        assert len(changed) <= 4 and (not len(changed) or changed[-1] - changed[0] < 4)


@pytest.mark.parametrize(("target", "value"), [
    ("v300", "1"), ("v1", "x"), ("v1[64]", "1"), ("v[0:3]", "1"), ("s4", "0x100000000"), ("scc", "2"), ("buffer[64]", "1"),
    ("0x10", "1"), ("nothing", "1"), ("v1", ""), ("v1", "-2147483649"),
])  # fmt: skip
def test_what_cannot_be_set_is_said_and_changes_nothing(held: Debugger, target: str, value: str) -> None:
    before = held.replay.bytes_of(0).copy()
    with pytest.raises(LaunchError):
        assign(held, target, value)
    assert (held.replay.bytes_of(0) == before).all()


def test_a_variable_of_the_source(tmp_path: Path) -> None:
    text = """__global__ void k(int *y, const int *x, int n) {
    int sum = 0;
#pragma unroll 1
    for (int j = 0; j < n; j++)
        sum += x[64 * j + threadIdx.x];
    y[threadIdx.x] = sum;
}
"""
    file = tmp_path / "k.hip"
    file.write_text(text)
    kernel = simgpu.load(str(file), "mi300x", threads=1)["k"]
    gpu = kernel.module.device
    y, x = gpu.upload(np.zeros(64, np.int32)), gpu.upload(np.full(320, 3, np.int32))
    with debug(kernel, grid=1, block=64, args=[y, x, 5]) as held:
        found = None
        while found is None or found.values is None or found.values.shape != (64,):
            held.step()
            found = next(each for each in local_values(held) if each.name == "sum")
        before = int(found.values[9])
        assert before in (3, 6, 9, 12)
        assign(held, "sum[9]", "-1000")
        held.go_on()
        made = np.frombuffer(held.memory(y.address, 256), np.int32)
    assert made[9] == -1000 + 15 - before and made[8] == made[10] == 15
