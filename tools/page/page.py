"""A page: a document packed into one HTML file that needs no network, no server and no other file."""

from __future__ import annotations

import base64
import json
import os
import zlib
from argparse import ArgumentParser
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from simgpu.hardware.code_object.names import printable_name
from simgpu.tools.page.side_by_side import pairs
from simgpu.tools.shared.console import plain
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.outputs import add_force_option, write
from simgpu.version import VERSION

FORMAT = 1  # of the document; this version reads no other
MOST_BYTES = 5_000_000
# The views' files, in the order of the page's one script.
SCRIPTS = (
    "base.js", "numbers.js", "source.js", "tables.js", "fragments.js", "lds.js", "tree.js", "roofline.js", "waves.js",
    "traffic.js", "compare.js", "advice.js", "shell.js",
)  # fmt: skip
# Nothing may be fetched, whatever a document holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
# Parts that a document drops if it is too large, in this order: path of keys, and their name on the page.
SPARED = (
    (("kernels", "visits"), "values of matrix instructions"),
    (("kernels", "stops"), "registers"),
    (("kernels", "files"), "source files"),
    (("kernels", "lds"), "addresses of LDS accesses"),
    (("kernels", "waves"), "the timeline of waves"),
    (("kernels", "traffic"), "pictures of buffers"),
)


def add_html_option(parser: ArgumentParser, against: bool = False) -> None:
    """Adds --html and --force, the same for every verb that has a page; --against for verbs that launch."""
    parser.add_argument("--html", metavar="FILE", help="write one page to look at: `simgpu help look`")
    if against:
        parser.add_argument("--against", metavar="PAGE", help="with --html: compare with the page of another run of the kernels")
    add_force_option(parser)


@dataclass(frozen=True)
class Page:
    """A document, with the title and the notes of its page."""

    title: str  # of the window
    document: dict[str, Any]  # plain values for `script/` (docs/how-to/look.md lists the parts)
    command: str = ""  # that made it
    notes: list[str] = field(default_factory=list)  # remarks for the page

    def html(self) -> str:
        """Returns the file's text, at most MOST_BYTES of UTF-8. A larger document drops some of its parts, with a note.

        Raises UsageError if that is not enough.
        """
        document, notes = dict(self.document), list(self.notes)
        for spared in (None, *SPARED):
            if spared is not None:
                (part, key), what = spared
                if not any(key in entry for entry in document.get(part, [])):
                    continue
                document[part] = [{name: value for name, value in entry.items() if name != key} for entry in document[part]]
                notes.append(f"left out, as the page would be larger than {MOST_BYTES / 1e6:g} MB: {what}")
            made = self._fill(document, notes)
            if len(made.encode()) <= MOST_BYTES:
                return made
        raise UsageError(f"{self.title}: its page would be larger than {MOST_BYTES / 1e6:g} MB; choose a smaller kernel")

    def _fill(self, document: dict[str, Any], notes: list[str]) -> str:
        head = {"format": FORMAT, "simgpu": VERSION, "title": self.title, "command": self.command, "notes": notes}
        whole = {**head, **document}
        try:
            text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError):  # values that JSON lacks; converting all of a large document takes long
            text = json.dumps(plain(whole), separators=(",", ":"), allow_nan=False)
        data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        here = files("simgpu.tools.page")
        style = (here / "style.css").read_text("utf-8")
        script = "\n".join((here / "script" / name).read_text("utf-8") for name in SCRIPTS)
        return (
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            f"<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            f"<meta name=\"generator\" content=\"simgpu {VERSION}\">\n<title>{escape(self.title)} · simgpu</title>\n"
            f"<style>\n{style}</style>\n</head>\n<body>\n<noscript>This page draws itself with JavaScript.</noscript>\n"
            f"<script id=\"data\" type=\"application/octet-stream\">{data}</script>\n"
            f"<script type=\"module\">\n{script}</script>\n</body>\n</html>\n"
        )

    def save(self, path: str | os.PathLike[str], force: bool = True) -> None:
        """Writes the file whole or not at all. Raises OSError, and UsageError if the file exists and not `force`."""
        write(os.fspath(path), self.html().encode(), force)

    def _repr_html_(self) -> str:
        """Returns the page in its own frame for Jupyter, since its style and script are for a whole window."""
        look = "width:100%;height:640px;border:1px solid #8884"
        return f'<iframe srcdoc="{escape(self.html())}" style="{look}" title="{escape(self.title)}"></iframe>'


LARGEST = 256 << 20  # bytes of a page's file, and of its expanded data
COMPARED = ("executions", "bytes", "distinct", "idle", "lds_lost", "stall")  # columns of a kernel's code


def comparison_document(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns another run's figures of the same kernels, for the part `against` of a document.

    A kernel that was compiled differently has its other instructions, and `pairs` of rows here and there (`side_by_side`). Raises
    UsageError for a file that is no page of this version, and for a page of other kernels.
    """
    other = read_document(path)
    if not _comparable(other):
        raise UsageError(f"--against {path}: --html did not write its data: make the page again")
    names, others = ([kernel["name"] for kernel in one.get("kernels", [])] for one in (document, other))
    if names != others:
        listed = printable_name(", ".join(others) or "no kernel")
        raise UsageError(f"--against {path}: a page of {listed}, this is one of {', '.join(names)}")
    kernels = [_figures_of(mine, theirs) for mine, theirs in zip(document["kernels"], other["kernels"], strict=True)]
    return {"title": other["title"], "command": other["command"], "kernels": kernels}


def _figures_of(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of one kernel of another page."""
    there = theirs["code"]["columns"]
    columns = {name: there[name] for name in COMPARED if name in there}
    made = {"counters": theirs["counters"], "instructions": theirs["instructions"], "columns": columns}
    text = mine["code"]["columns"]["text"]
    if text != there["text"]:
        made["columns"] = {**columns, "text": there["text"]}
        made["pairs"] = pairs(text, there["text"])
        made["resources"] = theirs.get("resources", {})
    return made


def _comparable(document: dict[str, Any]) -> bool:
    """True if a document that was read has the parts that `comparison_document` needs, each of its type."""
    try:
        columns = [kernel["code"]["columns"] for kernel in document.get("kernels", [])]
        counted = [[kernel["instructions"], *kernel["counters"].values()] for kernel in document.get("kernels", [])]
        texts = [document["title"], document["command"], *(kernel["name"] for kernel in document.get("kernels", []))]
        texts += [text for each in columns for text in each["text"]]
        held = [each[name] for each in columns for name in COMPARED if name in each]
        numbers = [number for each in (*counted, *held) for number in each]
    except (AttributeError, KeyError, TypeError):
        return False
    rows = all(len(each[name]) in (0, len(each["text"])) for each in columns for name in COMPARED if name in each)
    return rows and all(isinstance(text, str) for text in texts) and all(isinstance(number, int | float) for number in numbers)


def read_document(path: str) -> dict[str, Any]:
    """Reads the document of a page's file. Raises UsageError for a file that is no page, too large, or of another version."""
    if Path(path).stat().st_size > LARGEST:
        raise UsageError(f"{path}: more than {LARGEST >> 20} MiB, as no page has")
    text = Path(path).read_text("utf-8", errors="replace")
    _, found, rest = text.partition('<script id="data" type="application/octet-stream">')
    try:
        packed = zlib.decompressobj()
        expanded = packed.decompress(base64.b64decode(rest.partition("</script>")[0]), LARGEST)
        if packed.unconsumed_tail:
            raise UsageError(f"{path}: its data is more than {LARGEST >> 20} MiB, as no page's is")
        document = json.loads(expanded)
    except (ValueError, zlib.error, RecursionError):
        document = None
    if not found or not isinstance(document, dict):
        raise UsageError(f"{path}: no page of simgpu: give a file that --html wrote")
    if document.get("format") != FORMAT:
        made = printable_name(str(document.get("simgpu")))
        raise UsageError(f"{path}: a page of simgpu {made}: make it again with this version, {VERSION}")
    return document
