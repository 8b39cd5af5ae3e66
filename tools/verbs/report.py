"""`simgpu report`: the per-node resource table, derived and as the assembled code object has it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from simgpu.hardware.errors import LaunchError, TargetError, ToolchainError, UnsupportedInstruction
from simgpu.tools.shared.console import print_json, show
from simgpu.tools.shared.gemm_options import headline, problem_document, tree_of
from simgpu.tools.shared.operator_options import EMITTED, add_operator_options, operator_tree
from simgpu.tools.tables.limits import bar_chart, counter_documents, counter_rows, counter_table, show_limits, show_targets

if TYPE_CHECKING:
    from simgpu.operators.gemm.tree import TiledComputation
    from simgpu.operators.tree import Root
    from simgpu.tools.tables.kernel_use import KernelUse


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_operator_options(parser, compare=True, more=_schedule)


def _schedule(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--schedule", action="store_true", help="the main loop in an in-order model: matrix utilisation, bounds, stalls by cause"
    )


def run(options: Namespace) -> int:
    """Prints the table; ResourceError behind it if the tiles cannot fit."""
    from simgpu.tools.tables.resources import resource_documents, resource_rows, resource_table

    if options.compare_targets is not None:
        show_targets(operator_tree(options), options.op, options.compare_targets.split(","), options.json)
        return 0
    if options.schedule:
        from simgpu.tools.tables.schedule_report import show_schedule

        show_schedule(operator_tree(options), options.json)
        return 0
    if options.op != "gemm":
        _operator(operator_tree(options), options.op, options.json)
        return 0
    tree = tree_of(options)
    plan = tree.derivation
    use, why_not = (
        assembled_use(tree) if plan.feasible else (None, "the tiles do not fit, so there is no kernel")
    )
    rows = resource_rows(plan, use)
    counted = counter_rows(tree) if plan.feasible else ()
    if options.json:
        print_json({
            **problem_document(tree),
            "feasible": plan.feasible,
            "binding": plan.binding.name,
            "resources": resource_documents(rows),
            "counters": counter_documents(counted),
            "instructions": use.instructions if use else None,
            "code_bytes": use.code_bytes if use else None,
            "assembled": use is not None,
            "why_not": why_not,
        })  # fmt: skip
    else:
        counters = (counter_table(counted),) if counted else ()
        show(headline(tree), resource_table(rows), *counters, bar_chart(plan.constraints), f"\nBound by {plan.binding.name}.")
        if use:
            show(
                f"Actual: the linked code object's {use.instructions} instructions, "
                f"{use.code_bytes} bytes of code."
            )
        else:
            show(f"Derived figures only: {why_not}.")
    plan.check()
    return 0


def _operator(tree: Root, op: str, as_json: bool) -> None:
    """Limits, and where the operator has kernels, what these take."""
    from simgpu.tools.tables.read_back import read_back_documents, read_back_of, read_back_table

    if op not in EMITTED:
        show_limits(tree, op, as_json, bars=True)
        return
    rows, why_not = read_back_of(tree)
    more = {"read_back": read_back_documents(rows), "assembled": bool(rows), "why_not": why_not}
    show_limits(tree, op, as_json, True, more, [read_back_table(rows) if rows else f"Derived figures only: {why_not}."])


def assembled_use(tree: TiledComputation) -> tuple[KernelUse | None, str]:
    """The linked kernel's use, or None and the reason why there is no kernel on this machine."""
    from simgpu import asm
    from simgpu.hardware.code_object.code_object import CodeObject
    from simgpu.tools.tables.kernel_use import kernel_use

    try:
        kernel = asm.emit(tree)
        code = CodeObject.parse(kernel.assemble())
    except (ToolchainError, TargetError, UnsupportedInstruction, LaunchError) as error:
        return None, str(error)
    return kernel_use(code, code.kernels[kernel.name]), ""
