"""`simgpu emit`: the kernel as commented assembly, as a code object, or both."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from simgpu.tools.cases.operator_options import add_operator_options, operator_document
from simgpu.tools.cases.operators import Operator
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.outputs import add_force_option, claim, write

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_operator_options(parser, more=_outputs, kernels=True)


def _outputs(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="K.S", help="write the assembly here (default: stdout)")
    parser.add_argument("--object", metavar="K.CO", help="assemble, link, and write the code object here")
    parser.add_argument(
        "--listing",
        action="store_true",
        help="add each instruction's bytes, the registers that are live after it, and its Python line",
    )
    add_force_option(parser)


def run(options: Namespace) -> int:
    """Emits and writes; nothing is written unless all requested outputs could be made."""
    claim((options.output, options.object), options.force)
    operator: Operator = options.operator
    tree = operator.tree(options)
    with progress("emitting"):
        kernel = operator.choose_kernels(options).emit(tree)
        code = kernel.assemble() if options.object or options.listing else b""
        text = _listing(kernel, code) if options.listing else kernel.source
    if options.output:
        write(options.output, text.encode(), options.force)
    if options.object:
        write(options.object, code, options.force)
    used = kernel.resources
    if options.json:
        print_json({
            **operator_document(tree, options.op),
            "kernel": kernel.name,
            "grid": kernel.grid,
            "block": kernel.block,
            "scalars": kernel.scalars,
            "resources": asdict(used),
            "output": options.output,
            "object": options.object,
            "text": None if options.output or options.object else text,
        })  # fmt: skip
    elif not options.output and not options.object:
        print(text)
    else:
        written = " and ".join(path for path in (options.output, options.object) if path)
        show(
            f"{', '.join(step.name for step in kernel.steps)} -> {written}",
            f"{used.instructions} instructions, {used.vgprs} VGPRs, {used.agprs} AccVGPRs, "
            f"{used.sgprs} SGPRs, {used.lds} bytes of LDS",
            f"grid {' x '.join(map(str, kernel.grid))} workgroups "
            f"of {' x '.join(map(str, kernel.block))} work-items",
        )
    return 0


def _listing(kernel: EmittedKernel, code: bytes) -> str:
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.tools.tables.listing import listing_lines

    parsed = CodeObject.parse(code)
    lines = [f"{step.name}:\n" + "\n".join(line.render() for line in listing_lines(step, parsed)) for step in kernel.steps]
    return "\n\n".join(lines) + "\n"
