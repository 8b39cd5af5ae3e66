"""`simgpu help`: the documentation, which travels with the package."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from importlib.resources import files

from simgpu.tools.shared.console import add_json_option, print_json, show, table
from simgpu.tools.shared.errors import UsageError, did_you_mean

KINDS = ("tutorials", "how-to", "reference", "explanation")  # folders of docs/; its notes are not in the package


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="the page (default: a list of all)")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints a page, formatted on a terminal, or the list of pages with their titles."""
    found = pages()
    if options.topic is None:
        titles = {name: text.partition("\n")[0].lstrip("# ") for name, text in found.items()}
        if options.json:
            print_json(titles)
        else:
            show(table("Topics (simgpu help TOPIC; simgpu VERB --help lists options)", ("topic", "page"), titles.items(), left=2))
        return 0
    name = options.topic.removesuffix(".md")
    if name not in found:
        raise UsageError(f"no topic {options.topic!r}{did_you_mean(name, found)}; there are {', '.join(found)}")
    if options.json:
        print_json({"topic": name, "text": found[name]})
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        show(Markdown(found[name]))
    else:
        print(found[name], end="")
    return 0


def pages() -> dict[str, str]:
    """Returns the Markdown of each page by its name: `check.md` of any folder is `check`."""
    folder = files("simgpu").joinpath("docs")
    entries = [entry for name in ("", *KINDS) for entry in folder.joinpath(name).iterdir()]
    found = {entry.name.removesuffix(".md"): entry for entry in entries if entry.name.endswith(".md")}
    return {name: found[name].read_text("utf-8") for name in sorted(found)}
