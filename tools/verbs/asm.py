"""`simgpu asm`: assembly, or a file of kernels, to a linked code object."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simgpu.tools.cases.sources import KERNELS, add_compiler_option, compile
from simgpu.tools.shared.console import add_json_option, print_json, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.outputs import STDOUT, add_force_option, claim, write


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("file", metavar="FILE", help=f"assembly (`simgpu help assembly` has a template), or {KERNELS}")
    parser.add_argument("--target", help="board or architecture (default: the file's .amdgcn_target)")
    add_compiler_option(parser)
    parser.add_argument("-o", "--output", metavar="K.CO", help="the code object; - is standard output (default: FILE with .co)")
    add_force_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Assembles or compiles the file and writes the code object. Raises UsageError, TargetError and ToolchainError."""
    from simgpu.hardware.code_object.code_object import CodeObject

    output = options.output or str(Path(options.file).with_suffix(".co"))
    if options.json and output == STDOUT:
        raise UsageError("--json and -o - both want standard output: name a file")
    claim([output], options.force)
    data = compile(options.file, options.target, options.options)
    code = CodeObject.parse(data)
    write(output, data, options.force)
    if options.json:
        kernels = [{"name": kernel.name, "resources": kernel.declared_resources} for kernel in code.kernels.values()]
        print_json({"file": options.file, "output": output, "target": code.target, "bytes": len(data), "kernels": kernels})
    elif output != STDOUT:
        show(f"{options.file} -> {output}: {code.target}, {len(data):,} bytes")
        for kernel in code.kernels.values():
            show(f"{kernel.title}: " + ", ".join(f"{value:,} {name}" for name, value in kernel.declared_resources.items()))
    return 0
