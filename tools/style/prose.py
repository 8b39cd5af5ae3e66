"""Counts sentences, words and habit words of Markdown pages and of Python docstrings and comments.

    python -m simgpu.tools.style.prose --worst 5 README.md            # a line a page, then its longest sentences
    python -m simgpu.tools.style.prose --max 20,5,2 docs simgpu       # status 1 if a page or room is above a limit

A room is a folder of Python files, which count together. docs/reference/style.md explains the limits. Code, tables, quotes and
headings do not count.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LONG = 30  # words; a sentence with more is long
HABITS = (
    "behind", "told", "so many", "of which", "of those", "of that", "one behind the other", "besides", "reckon", "alone",
    "is asked", "are asked", "stands", "lies", "sake", "what is", "what was", "what it", "those that", "as it were",
)  # fmt: skip
_HABIT = {word: re.compile(rf"\b{word}\b", re.I) for word in HABITS}
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`(])")
_ITEM = re.compile(r"\s*([*-]|\d+\.)\s+")
_EXAMPLE = re.compile(r"^ *>>> .*?(?:\n\s*\n|\Z)", re.S | re.M)
# A comment, a string or other text: a tenth of the time of `tokenize`, which is written in Python.
_TOKEN = re.compile(r"""#.*|(?P<quote>\"{3}|'{3}|["'])(?:[^\\"']|\\[\s\S]|(?!(?P=quote))["'])*+(?P=quote)|[^\s#"']+""")
_NOT_PROSE = re.compile(r"\s*(\||#|>|!\[)| {4}")


@dataclass(frozen=True)
class Count:
    """Figures of a text: its sentences, and how often each habit word appears."""

    sentences: Sequence[str]
    habits: Counter[str] = field(default_factory=Counter)

    @property
    def words(self) -> int:
        return sum(len(sentence.split()) for sentence in self.sentences)

    @property
    def mean(self) -> float:
        """Mean words of a sentence."""
        return self.words / max(len(self.sentences), 1)

    @property
    def long(self) -> int:
        """Number of sentences of more than LONG words."""
        return sum(len(sentence.split()) > LONG for sentence in self.sentences)

    def faults(self, limits: Sequence[float]) -> list[str]:
        """Returns a text for each limit that is exceeded: mean words, percent of long sentences, habit words in 1,000."""
        figures = (
            ("mean words of a sentence", self.mean),
            (f"% of sentences over {LONG} words", 100 * self.long / max(len(self.sentences), 1)),
            ("habit words in 1,000", 1000 * self.habits.total() / max(self.words, 1)),
        )
        exceeded = [(*figure, limit) for figure, limit in zip(figures, limits, strict=True) if figure[1] > limit]
        return [f"{value:.1f} {name}, at most {limit:g}" for name, value, limit in exceeded]


def count(*paths: Path) -> Count:
    """Counts a page, or the docstrings and comments of Python files."""
    found: list[str] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for paragraph in _of_python(text) if path.suffix == ".py" else _of_page(text):
            found += sentences(paragraph)
    prose = " ".join(found)
    return Count(found, Counter({word: number for word, regex in _HABIT.items() if (number := len(regex.findall(prose)))}))


def sentences(paragraph: str) -> list[str]:
    """Returns the sentences of three words or more; a code span counts as one word.

    >>> sentences("Run `simgpu lint k.s`. It reads every path: no launch is needed. Done.")
    ['Run CODE.', 'It reads every path: no launch is needed.']
    """
    flat = re.sub(r"`[^`]*`", "CODE", " ".join(paragraph.split()))
    return [sentence for sentence in _END.split(flat) if len(sentence.split()) > 1 and sentence != "CODE"]


def _of_page(text: str) -> Iterator[str]:
    """Yields the paragraphs and list items of a page's running text."""
    paragraph: list[str] = []
    for line in re.sub(r"^```.*?^```", "", text, flags=re.S | re.M).splitlines():
        item = _ITEM.match(line)
        if item or not line.strip() or _NOT_PROSE.match(line):
            yield " ".join(paragraph)
            paragraph = []
        if item or not _NOT_PROSE.match(line):
            paragraph.append(line[item.end() :] if item else line)
    yield " ".join(paragraph)


def _of_python(text: str) -> Iterator[str]:
    """Yields docstrings by paragraphs, without examples, and comments, consecutive lines together."""
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_page(_EXAMPLE.sub("", ast.get_docstring(node) or ""))
    comment: list[str] = []
    for token in _TOKEN.finditer(text):
        if token[0].startswith("#"):
            comment.append(token[0].lstrip("#: "))
        elif comment:
            yield " ".join(comment)
            comment = []
    yield " ".join(comment)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a module or statement, and all statements in it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child)


def rooms(paths: Sequence[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Yields files, the pages of folders, and their rooms, each with its files."""
    for path in paths:
        if not path.is_dir():
            yield path, [path]
            continue
        yield from ((page, [page]) for page in sorted(path.rglob("*.md")))
        files = sorted(path.rglob("*.py"))
        for room in sorted({file.parent for file in files}):
            yield room, [file for file in files if file.parent == room]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line a page, room or file; returns 1 if one is above `--max`."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.style.prose")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="Markdown or Python, or a folder of such")
    parser.add_argument("--max", metavar="MEAN,LONG,HABITS", help="mean words, percent of long sentences, habit words in 1,000")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also the N longest sentences of each")
    options = parser.parse_args(arguments)
    limits = [float(limit) for limit in options.max.split(",")] if options.max else [float("inf")] * 3
    status = 0
    for path, files in rooms(options.files):
        found = count(*files)
        habits = "".join(f", {word} {number}" for word, number in found.habits.items())
        print(f"{path}: {len(found.sentences)} sentences, mean {found.mean:.1f} words, {found.long} over {LONG}{habits}")
        for sentence in sorted(found.sentences, key=lambda sentence: -len(sentence.split()))[: options.worst]:
            print(f"  {len(sentence.split())} words: {sentence}")
        for fault in found.faults(limits):
            print(f"  {fault}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
