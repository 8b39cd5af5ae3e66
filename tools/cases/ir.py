"""LLVM IR to a code object, by the clang that also assembles kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from simgpu.tools.cases.opencl import MACHINE
from simgpu.tools.shared.hiprtc import compiler, link


def compile_ir(text: str, target: str, path: Path, options: Sequence[str] = ()) -> tuple[bytes | None, str]:
    """Returns the linked code object and the compiler's messages; None if the source is wrong. Raises ToolchainError without a
    compiler.

    path: the text's file, for messages; options: of clang, after its -O3
    """
    tool = compiler()
    with tempfile.TemporaryDirectory(prefix="simgpu-ir-") as scratch:
        folder = Path(scratch)
        (folder / path.name).write_text(text, "utf-8")
        made = ["-x", "ir", *MACHINE, *options, "-Wno-override-module", f"-mcpu={target}"]
        made += ["-c", f"./{path.name}", "-o", "kernels.o"]
        linked = [*tool.lld, "-shared", "kernels.o", "-o", "kernels.co"]
        return link(([*tool.clang, *made], linked), folder / "kernels.co")
