"""`simgpu emit`: the kernel as commented assembly, as a code object, or both."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from tools.console import print_json, show
from tools.operator_options import EMITTED, add_operator_options, operator_document, operator_tree
from tools.outputs import add_force_option, claim, write


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_operator_options(parser, only=EMITTED, more=_outputs)


def _outputs(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="K.S", help="write the assembly here (default: stdout)")
    parser.add_argument("--object", metavar="K.CO", help="assemble, link, and write the code object here")
    add_force_option(parser)


def run(options: Namespace) -> int:
    """Emits and writes; nothing is written unless everything asked for could be made."""
    import asm

    tree = operator_tree(options)
    kernel = asm.emit(tree)
    steps = tuple(kernel.steps)
    texts, objects = (tuple(_path(path, i) for i in range(len(steps)) if path) for path in (options.output, options.object))
    claim((*texts, *objects), options.force)
    codes = [step.assemble() for step, _ in zip(steps, objects)]
    for path, step in zip(texts, steps):
        write(path, step.text.encode(), options.force)
    for path, code in zip(objects, codes):
        write(path, code, options.force)
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
            "text": None if options.output or options.object else kernel.text,
            "following": [{"kernel": step.name, "grid": step.grid, "block": step.block, "text": step.text} for step in steps[1:]],
        })  # fmt: skip
    elif not options.output and not options.object:
        print("\n".join(step.text for step in steps))
    else:
        written = " and ".join((*texts, *objects))
        show(
            f"{kernel.name} -> {written}",
            f"{used.instructions} instructions, {used.vgprs} VGPRs, {used.agprs} AccVGPRs, "
            f"{used.sgprs} SGPRs, {used.lds} bytes of LDS",
            f"grid {' x '.join(map(str, kernel.grid))} workgroups "
            f"of {' x '.join(map(str, kernel.block))} work-items",
        )
    return 0


def _path(path: str, number: int) -> str:
    """The file of kernel `number`: k.s, then k_2.s for the one that follows it."""
    stem, ending = os.path.splitext(path)
    return path if number == 0 else f"{stem}_{number + 1}{ending}"
