"""`simgpu paper`: every number of the paper, what both policies give, the erratum where they differ, and the tests. Prints
docs/reference/paper.md."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from simgpu.tools.shared.console import add_json_option, print_json, progress
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.validation.paper.entry import PaperNumber
from simgpu.tools.validation.paper.families import FAMILIES, family_table
from simgpu.tools.validation.paper.figures import figure_1
from simgpu.tools.validation.paper.numbers import entries


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the document (Markdown) to FILE")
    add_force_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the document, or its rows as JSON."""
    claim([options.output], options.force)
    with progress("computing the paper's tables"):
        text = document()
    if options.output is not None:
        write(options.output, text.encode(), options.force)
    if options.json:
        print_json({"entries": [entry.document() for entry in entries()], "families": [vars(family) for family in FAMILIES]})
    else:
        print(text, end="")
    return 0


def document() -> str:
    """Returns the text of docs/reference/paper.md."""
    parts = [
        "# The paper's numbers, recomputed\n",
        "How does each number of the paper compare with ours? `simgpu paper -o docs/reference/paper.md --force`",
        "writes this page; do not edit it.\n",
        "| column | holds |",
        "|---|---|",
        "| paper | the paper's statement, quoted |",
        "| published | the paper's own formulas, as this repository implements them |",
        "| corrected | the default policy |",
        "| erratum | E1 to E31: the paper's statement does not hold |\n",
        "All cells beside the paper's are computed, except cells marked (quoted), which no formula of the",
        "paper gives. Times and rates marked *measured* are the paper's own. We measured nothing on a GPU.\n",
    ]
    rows = entries()
    for name in dict.fromkeys(entry.section for entry in rows):
        parts += [f"## {name}\n", "| | paper | published | corrected | erratum | |", "|---|---|---|---|---|---|"]
        parts += [_line(entry) for entry in rows if entry.section == name]
        parts.append("")
    parts += [family_table(), figure_1()]
    return "\n".join(parts)


def _line(entry: PaperNumber) -> str:
    cells = map(str, (entry.what, entry.paper, entry.published, entry.corrected, entry.errata, entry.why))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
