"""Random programs judged in two compilations: by level, by target, and a wrong one that a launch shows."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.code_object import CodeObject
from simgpu.proof.counterexample import SimulatedKernel, confirm
from simgpu.proof.equal import Verdict, compare
from simgpu.tools.cases.sources import compile
from simgpu.tools.robustness.ir_proofs import compile_program, main, outcome, small_program

QUICK = "52"  # a program whose proof is short


@pytest.mark.parametrize("options", [[], ["--other-target", "gfx90a"]], ids=["levels", "targets"])
def test_a_program_is_proved(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first", QUICK, "--count", "1", *options]) == 0
    assert ": 1 equal; " in capsys.readouterr().out


def test_an_altered_program_differs() -> None:
    program = small_program(1, int(QUICK))
    lines, end = program.bodies
    stores = [at for at, line in enumerate(lines) if line.strip().startswith("store")]
    without = tuple(line for at, line in enumerate(lines) if at != stores[-1])
    altered = dataclasses.replace(program, bodies=(without, end))
    verdict = compare(compile_program(program, "gfx942", "-O0"), compile_program(altered, "gfx942", "-O3"), f"p{QUICK}")
    assert outcome(verdict) == "different" and verdict.counterexample is not None


OUTCOMES = {
    "effort, at 4 bytes": "unknown", "time": "unknown", "4 bytes may differ, but no launch was found that shows it": "unknown",
    "a clock (s_memtime)": "out of reach",
}  # fmt: skip


@pytest.mark.parametrize("reason", OUTCOMES)
def test_what_is_not_modelled_is_out_of_reach(reason: str) -> None:
    assert outcome(Verdict("unknown", reason)) == OUTCOMES[reason]


RACE = """
extern "C" __global__ void f(unsigned *x, unsigned *y) {{
  x[threadIdx.x] = {};
  y[threadIdx.x] = x[threadIdx.x ^ 64];
}}
"""


def test_a_launch_with_a_race_shows_nothing() -> None:
    """Its results may differ anyway."""
    one, other = (CodeObject.parse(compile(RACE.format(value), "gfx942")) for value in ("threadIdx.x", "threadIdx.x + 1"))
    inputs: list[Any] = [SimpleNamespace(info=code.kernels["f"], code=code) for code in (one, other)]
    question: Any = SimpleNamespace(runners=[SimulatedKernel(each) for each in inputs], payloads=False)
    arguments = [np.zeros(512, np.uint8), np.zeros(512, np.uint8)]
    assert confirm(question, arguments, (128, 1, 1), (1, 1, 1)) is None
    found = confirm(question, arguments, (64, 1, 1), (1, 1, 1))
    assert found is not None and found.argument == 0
