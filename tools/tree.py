"""`simgpu tree`: the algorithm tree, in the form of the paper's Figure 1."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tools.console import print_json
from tools.problem import add_problem_options, problem_document, tree_of


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_problem_options(parser)


def run(options: Namespace) -> int:
    """Prints the tree; ResourceError if the tiles cannot fit."""
    from operators.tree import representatives

    tree = tree_of(options)
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
        for node in representatives(tree)
    ]
    print_json({**problem_document(tree), "nodes": nodes, "text": text})
    return 0
