"""`simgpu tree`: the algorithm tree, in the form of the paper's Figure 1."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from simgpu.tools.cases.operator_options import add_operator_options, operator_document, operator_tree
from simgpu.tools.shared.console import print_json


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_operator_options(parser)


def run(options: Namespace) -> int:
    """Prints the tree. Raises ResourceError if the tiles cannot fit."""
    tree = operator_tree(options)
    text = tree.tree()
    if not options.json:
        print(text)
        return 0
    nodes = [
        {
            "level": str(node.level),
            "title": node.describe()[0][0],
            "tiles": {view.operand: list(view.tile_shape) for view in node.views},
            "lines": [line for section in node.describe() for line in section[1:]],
        }
        for node in tree.representatives()
    ]
    print_json({**operator_document(tree, options.op), "nodes": nodes, "text": text})
    return 0
