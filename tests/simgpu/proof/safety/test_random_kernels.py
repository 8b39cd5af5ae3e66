"""Random kernels: proved ones have no finding in random launches."""

from __future__ import annotations

import random

import numpy as np
import pytest

from simgpu import Device
from simgpu.hardware.code_object import CodeObject
from simgpu.proof.safety.judge import judge
from simgpu.proof.safety.launches import Assumptions
from simgpu.proof.solver import Limits
from simgpu.tools.cases.sources import compile

PLACES = ("t", "t", "t", "t ^ 64", "127 - t", "t * 2", "t + 1", "(t + k) & 127", "t & 63", "t | 64", "(t + n) & 127", "t + 128")
OUT = ("t + 128 * blockIdx.x", "t + 128 * blockIdx.x", "t + 64 * blockIdx.x", "t")
SEEDS, LAUNCHES = 24, 6
LIMITS = Limits(effort=5.0)


def statement(rng: random.Random, nested: bool) -> str:
    """Returns a statement on LDS `s`; barriers are in no branch of lanes."""
    place = rng.choice(PLACES)
    kind = rng.choice(("store", "store", "load", "load", "barrier", "barrier", "if", "loop"))
    if kind == "if":
        return f"if (t {rng.choice('<>')} {rng.choice(('63', '32', 'n'))}) s[{place}] = r;"
    if kind == "loop" and not nested:
        inside = " ".join(statement(rng, True) for _ in range(rng.randint(2, 4)))
        return f"for (k = 0; k < {rng.choice(('n', '3', 'm'))}; k++) {{ {inside} }}"
    return {"store": f"s[{place}] = r + k;", "load": f"r += s[{place}];"}.get(kind, "__syncthreads();")


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(SEEDS))
def test_proved_kernels_have_no_race(seed: int) -> None:
    rng = random.Random(seed)
    body = " ".join(statement(rng, False) for _ in range(rng.randint(3, 6))) + f" y[{rng.choice(OUT)}] = r;"
    begin = "__shared__ int s[384]; int t = threadIdx.x, k = 0, r = n;"
    source = f'extern "C" __global__ void f(int *y, int n, int m) {{\n  {begin}\n  {body}\n}}\n'
    code = compile(source, "gfx942")
    if judge(CodeObject.parse(code), "f", ("race",), Assumptions(block=(128,)), LIMITS).kind != "proved":
        return
    for _ in range(LAUNCHES):
        gpu = Device("gfx942", check=True)
        n, m, grid = rng.choice((0, 1, 2, 3, 64, 100)), rng.choice((-1, 0, 1, 5)), rng.randint(1, 3)
        args = [gpu.upload(np.zeros(128 * grid, np.int32)), np.int32(n), np.int32(m)]
        findings = gpu.load(code)["f"].launch(grid=grid, block=128, args=args).findings
        assert not [each for each in findings if each.kind == "race"], (source, n, m, grid)
