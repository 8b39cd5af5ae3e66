"""Others' kernels in a ring of elements: `python -m simgpu.tools.validation.ring tutorials FOLDER`.

Each configuration of a kernel is compared with sums by numpy, or with the first configuration. A kernel that is right up to the
order of its sums has the same bits in all of them (docs/explanation/ring.md).
"""

from __future__ import annotations

import sys
from argparse import RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from simgpu.hardware.errors import SimError
from simgpu.tools.cases.same import DIFFERENT, EQUAL, NARROWLY, NEARLY, UNKNOWN
from simgpu.tools.shared.console import print_json, progress, show, table
from simgpu.tools.shared.parser import Parser
from simgpu.tools.validation.ring.groups import FIRST, NOT_RUN, Group, Judged, judge

VERDICTS = (NARROWLY, NEARLY, UNKNOWN, DIFFERENT, NOT_RUN)
COLUMNS = ("kernel", "configurations", EQUAL, *VERDICTS)
SHOWN = 3  # configurations of a kernel whose difference is shown


def groups(kind: str, path: Path, target: str, scratch: Path, seed: int) -> Iterator[Group]:
    """Yields the kernels of a source."""
    if kind == "tutorials":
        from simgpu.tools.validation.ring.tutorials import Tutorials

        yield from Tutorials(path, target, scratch, seed).groups()
    elif kind == "dots":
        from simgpu.tools.validation.ring.dots import groups as dots

        yield from dots(path, target, scratch, seed)
    elif kind == "rocblas":
        from simgpu.tools.validation.ring.rocblas import groups as rocblas

        yield from rocblas(path, target, scratch, seed)
    else:
        from simgpu.tools.validation.ring.products import groups as products

        yield from products(path, target, seed)


def row(title: str, judged: list[Judged]) -> list[object]:
    """Returns a row of the table."""
    count = Counter(each.verdict for each in judged)
    return [title, len(judged), count[EQUAL] + count[FIRST], *(count[verdict] for verdict in VERDICTS)]


def main() -> int:
    """Prints a table; status 1 if a configuration differs."""
    parser = Parser(prog="python -m simgpu.tools.validation.ring", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("tutorials", "dots", "products", "rocblas"),
                        help="Triton's tutorials, the products of its test_core.py, AITER's or rocBLAS's products")  # fmt: skip
    parser.add_argument("path", type=Path,
                        help="the folder python/tutorials, test_core.py, a checkout of AITER, or rocBLAS's folder")  # fmt: skip
    parser.add_argument("--target", default="mi300x", help="the board (default: mi300x)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only kernels with this text in their titles")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    try:
        options = parser.parse_args()
        found: dict[str, list[Judged]] = {}
        with TemporaryDirectory() as scratch:
            for group in groups(options.kind, options.path, options.target, Path(scratch), options.seed):
                if options.only in group.title:
                    with progress(group.title):
                        found.setdefault(group.title, []).extend(judge(group))
    except SimError as error:
        print(error, file=sys.stderr)
        return 2
    judged = [each for several in found.values() for each in several]
    if options.json:
        print_json([asdict(each) for each in judged])
    else:
        show(table(f"In the ring on {options.target}", COLUMNS, [row(title, several) for title, several in found.items()]))
        show(*_lines(found))
    return int(any(each.verdict == DIFFERENT for each in judged))


def _lines(found: dict[str, list[Judged]]) -> Iterator[str]:
    for title, several in found.items():
        for verdict in (DIFFERENT, UNKNOWN, NOT_RUN):
            chosen = [each for each in several if each.verdict == verdict]
            for each in chosen[:SHOWN]:
                yield f"{title}: {each.label}: {verdict}{f': {each.reason}' if each.reason else ''}"
                for one in each.comparisons:
                    if one.verdict == DIFFERENT:
                        place, (first, second) = f"{one.names[0]}{list(one.index)}", one.got
                        yield f"  {one.differing} of {one.elements}, the first at {place}: {first:#x}, {second:#x}"
                yield from (f"  {branch}" for branch in each.branches[:1] if verdict == UNKNOWN)
            if len(chosen) > SHOWN:
                yield f"{title}: {verdict}: {len(chosen) - SHOWN} more"


if __name__ == "__main__":
    sys.exit(main())
