"""`simgpu same`: whether two kernels compute the same, exactly: on the same inputs, in a ring of elements."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from simgpu.tools.cases.operator_options import names_operator
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.same import DIFFERENT, EQUAL, NARROWLY, NEARLY, UNKNOWN, ArrayComparison, Side, compare, verdict_of
from simgpu.tools.cases.subject import subjects
from simgpu.tools.shared.console import add_json_option, print_json, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import own_options

USAGE = """Two files share the options of `simgpu exec`; otherwise `and` separates two launches,
a FILE with the options of `simgpu exec` or an OP with those of `simgpu run`:
  simgpu same old.co new.co --grid 4 --arg random:f32:64x64 --arg zeros:f32:64x64
  simgpu same gemm -m 64 -n 64 -k 99 --target mi100 and gemm -m 64 -n 64 -k 99 --target mi300x
Floats are integers modulo 2^32 in both (docs/explanation/ring.md): the order of sums, tiles and
splits do not matter, a product too many or too few does.
"""
MEANING = {
    EQUAL: "EQUAL: the same bits, so the same sums of the same products",
    NARROWLY: "EQUAL modulo 2^16: the same sums of products, where values are rounded to f16 or bf16 in between",
    NEARLY: "EQUAL modulo 2^15: the same sums of products; some that were stored as f16 or bf16 were -2^15, which has no bits",
    DIFFERENT: "DIFFERENT",
    UNKNOWN: "UNKNOWN: the results differ, but so may the ways that branches took, which depend on floats",
}
UNEXPLAINED = "no product of two inputs accounts for it; combined constants (x*2*3, x*6) look so, too: simgpu help equal"
SHOWN = 4  # branches that are listed


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; the launches follow."""
    add_json_option(parser)
    parser.add_argument("first", metavar="FILE|OP", help=f"a code object, assembly, or one of {', '.join(OPERATORS)}")
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="FILE and options, or options, `and` and another launch")


def run(options: Namespace) -> int:
    """Launches both and prints the verdict; status 1 unless they are equal."""
    wanted, words = own_options(add_json_option, options)
    launches = _launches([options.first, *words])
    sides = [Side.of(" ".join(words), subjects("same", words[0], words[1:], compares=False, ring=True)) for words in launches]
    comparisons = compare(*sides)
    verdict = verdict_of(comparisons, sides)
    if wanted.json:
        each = [asdict(comparison) for comparison in comparisons]
        print_json({"verdict": verdict, "arrays": each, "branches": [side.branches for side in sides]})
    else:
        show(*(line for comparison in comparisons for line in _lines(comparison)), MEANING[verdict])
        if verdict == UNKNOWN:
            show(*_branch_lines(sides))
    return 0 if verdict in (EQUAL, NARROWLY, NEARLY) else 1


def _launches(words: list[str]) -> list[list[str]]:
    """Splits the words at `and`, or gives two files the same options. Raises UsageError for anything else."""
    if words.count("and") == 1:
        at = words.index("and")
        both = words[:at], words[at + 1 :]
        if all(both):
            return [list(launch) for launch in both]
    elif "and" not in words and len(words) > 1 and not names_operator(words[0]) and not words[1].startswith("-"):
        return [[Path(name).as_posix(), *words[2:]] for name in words[:2]]
    raise UsageError("give two files and their options, or two launches with `and` between them; see `simgpu same --help`")


def _lines(comparison: ArrayComparison) -> list[str]:
    one, two = comparison.names
    names = one if one == two else f"{one} and {two}"
    if comparison.verdict == EQUAL:
        return [f"{names}: all {comparison.elements:,} elements are equal"]
    if comparison.verdict in (NARROWLY, NEARLY):
        return [f"{names}: all {comparison.elements:,} elements are {comparison.verdict}, {comparison.differing:,} only so"]
    place = f"{one}[{','.join(map(str, comparison.index))}]"
    first, second = comparison.got
    return [
        f"{names}: {comparison.differing:,} of {comparison.elements:,} elements differ",
        f"  first {place}: element {first:#x} and {second:#x}",
        *(f"  {reason}" for reason in comparison.reasons or [UNEXPLAINED]),
    ]


def _branch_lines(sides: Iterable[Side]) -> list[str]:
    found = [branch for side in sides for branch in side.branches]
    more = [f"  and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return [*(f"  {branch}" for branch in found[:SHOWN]), *more]
