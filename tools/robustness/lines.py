"""Altered lines: drawn lines of this project, each changed, and the tests of its room run on the copy.

    python -m simgpu.tools.robustness.lines [--count N] [--seed S] [--only I ...] [--tests EXPRESSION] [--limit SECONDS] [--list]

The seed draws N lines of product code, each in another file as far as there are files, and one change for each: a comparison
or an operator that is another, an integer plus one, a condition negated, a result that is None. A mutant is

* killed: a test of its room fails, or the tests take longer than the limit;
* alive: all tests of the room pass.

Tests named like the file or its folder, and those that import it, run first, then the rest of the room. `--tests` is
pytest's `-m`, for example `exhaustive`.
Status 0 unless a line's file can no longer be parsed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from simgpu.tools.shared.console import show, table

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("hardware", "operators", "asm", "simgpu", "tools")
UNTESTED = ("tools/robustness", "tools/benchmarks")  # they measure the project
OTHER: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//", ast.BitAnd: "|", ast.BitOr: "&",
    ast.LShift: ">>", ast.RShift: "<<", ast.And: "or", ast.Or: "and",
}  # fmt: skip
KILLED, ALIVE = "killed", "alive"


@dataclass(frozen=True)
class LineMutant:
    """Change of one line."""

    file: str  # from the root of the project
    line: int  # from 1
    first: int  # columns of what is replaced, in bytes
    last: int
    text: str  # the replacement
    before: str  # what it replaces


@dataclass(frozen=True)
class LineOutcome:
    """Result of the tests on a mutant."""

    mutant: LineMutant
    verdict: str  # KILLED or ALIVE
    by: str  # the first test that failed, or why else it is killed


def product_files() -> list[Path]:
    """Files of product code, in the order of their names."""
    found = (path for top in TOPS for path in sorted((ROOT / top).rglob("*.py")) if "__pycache__" not in path.parts)
    return [path for path in found if path.name != "__init__.py" and not path.relative_to(ROOT).as_posix().startswith(UNTESTED)]


def mutants_of(path: Path) -> list[LineMutant]:
    """All changes of expressions in a file's functions, each on one line."""
    source = path.read_text()
    lines = source.splitlines()
    file = path.relative_to(ROOT).as_posix()
    found: dict[LineMutant, None] = {}
    for node, text in _changes(ast.parse(source)):
        if node.lineno == node.end_lineno and node.end_col_offset is not None:
            before = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            found[LineMutant(file, node.lineno, node.col_offset, node.end_col_offset, text, before)] = None
    return list(found)


def _changes(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Expressions inside functions, and a replacement for each; annotations are none."""
    inside = [
        node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for s in function.body for node in ast.walk(s)
    ]
    types = [node.annotation for node in inside if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None]
    types += [node.returns for node in inside if isinstance(node, ast.FunctionDef) and node.returns is not None]
    annotations = {id(node) for tree in types for node in ast.walk(tree)}
    for node in inside:
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield node.value, "None"
        text = _replacement(node)
        if text is not None and isinstance(node, ast.expr) and id(node) not in annotations:
            yield node, text


def _replacement(node: ast.AST) -> str | None:
    match node:
        case ast.Compare(left, [op], [right]):
            return f"({ast.unparse(left)} {OTHER[type(op)]} {ast.unparse(right)})"
        case ast.BinOp(left, op, right) if type(op) in OTHER:
            strings = isinstance(left, ast.Constant | ast.JoinedStr) and not isinstance(getattr(left, "value", None), int)
            return None if strings else f"(({ast.unparse(left)}) {OTHER[type(op)]} ({ast.unparse(right)}))"
        case ast.BoolOp(op, values):
            return "(" + f" {OTHER[type(op)]} ".join(f"({ast.unparse(value)})" for value in values) + ")"
        case ast.UnaryOp(ast.Not(), operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(value) if type(value) is int:
            return str(value + 1)
        case ast.IfExp(test, then, other):
            return f"({ast.unparse(other)} if {ast.unparse(test)} else {ast.unparse(then)})"
        case _:
            return None


def draw_mutants(count: int, seed: int) -> list[LineMutant]:
    """Mutants of lines drawn uniformly from all that can be changed, at most one a file."""
    rng = random.Random(seed)
    by_line: dict[tuple[str, int], list[LineMutant]] = {}
    for path in product_files():
        for mutant in mutants_of(path):
            by_line.setdefault((mutant.file, mutant.line), []).append(mutant)
    places = sorted(by_line)
    rng.shuffle(places)
    chosen: dict[str, LineMutant] = {}
    for place in places:
        if len(chosen) < count and place[0] not in chosen:
            chosen[place[0]] = rng.choice(by_line[place])
    return list(chosen.values())


def apply_mutant(text: str, mutant: LineMutant) -> str:
    """Returns the file's text with the change."""
    lines = text.splitlines(keepends=True)
    line = lines[mutant.line - 1].encode()
    lines[mutant.line - 1] = (line[: mutant.first] + mutant.text.encode() + line[mutant.last :]).decode()
    return "".join(lines)


def runs_of(mutant: LineMutant, tree: Path) -> list[list[str]]:
    """Arguments of pytest: files of tests named like the mutant's or its folder, or that import it; then the rest of the room."""
    path = Path(mutant.file)
    room = Path("tests") / path.parent
    while not (tree / room).is_dir():
        room = room.parent
    parts = path.with_suffix("").parts
    module = ".".join(parts if parts[0] == "simgpu" else ("simgpu", *parts))
    imports = re.compile(rf"^ *(?:from|import) {re.escape(module)}\b", re.M)
    tests = sorted(file.relative_to(tree) for file in (tree / "tests").rglob("test_*.py"))
    folder = path.parent.name if Path("tests") / path.parent != room else ""
    narrow = [file for file in tests if file in (room / f"test_{path.stem}.py", room / f"test_{folder}_{path.stem}.py")]
    narrow += [file for file in tests if file not in narrow and imports.search((tree / file).read_text())]
    narrow += [file for file in tests if file not in narrow and folder and file.match(f"{room}/test_{folder}*.py")]
    rest = [str(room), *(f"--ignore={file}" for file in narrow)]
    return [[*map(str, narrow)], rest] if narrow else [rest]


def judge(mutant: LineMutant, tree: Path, tests: str, limit: float) -> LineOutcome:
    """Runs the tests of the mutant's room in a copy of the project, which is as before afterwards."""
    file = tree / mutant.file
    original = file.read_text()
    file.write_text(apply_mutant(original, mutant))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])}
    try:
        for arguments in runs_of(mutant, tree):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
            command += ["-m", tests] if tests else []
            try:
                done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit)
            except subprocess.TimeoutExpired:
                return LineOutcome(mutant, KILLED, f"no end within {limit:g} s")
            if done.returncode not in (0, 5):  # 5: no test was selected
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return LineOutcome(mutant, KILLED, failed[0].split(" - ")[0] if failed else f"pytest's status {done.returncode}")
    finally:
        file.write_text(original)
    return LineOutcome(mutant, ALIVE, "")


def main(argv: list[str] | None = None) -> int:
    """Draws, alters, tests, and shows a row for each mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40, help="lines to draw (40)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants, from 0, of those drawn")
    parser.add_argument("--tests", default="", help="pytest's -m")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds that a room's tests may take (1200)")
    parser.add_argument("--list", action="store_true", help="show the draw and run nothing")
    parser.add_argument("--json", help="a file for the outcomes")
    options = parser.parse_args(argv)
    mutants = draw_mutants(options.count, options.seed)
    for mutant in mutants:
        ast.parse(apply_mutant((ROOT / mutant.file).read_text(), mutant))
    chosen = [(i, mutants[i]) for i in (range(len(mutants)) if options.only is None else options.only)]
    outcomes: dict[int, LineOutcome] = {}
    if not options.list:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "simgpu"
            shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".hypothesis"))
            for i, mutant in chosen:
                outcomes[i] = judge(mutant, tree, options.tests, options.limit)
                print(i, outcomes[i].verdict, outcomes[i].by, file=sys.stderr, flush=True)
                if options.json:
                    Path(options.json).write_text(json.dumps({i: asdict(outcome) for i, outcome in outcomes.items()}, indent=1))
    rows = [
        [str(i), f"{m.file}:{m.line}", m.before, m.text, *((outcomes[i].verdict, outcomes[i].by) if i in outcomes else ("", ""))]
        for i, m in chosen
    ]
    show(table("", ["number", "line", "was", "is", "verdict", "by"], rows, left=6))
    return 0


if __name__ == "__main__":
    sys.exit(main())
