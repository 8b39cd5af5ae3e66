"""HIP kernels with one planted bug each: the finding names its kind, the line in the user's source, and the kernel."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import simgpu
from simgpu.engine.finding import Finding
from simgpu.hardware.errors import LaunchError, SimError

FILE = Path(__file__).parents[2] / "support" / "planted.hip"


class Launch(NamedTuple):
    """Arguments of a launch: the elements of f32 buffers (i32 for negative ones), then numbers."""

    buffers: tuple[int, ...]
    numbers: tuple[int, ...] = ()
    grid: int = 1
    block: int = 64
    check: str | bool = True


FLOATS, INTEGERS = (256, 256), (-256, -256)
LAUNCHES = {
    "scan_race": Launch(INTEGERS, block=256),
    "transpose_no_barrier": Launch(FLOATS, block=256),
    "stencil_oob_read": Launch(FLOATS, (256,), grid=4),
    "histogram_oob_write": Launch((-256, -64), (256,), grid=4),
    "reduce_lds_oob": Launch(FLOATS, block=256),
    "softmax_uninit": Launch(FLOATS, (4,), block=256),
    "count_groups": Launch((-1,), grid=8),
    "producer_consumer": Launch((-1, -1, -1), grid=2),
    "index_overflow": Launch(FLOATS, (256, 1024)),
    "variance_nan": Launch(FLOATS, (1,), check="numerics"),
    "log_zero": Launch(FLOATS, check="numerics"),
    "asm_no_wait": Launch(FLOATS),
    "matmul_swapped": Launch((64, 64, 64), (8, 8)),
    "ring_lds": Launch((512, 256), (4,), block=256),
    "in_a_function": Launch((128, 64)),
    "bfs_private": Launch(INTEGERS, (80,)),
    "uninit_private": Launch(INTEGERS, (20,)),
    "uneven_barriers": Launch(FLOATS, block=128),
    "skipped_barrier": Launch(FLOATS, block=128),
}


@cache
def code() -> bytes:
    return simgpu.compile(str(FILE), target="mi300x")


def found(name: str, arguments: Any, launch: Launch, gpu: simgpu.Device) -> list[Finding]:
    """Launches a kernel, also one that ends with a fault, and returns its errors."""
    kernel = gpu.load(code())[name]
    try:
        findings = kernel.launch(grid=launch.grid, block=launch.block, args=[*arguments, *launch.numbers]).findings
    except SimError as error:
        findings = getattr(error, "findings", ())
    return [each for each in findings if each.severity == "error"]


def assert_named(name: str, findings: list[Finding]) -> None:
    """Asserts that the kind and the line are those of the comment BUG in the kernel, or in the function before it."""
    text = FILE.read_text().splitlines()
    last = next(at for at, line in enumerate(text, 1) if f" {name}(" in line)
    bugs = [(number, line.split("BUG ")[1]) for number, line in enumerate(text, 1) if "// BUG " in line]
    wanted = next((bug for bug in bugs if bug[0] > last), bugs[-1])
    if name == "in_a_function":
        wanted = max(bug for bug in bugs if bug[0] < last)
    line, kind = wanted
    places = [(each.kind, re.match(r"planted\.hip:\d+", str(each.source)), each.kernel) for each in findings]
    kinds = {kind, "infinity"} if kind == "nan" else {kind}
    named = [at[0] for found_kind, at, kernel in places if found_kind in kinds and at and name in kernel]
    assert f"planted.hip:{line}" in named, (wanted, places)


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_bug_is_named(name: str) -> None:
    launch = LAUNCHES[name]
    gpu = simgpu.Device("mi300x", check=launch.check, threads=1)
    first, *others = [(abs(count), np.int32 if count < 0 else np.float32) for count in launch.buffers]
    counted = np.zeros(1, np.int32) if name in ("count_groups", "producer_consumer") else np.arange(first[0], dtype=first[1])
    buffers = [gpu.upload(counted), *(gpu.upload(np.zeros(*each)) for each in others)]
    assert_named(name, found(name, buffers, launch, gpu))


def test_misuse_by_the_host() -> None:
    gpu = simgpu.Device("mi300x", check=True, threads=1)
    freed, out = gpu.upload(np.zeros(64, np.float32)), gpu.zeros(64)
    address = freed.address
    gpu.free(freed)
    assert_named("freed", found("freed", [address, out], Launch(()), gpu))
    half = gpu.empty(64)
    half.write(np.zeros(32, np.float32))
    assert_named("half_copied", found("half_copied", [half, out], Launch(()), gpu))
    with pytest.raises(LaunchError, match=r"small_blocks.*64"):
        gpu.load(code())["small_blocks"].launch(grid=1, block=128, args=[out, out])
