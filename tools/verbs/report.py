"""`simgpu report`: resources of every node against their limits, derived and as the linked kernels take them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from simgpu.hardware.errors import LaunchError, TargetError, ToolchainError, UnsupportedInstruction
from simgpu.tools.cases.operator_options import add_operator_options, headline, operator_document, operator_tree
from simgpu.tools.page.page import add_html_option
from simgpu.tools.page.plan_page import save_plan_page
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.sheet import Items
from simgpu.tools.tables.limits import (
    bound_line,
    constraint_table,
    counter_documents,
    counter_rows,
    counter_table,
    errata_line,
    limits_document,
    sizes_line,
    target_answers,
    target_table,
)

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.operators.tree import Root
    from simgpu.tools.tables.kernel_use import KernelUse


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_operator_options(parser, more=_own_options)


def _own_options(parser: ArgumentParser) -> None:
    add_html_option(parser)
    parser.add_argument("--compare-targets", metavar="A,B,…", help="derive for these targets instead, side by side")
    parser.add_argument(
        "--schedule", action="store_true", help="the main loop in the model of time: matrix utilisation, stalls by reason"
    )


def run(options: Namespace) -> int:
    """Prints the tables; then raises ResourceError if the tiles cannot fit."""
    tree = operator_tree(options)
    if options.html and (options.compare_targets is not None or options.schedule):
        raise UsageError("--html shows one plan: leave --compare-targets and --schedule out")
    if options.compare_targets is not None:
        _targets(tree, options)
    elif options.schedule:
        from simgpu.tools.tables.schedule_report import show_schedule

        show_schedule(tree, options.json)
    else:
        _resources(tree, options)
        tree.derivation.check()
    return 0


def _targets(tree: Root, options: Namespace) -> None:
    answers = target_answers(tree, options.compare_targets.split(","))
    if options.json:
        print_json({**operator_document(tree, options.op), "targets": answers})
    else:
        show(tree.derivation.title, target_table(answers))


def _resources(tree: Root, options: Namespace) -> None:
    from simgpu.operators.feasibility import tree_report
    from simgpu.tools.tables.read_back import read_back, read_back_documents, read_back_tables
    from simgpu.tools.tables.resources import resource_documents, resource_rows, resource_table

    report = tree_report(tree)
    with progress("counting what the tree moves"):
        counted = counter_rows(tree) if report.feasible else ()
    with progress("assembling its kernels"):
        kernel, uses, why_not = _kernels(tree)
    steps = kernel.steps if kernel else ()
    taken = [
        (step, use, resource_rows(step.plan, step.block[0], use) if step.plan else []) for step, use in zip_longest(steps, uses)
    ]
    back = read_back(kernel, uses) if kernel and uses else []
    save_plan_page(options, tree, [(step.name, rows) for step, _, rows in taken])
    if options.json:
        print_json({
            **operator_document(tree, options.op), **limits_document(report), "counters": counter_documents(counted),
            "kernels": [
                {"kernel": step.name, "resources": resource_documents(rows), "instructions": use.instructions if use else None,
                 "code_bytes": use.code_bytes if use else None}
                for step, use, rows in taken
            ],
            "read_back": read_back_documents(back), "assembled": bool(uses), "why_not": why_not,
        })  # fmt: skip
        return
    limits = () if taken else (constraint_table(report.constraints),)
    show(Items(headline(tree).split(", ")), bound_line(report), sizes_line(report.tiles), *limits)
    for step, use, rows in taken:
        code = f": {use.instructions} instructions, {use.code_bytes} bytes of code" if use else ""
        show(f"\n{step.name}{code}", *((resource_table(rows),) if rows else ()))
    show(
        errata_line(report.constraints),
        *((counter_table(counted),) if counted else ()),
        *(read_back_tables(back) if back else (f"Derived figures only: {why_not}.",)),
    )


def _kernels(tree: Root) -> tuple[EmittedKernel | None, Sequence[KernelUse], str]:
    """Returns the tree's kernels and each one's use as linked; if this machine cannot make them, the reason."""
    from simgpu import asm
    from simgpu.tools.tables.kernel_use import linked_use

    if not tree.derivation.feasible:
        return None, (), "the tiles do not fit, so there is no kernel"
    kernel = None
    try:
        kernel = asm.emit(tree)
        return kernel, linked_use(kernel), ""
    except (ToolchainError, TargetError, UnsupportedInstruction, LaunchError) as error:
        return kernel, (), str(error)
