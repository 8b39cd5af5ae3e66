"""`simgpu report`: the per-node resource table, derived and as the assembled code object has it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from hardware.errors import LaunchError, TargetError, ToolchainError, UnsupportedInstruction
from tools.console import print_json, show
from tools.problem import add_problem_options, headline, problem_document, tree_of

if TYPE_CHECKING:
    from operators.gemm import TiledComputation
    from tools.use import KernelUse


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_problem_options(parser)


def run(options: Namespace) -> int:
    """Prints the table; ResourceError behind it if the tiles cannot fit."""
    from tools.resources import resource_documents, resource_rows, resource_table

    tree = tree_of(options)
    plan = tree.derivation
    use, why_not = (
        assembled_use(tree) if plan.feasible else (None, "the tiles do not fit, so there is no kernel")
    )
    rows = resource_rows(plan, use)
    if options.json:
        print_json({
            **problem_document(tree),
            "feasible": plan.feasible,
            "binding": plan.binding.name,
            "resources": resource_documents(rows),
            "instructions": use.instructions if use else None,
            "code_bytes": use.code_bytes if use else None,
            "assembled": use is not None,
            "why_not": why_not,
        })  # fmt: skip
    else:
        show(headline(tree), resource_table(rows), f"\nBound by {plan.binding.name}.")
        if use:
            show(
                f"Actual: the linked code object's {use.instructions} instructions, "
                f"{use.code_bytes} bytes of code."
            )
        else:
            show(f"Derived figures only: {why_not}.")
    plan.check()
    return 0


def assembled_use(tree: TiledComputation) -> tuple[KernelUse | None, str]:
    """The linked kernel's use, or None and the reason why there is no kernel on this machine."""
    import asm
    from hardware.codeobject import CodeObject
    from tools.use import kernel_use

    try:
        kernel = asm.emit(tree)
        code = CodeObject.parse(kernel.assemble())
    except (ToolchainError, TargetError, UnsupportedInstruction, LaunchError) as error:
        return None, str(error)
    return kernel_use(code, code.kernels[kernel.name]), ""
