"""OpenCL C kernels to a code object, by the clang that assembles kernels too: neither ROCm nor its device library is needed.

A source finds the language's words in our opencl.h, which says what it leaves out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from simgpu.asm.builder.toolchain import CODE_OBJECT_VERSION
from simgpu.tools.shared.hiprtc import compiler, link

HEADER = Path(__file__).with_name("opencl.h")
# Launches have whole workgroups: sizes need no look at the last one's.
LANGUAGE = ("-x", "cl", "-cl-std=CL2.0", "-cl-no-stdinc", "-cl-uniform-work-group-size", "-include", str(HEADER))
MACHINE = ("-target", "amdgcn-amd-amdhsa", "-nogpulib", f"-mcode-object-version={CODE_OBJECT_VERSION}", "-O3")


def compile_opencl(text: str, target: str, path: Path) -> tuple[bytes | None, str]:
    """The linked code object and the compiler's messages; None where the source is wrong. ToolchainError without a compiler.

    path: the file of the text, whose name messages and the line table have, and whose folder is searched for what it includes.
    """
    tool = compiler()
    with tempfile.TemporaryDirectory(prefix="simgpu-opencl-") as scratch:
        folder = Path(scratch)
        (folder / path.name).write_text(text, "utf-8")
        compiled = [
            *tool.clang, *LANGUAGE, *MACHINE, f"-mcpu={target}", f"-I{path.parent.absolute()}", "-g",
            "-fdebug-compilation-dir=.", "-c", f"./{path.name}", "-o", "kernels.o",
        ]  # fmt: skip
        linked = [*tool.lld, "-shared", "kernels.o", "-o", "kernels.co"]
        return link((compiled, linked), folder / "kernels.co")
