"""LLVM IR to a code object, by the clang that also assembles kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from simgpu.tools.cases.opencl import MACHINE, compile_file
from simgpu.tools.shared.hiprtc import compiler, link


def compile_ir(text: str, target: str, path: Path, options: Sequence[str] = ()) -> tuple[bytes | None, str]:
    """Returns the linked code object and the compiler's messages; None if the source is wrong. Raises ToolchainError without a
    compiler.

    path: the text's file, for messages; options: of clang, after its -O3
    """
    return compile_file(text, path.name, ("-x", "ir", *MACHINE, *options, "-Wno-override-module", f"-mcpu={target}"))


def printed_ir(data: bytes, name: str) -> tuple[str | None, str]:
    """Returns IR, text or bitcode, as clang prints it, and clang's messages; None if the file is wrong. Raises ToolchainError."""
    tool = compiler()
    with tempfile.TemporaryDirectory(prefix="simgpu-ir-") as scratch:
        folder = Path(scratch)
        (folder / name).write_bytes(data)
        made = ["-x", "ir", *MACHINE, "-Wno-override-module", "-fno-discard-value-names", "-Xclang", "-disable-llvm-passes"]
        made += ["-S", "-emit-llvm", f"./{name}", "-o", "printed.txt"]
        printed, log = link([[*tool.clang, *made]], folder / "printed.txt")
        return (None if printed is None else printed.decode("utf-8", "replace")), log
