"""Proofs are true: checked mode is silent in random launches, and a launch that breaks the claim forbids a proof."""

from __future__ import annotations

import random

import numpy as np
import pytest

from simgpu import Device
from simgpu.hardware.code_object import CodeObject
from simgpu.proof.safety.judge import SafetyVerdict, judge
from simgpu.proof.safety.launches import Assumptions
from simgpu.proof.safety.sizes import BadAssumption, SizeExpression
from simgpu.tools.cases.sources import compile
from tests.simgpu.proof.safety.test_judge import RIGHT, judged, marked, source

LAUNCHES = 12
NUMBERS = (0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 130)
VECTORS = "float *y, const float *x, int n, int m"
ITEM = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
LINE = {"y": "4*n", "x": "4"}
OUT, RACE = ("out-of-bounds",), ("race",)
TURNS = """__shared__ int s[128]; int t = threadIdx.x, end = t / 64 ? n : m;
  for (int k = 0; k < end; k++) { s[(t + 64) % 128] = k; __syncthreads(); y[t + 128 * blockIdx.x] = s[t]; }"""
# Body, sizes of buffers, conditions, workgroup, and what goes wrong in some launch.
WRONG = {
    "skipped_loop": (
        'int i = m; if (m >= 0) { do { i++; asm volatile("" : "+s"(i)); } while (i < n); } y[i] = 1;',
        {"y": "8*n+4"}, ("n >= 1", "m <= n"), (), OUT,
    ),
    "private": ("volatile float a[100]; a[n] = 2; y[0] = a[m];", {"y": "4"}, ("0 <= m < 100",), (), OUT),
    "before_the_first": (f"{ITEM} if (i - 1 < n) y[i - 1] = 1;", LINE, (), (), OUT),
    "down_from_the_end": ("for (int i = n; i >= 0; i -= 4) y[i] = x[0];", LINE, (), (), OUT),
    "odd_end": ("for (int i = 0; i != n; i += 2) y[i] = x[0];", LINE, (), (), OUT),
    "product_wraps": (f"{ITEM} if (i * i < n) y[i * i] = 1;", LINE, (), (), OUT),
    "16_bits_wrap": (f"{ITEM} short j = i; if (j < n) y[j] = 1;", LINE, (), (), OUT),
    "no_round": (
        "int k = 0; if (m > 0) for (; k < m; k++) y[0] = x[k]; y[k - 1] = 1;",
        {"y": "4*m", "x": "4*m"}, ("m >= 0",), (), OUT,
    ),
    "below_0": (
        'int k = m; while (k > n) { k -= 3; asm volatile("" : "+s"(k)); } y[k] = 1;',
        {"y": "4*n+4"}, ("n >= 0", "m >= 0"), (), OUT,
    ),
    "bytes": (f"{ITEM} char *c = (char *)y; if (i < n) c[i] = 1;", {"y": "n-1"}, ("n >= 1",), (), OUT),
    "halfwords": (f"{ITEM} char *c = (char *)y; if (i < n) *(short *)(c + i) = 1;", {"y": "n+1"}, (), (), RACE),
    "turns": (TURNS, {"y": "512*grid_x"}, (), (128,), RACE),
    "one_memory_two_types": (
        "__shared__ char s[512]; int t = threadIdx.x; *(int *)(s + 4 * t) = t; y[t + 128 * blockIdx.x] = s[4 * t ^ 256];",
        {"y": "512*grid_x"}, (), (128,), RACE,
    ),
    "a_barrier_in_some_launches": (
        "__shared__ int s[128]; int t = threadIdx.x; s[t] = t; if (n > 3) __syncthreads(); y[t + 128 * blockIdx.x] = s[127 - t];",
        {"y": "512*grid_x"}, (), (128,), RACE,
    ),
}  # fmt: skip
QUICK = ("skipped_loop", "private")


def judged_body(
    body: str, buffers: dict[str, str], conditions: tuple[str, ...] = (), parameters: str = VECTORS, block: tuple[int, ...] = (),
    properties: tuple[str, ...] = OUT,
) -> SafetyVerdict:  # fmt: skip
    """Returns the verdict on a kernel."""
    code = CodeObject.parse(compile(f'extern "C" __global__ void f({parameters}) {{\n  {body}\n}}\n', "gfx942"))
    sizes = {name: SizeExpression.parse(text) for name, text in buffers.items()}
    return judge(code, "f", properties, Assumptions(sizes, list(map(SizeExpression.parse, conditions)), block))


@pytest.mark.parametrize("name", marked(list(WRONG), QUICK))
def test_a_kernel_that_is_wrong_in_some_launch_is_not_proved(name: str) -> None:
    body, buffers, conditions, block, properties = WRONG[name]
    assert judged_body(body, buffers, conditions, block=block, properties=properties).kind != "proved"


def test_an_argument_hides_an_extent_of_its_name() -> None:
    assert judged_body("y[0] = grid_y;", {"y": "4*grid_y"}, (), "float *y, int grid_y").kind != "proved"
    assert judged_body("y[0] = grid_y;", {"y": "4*grid_y"}, ("grid_y > 0",), "float *y, int grid_y").kind == "proved"


@pytest.mark.exhaustive
def test_a_size_that_some_launch_divides_by_0_leaves_the_verdict_open() -> None:
    assert judged_body("if (m > 0 && n >= m) y[0] = 1;", {"y": "4*n//m"}).kind == "unknown"


def test_what_a_proof_takes_for_granted_is_printed() -> None:
    """With a second workgroup in y, which the kernel does not ask for, both store to the same bytes."""
    body = "int i = blockIdx.x * 64 + threadIdx.x; if (i < n) y[i] = 1;"
    verdict = judged_body(body, {"y": "4*n"}, block=(64,), properties=RACE)
    assert verdict.kind == "proved"
    for text in ("extent of 1 in y and z", "2**40 rounds", "48 bits", "stays in its buffer", "lanes of one wave"):
        assert any(text in line for line in verdict.assumed), text


CONTRADICTIONS = {
    "conditions": ({"y": "4*n"}, ("n < 0", "n > 0"), (), "no launch has all that is stated"),
    "condition": ({"y": "4*n"}, ("n >= 2**40",), (), "no launch has all that is stated"),
    "workgroup": ({"y": "4*n"}, (), (2048,), "the kernel takes up to 1024"),
    "twice": ({"y": "4*n", "0": "8*n"}, (), (), "stated twice"),
    "negative": ({"y": "-1"}, (), (), "are not from 0"),
    "large": ({"y": "2**40"}, (), (), "--largest-buffer"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_assumptions_that_no_launch_has_prove_nothing(what: str) -> None:
    buffers, conditions, block, message = CONTRADICTIONS[what]
    with pytest.raises(BadAssumption, match=message):
        judged_body("y[n] = 1;", buffers, conditions, block=block)


@pytest.mark.parametrize("name", marked(list(RIGHT)))
def test_checked_mode_is_silent_in_random_launches_of_proved_kernels(name: str) -> None:
    """Extents are odd and 0 as well, and workgroups are of partial waves where the kernel leaves them open."""
    assert judged(name).kind == "proved"
    parameters, _, buffers, block = RIGHT[name]
    sizes = {key: SizeExpression.parse(text) for key, text in buffers.items()}
    code = compile(source(name), "gfx942")
    rng = random.Random(name)
    for _ in range(LAUNCHES):
        gpu = Device("gfx942", check=True)
        shape = block or (rng.choice((1, 37, 64, 96, 128)),)
        grid = tuple(rng.randint(1, 3) for _ in shape)
        names = {key: rng.choice(NUMBERS) for key in "mnk"} | {"grid_x": grid[0]}
        given: list[object] = []
        for word in parameters.replace("*", " ").split(","):
            argument = word.split()[-1]
            if "float" not in word:
                given.append(np.int32(names[argument]))
            else:
                size = sizes[argument].value(names) if argument in sizes else 0
                given.append(gpu.upload(np.ones(size // 4, np.float32)))
        lds = 4096 if name == "any_reduction" else 0
        findings = gpu.load(code)[name].launch(grid=grid, block=shape, args=given, dynamic_lds=lds).findings
        assert not [each for each in findings if each.kind in ("out-of-bounds", "race")], (names, grid, shape)
