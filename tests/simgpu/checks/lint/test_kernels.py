"""Whole kernels: lint is silent about right ones, compilers' and ours, and finds every break of a right kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from simgpu import asm, hardware, operators
from simgpu.checks.lint import lint
from simgpu.hardware.code_object import CodeObject
from tests.simgpu.checks.test_kernels import HEAD, SUBJECTS, Subject
from tests.support.exhaustive import one_in
from tests.support.kernels import KernelText, assemble
from tests.support.places import CORPUS

CASES = json.loads((CORPUS / "manifest.json").read_text())["cases"] if (CORPUS / "manifest.json").is_file() else []


def said(data: bytes) -> list[str]:
    return [str(finding) for finding in lint(CodeObject.parse(data))]


@pytest.mark.skipif(not CASES, reason="the corpus is not at hand")
def test_silence_about_the_corpus() -> None:
    assert len(CASES) == 82
    assert {case["name"]: found for case in CASES if (found := said((CORPUS / case["hsaco"]).read_bytes()))} == {}


def trees(target: str, dtype: str) -> Iterator[tuple[str, Any]]:
    """Yields a tree of each operator that the target has for the type."""
    yield "gemm", operators.TiledComputation(70, 90, 50, target=target, dtype=dtype)
    yield "gemm tb", operators.TiledComputation(
        257, 130, 300, target=target, dtype=dtype, trans_b=True, beta=2.0, bias=True, activation="relu", batch=2
    )
    if dtype in ("f32", "f16", "bf16"):
        problem = operators.SoftmaxProblem(33, 700, dtype, mask=True)
        yield "softmax", operators.Softmax(problem, target)
        yield "wide softmax", operators.Softmax(operators.SoftmaxProblem(3, 40000, dtype), target)
        attention = operators.AttentionProblem(100, 130, 64, heads=4, kv_heads=2, causal=True, dtype=dtype)
        yield "attention", operators.FusedAttention(attention, target)
        yield "unfused attention", operators.UnfusedAttention(operators.AttentionProblem(60, 60, 32, dtype=dtype), target)
        convolution = operators.Conv2dProblem(2, 6, 20, 21, 8, 3, 3, (2, 1), (1, 1), groups=2, dtype=dtype)
        yield "conv2d", operators.Conv2d(convolution, target)
        yield "rmsnorm_gemm", operators.FusedTree(operators.RmsNormGemm(70, 90, 130, dtype), target)


EMITTED = [(target, dtype) for target in ("mi100", "mi210", "mi300x", "mi350x") for dtype in hardware.target(target).dtypes()]


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "dtype"), one_in(2, EMITTED))
def test_silence_about_what_we_emit(target: str, dtype: str) -> None:
    found = {name: told for name, tree in trees(target, dtype) if (told := said(asm.emit(tree).assemble()))}
    assert found == {}


def assembled(subject: Subject, lines: str) -> bytes:
    options = {"next_free_vgpr": 32, **subject.options}
    return assemble(subject.target, KernelText("k", HEAD + lines, ("buffer", "buffer"), options, subject.block))


@pytest.mark.parametrize("name", SUBJECTS)
def test_silence_about_kernels_of_other_kinds(name: str) -> None:
    assert said(assembled(SUBJECTS[name], SUBJECTS[name].lines)) == []


# Only memory reveals these: its bytes' history, and the bytes of LDS that a load writes.
BY_MEMORY = {
    ("LDS DMA, double buffered", 0), ("wide stores overwritten", 2), ("spills to private memory", 1),
}  # fmt: skip
KINDS = ("missing-wait", "hazard", "uninitialized")
MUTANTS = [
    (name, number)
    for name, subject in SUBJECTS.items()
    for number, mutant in enumerate(subject.mutants)
    if mutant[2] in KINDS and (name, number) not in BY_MEMORY
]


@pytest.mark.parametrize("name, number", MUTANTS)
def test_each_mutant_is_found(name: str, number: int) -> None:
    subject = SUBJECTS[name]
    before, after, kind = subject.mutants[number]
    found = lint(CodeObject.parse(assembled(subject, subject.lines.replace(before, after))))
    assert kind in {finding.kind for finding in found}, [str(finding) for finding in found]
