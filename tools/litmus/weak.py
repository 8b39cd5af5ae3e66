"""Litmus tests as kernels in weak mode: the results that a range of seeds gives.

The threads of a test are the branches of one kernel, by number of the workgroup or of the wave. Each of a wave's 64 lanes runs the
test on its own locations.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simgpu import Device
from simgpu.tools.litmus.compiled import RESULTS, code_object, statement
from simgpu.tools.litmus.form import DEVICES, TOGETHER, LitmusTest, Result
from simgpu.tools.shared.errors import UsageError

LANES = 64
INTRINSICS = "\n".join(f"declare i32 @llvm.amdgcn.{name}" for name in ("workitem.id.x()", "workgroup.id.x()", "readfirstlane(i32)"))


def kernel_source(test: LitmusTest) -> str:
    """Returns the test as LLVM IR, a kernel of all threads."""
    names = (*test.locations, RESULTS)
    chosen = "%first" if test.place == TOGETHER else "%group"
    lines = [
        "%item = call i32 @llvm.amdgcn.workitem.id.x()", "%group = call i32 @llvm.amdgcn.workgroup.id.x()",
        "%lane = and i32 %item, 63", "%wave = lshr i32 %item, 6", "%first = call i32 @llvm.amdgcn.readfirstlane(i32 %wave)",
        *(f"%at.{name} = getelementptr i32, ptr addrspace(1) %{name}, i32 %lane" for name in names),
        f"switch i32 {chosen}, label %done [{' '.join(f'i32 {n}, label %thread{n}' for n in range(len(test.threads)))}]",
    ]  # fmt: skip
    for number, thread in enumerate(test.threads):
        lines += [f"br label %done\nthread{number}:" if number else f"thread{number}:", *map(statement, thread)]
        for register in (step.register for step in thread if step.register):
            place = LANES * test.registers.index(register)
            lines.append(f"%to.{register} = getelementptr i32, ptr addrspace(1) %at.{RESULTS}, i32 {place}")
            lines.append(f"store i32 %{register}, ptr addrspace(1) %to.{register}")
    arguments = ", ".join(f"ptr addrspace(1) %{name}" for name in names)
    body = "\n  ".join([*lines, "br label %done\ndone:", "ret void"])
    size = '"amdgpu-flat-work-group-size"="64,1024"'
    return f"define amdgpu_kernel void @threads({arguments}) {size} {{\n  {body}\n}}\n{INTRINSICS}\n"


def weak_results(test: LitmusTest, target: str, seeds: Iterable[int]) -> dict[Result, list[int]]:
    """Returns the seeds that give each result, in one lane or more. Raises UsageError for a test of several devices."""
    if test.place == DEVICES:
        raise UsageError(f"{test.name}: weak mode has one device, `place devices` needs one for each thread")
    data = code_object(test.name, kernel_source(test), target)
    found: dict[Result, list[int]] = {}
    count = len(test.threads)
    grid, block = (1, LANES * count) if test.place == TOGETHER else (count, LANES)
    gpu = Device(target, weak=0)
    kernel = gpu.load(data)["threads"]
    held = [gpu.empty((len(test.locations), LANES), np.uint32), gpu.empty((len(test.registers), LANES), np.uint32)]
    zeros = [np.zeros(buffer.nbytes, np.uint8) for buffer in held]
    places = [held[0].address + 4 * LANES * number for number in range(len(test.locations))]
    for gpu.weak in seeds:
        for buffer, zero in zip(held, zeros, strict=True):
            buffer.write(zero)
        kernel.launch(grid, block, [*places, held[1]])
        for column in sorted(set(map(tuple, held[1].download().T.tolist()))):
            found.setdefault(tuple(zip(test.registers, column, strict=True)), []).append(gpu.weak)
    return found
