"""Lint's findings (`simgpu.checks.lint`) in lines of assembly and kernels' texts."""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.checks.lint import lint
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object import CodeObject
from tests.support.checked import assembled
from tests.support.kernels import KernelText, assemble


def linted(target: str, lines: Sequence[str]) -> list[Finding]:
    """Lints the lines that `tests.support.checked.findings` would run, without findings on registers that nothing wrote."""
    found = lint(CodeObject.parse(assembled(target, lines)))
    return [finding for finding in found if finding.kind != "uninitialized"]


def kernel_linted(target: str, lines: str, max_block: int = 1024, **options: int) -> list[Finding]:
    """Lints a kernel with these lines; options: `KernelText`'s."""
    text = KernelText("k", lines, ("buffer", "buffer"), options, max_block)
    return lint(CodeObject.parse(assemble(target, text)))
