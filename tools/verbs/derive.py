"""`simgpu derive`: tiles, every constraint with limit, use and slack, and the binding constraint."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from simgpu.tools.cases.operator_options import add_operator_options, headline, operator_document, operator_tree
from simgpu.tools.page.page import add_html_option
from simgpu.tools.page.plan_page import save_plan_page
from simgpu.tools.shared.console import print_json, show
from simgpu.tools.shared.sheet import Items
from simgpu.tools.tables.limits import bound_line, constraint_table, errata_line, limits_document, sizes_line


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_operator_options(parser, more=add_html_option)


def run(options: Namespace) -> int:
    """Prints the derivation; then raises ResourceError if the tiles cannot fit."""
    from simgpu.operators.feasibility import tree_report

    tree = operator_tree(options)
    plan = tree.derivation
    report = tree_report(tree)
    save_plan_page(options, tree)
    figures = options.operator.figures(plan)
    if options.json:
        print_json({**operator_document(tree, options.op), **limits_document(report), "figures": figures})
    else:
        show(
            Items(headline(tree).split(", ")),
            bound_line(report),
            *(sizes_line(sizes) for sizes in (report.tiles, figures) if sizes),
            constraint_table(report.constraints),
            errata_line(report.constraints),
        )
    plan.check()
    return 0
