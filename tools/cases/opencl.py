"""OpenCL C kernels to a code object, by the clang that also assembles kernels. It needs no ROCm and no device library.

OpenCL C's built-in types and functions come from our opencl.h, which lists those that it lacks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from simgpu.asm.builder.toolchain import CODE_OBJECT_VERSION
from simgpu.tools.shared.hiprtc import compiler, link

HEADER = Path(__file__).with_name("opencl.h")
# Launches have whole workgroups, so the size functions need no special case for the last one.
LANGUAGE = ("-x", "cl", "-cl-std=CL2.0", "-cl-no-stdinc", "-cl-uniform-work-group-size", "-include", str(HEADER))
MACHINE = ("-target", "amdgcn-amd-amdhsa", "-nogpulib", f"-mcode-object-version={CODE_OBJECT_VERSION}", "-O3")


def compile_opencl(text: str, target: str, path: Path, options: Sequence[str] = ()) -> tuple[bytes | None, str]:
    """Returns the linked code object and the compiler's messages; None if the source is wrong. Raises ToolchainError without a
    compiler.

    options: of clang, after its -O3. path: the text's file. Messages and the line table use its name, and its folder is searched
    for includes.
    """
    folders = f"-I{path.parent.absolute()}", "-g", "-fdebug-compilation-dir=."
    return compile_file(text, path.name, (*LANGUAGE, *MACHINE, *options, f"-mcpu={target}", *folders))


def compile_file(text: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
    """Returns the code object of a file of this text and name, and the compiler's messages. options: all of clang's."""
    tool = compiler()
    with tempfile.TemporaryDirectory(prefix="simgpu-clang-") as scratch:
        folder = Path(scratch)
        (folder / name).write_text(text, "utf-8")
        compiled = [*tool.clang, *options, "-c", f"./{name}", "-o", "kernels.o"]
        linked = [*tool.lld, "-shared", "kernels.o", "-o", "kernels.co"]
        return link((compiled, linked), folder / "kernels.co")
