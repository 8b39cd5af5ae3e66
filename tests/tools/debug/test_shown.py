"""Variables that optimization keeps, and the number that the debugger prints right.

Twelve kernels store their variables, compiled a second time for it. The stored values are compared with the values that the
debugger prints at the same lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.debugger.debugger import debug
from simgpu.debugger.locals import object_named
from simgpu.hardware.errors import LaunchError

FILE = Path(__file__).parents[2] / "support" / "shown.hip"
COUNT = 40
SHOW = re.compile(r"SHOW\((\d+), ([^;]*?)\) ")


@dataclass
class Score:
    """Numbers of variables at a line, over all lines."""

    right: int = 0
    wrong: int = 0
    optimized_out: int = 0


def compiled(target: str, *options: str) -> bytes:
    return simgpu.compile(str(FILE), target=target, options=options)


def shown_lines() -> dict[str, list[tuple[int, int, list[str]]]]:
    """Returns the line, the number and the variables of each SHOW, by kernel."""
    found: dict[str, list[tuple[int, int, list[str]]]] = {}
    kernel = ""
    for number, line in enumerate(FILE.read_text().splitlines(), 1):
        if begun := re.match(r"__global__ void (\w+)", line):
            kernel = begun[1]
        if kernel and (match := SHOW.search(line)):
            found.setdefault(kernel, []).append((number, int(match[1]), match[2].split(", ")))
    return found


def score(target: str, level: str) -> tuple[Score, list[str]]:
    gpu = simgpu.Device(target, threads=1)
    traced, plain = gpu.load(compiled(target, level, "-DTRACE")), gpu.load(compiled(target, level))
    x, made, mistakes = np.arange(64, dtype=np.float32), Score(), []
    address, size = traced.symbol("shown")
    for kernel, lines in shown_lines().items():
        traced[kernel].launch(grid=1, block=64, args=[x, np.zeros(64, np.float32), COUNT])
        shown = np.frombuffer(gpu.memory.find(address).data, np.float64, size // 8, address - gpu.memory.find(address).base)
        shown = shown.reshape(64, 8, 64)
        buffers = gpu.upload(x), gpu.zeros(64)
        for line, number, names in lines:
            with debug(plain[kernel], grid=1, block=64, args=[*buffers, COUNT]) as held:
                held.breakpoint(str(line))
                assert held.go_on().kind == "breakpoint", (kernel, line)
                active = [lane for lane in range(64) if held.snapshot().exec >> lane & 1]
                for name, want in zip(names, shown[number], strict=False):
                    try:
                        found = object_named(held, name)
                    except LaunchError:
                        made.optimized_out += 1
                        continue
                    assert found is not None, (kernel, name)
                    got = np.broadcast_to(found.values(), 64).astype(np.float64)
                    if np.allclose(got[active], want[active], rtol=1e-6):
                        made.right += 1
                    else:
                        made.wrong += 1
                        mistakes.append(f"{kernel}:{line} {name}: {got[active][:4]} instead of {want[active][:4]}")
    return made, mistakes


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("target", "level", "least"), [("gfx942", "-O1", 0.9), ("gfx90a", "-O1", 0.9), ("gfx942", "-O3", 0.85), ("gfx950", "-O2", 0.85)]
)
def test_most_variables_are_printed_right(target: str, level: str, least: float) -> None:
    """Wrong ones are members of a struct that optimization keeps in registers, while debug information names their memory, and
    values
    that it moved past the line."""
    made, mistakes = score(target, level)
    print(target, level, made, *mistakes, sep="\n")
    assert made.right >= least * (made.right + made.wrong), mistakes
    assert made.right > made.optimized_out, made
