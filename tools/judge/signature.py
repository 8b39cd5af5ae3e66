"""Arguments and launches of a HIP candidate, in words.

    x: f32[m, n:ldx], in out s: f32[n], alpha: f32, out y: f32[m], m: i32, ldx: i32

is an argument list in the kernel's order. `n:ldx` are n elements of rows that lie `ldx` elements apart; ldx is drawn. Scalars
that have a size's name get that size. The candidate's launches are comments, in order:

    // launch: partial(grid=cdiv(n, 256), block=256, args=(x, sums, n))
    // scratch: sums: f32[cdiv(n, 256)]
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.tools.judge.sizes import evaluate, parse
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import split_at_commas

IN, OUT, INOUT, SCRATCH = "in", "out", "inout", "scratch"
_ARGUMENT = re.compile(r"(?:(in\s+out|inout|out|in)\s+)?([A-Za-z_]\w*)\s*:\s*(\w+)\s*(?:\[(.*)\])?", re.DOTALL)
_COMMENT = re.compile(r"^\s*//\s*(launch|scratch):\s*(.*?)\s*$", re.MULTILINE)
MOST_LAUNCHES = 64


@dataclass(frozen=True)
class CandidateArgument:
    """An argument of the kernels: an array of elements in memory, or a number."""

    name: str
    kind: np.dtype
    use: str  # IN, OUT, INOUT or SCRATCH; a number is IN
    dimensions: tuple[ast.expr, ...] | None  # None: a number
    leading: str = ""  # the size that is the distance of rows, in elements; "": the rows are consecutive

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the extents of the array."""
        assert self.dimensions is not None
        return tuple(evaluate(each, sizes, self.name) for each in self.dimensions)


@dataclass(frozen=True)
class CandidateLaunch:
    """A launch of one of the candidate's kernels."""

    kernel: str
    grid: tuple[ast.expr, ...]  # workgroups
    block: tuple[ast.expr, ...]  # work-items
    lds: ast.expr  # dynamic LDS, bytes
    args: tuple[str, ...] | None  # names of arguments; None: the reference's list

    def extents(self, sizes: Mapping[str, int]) -> dict[str, object]:
        """Returns grid, block and dynamic LDS for `Kernel.launch`."""
        where = f"launch: {self.kernel}"
        grid, block = (tuple(evaluate(each, sizes, where) for each in extent) for extent in (self.grid, self.block))
        return {"grid": grid, "block": block, "dynamic_lds": evaluate(self.lds, sizes, where)}


def parse_arguments(text: str, arch: str, where: str) -> list[CandidateArgument]:
    """Parses an argument list. Raises UsageError.

    >>> [(one.name, one.use, one.kind.name, one.leading) for one in parse_arguments("x: f32[m, n:ldx], out y: f16[n], n: i32",
    ...     "gfx942", "ARGUMENTS")]
    [('x', 'in', 'float32', 'ldx'), ('y', 'out', 'float16', ''), ('n', 'in', 'int32', '')]
    """
    return [_argument(part, arch, where) for part in split_at_commas(text) if part.strip()]


def _argument(text: str, arch: str, where: str, use: str = "") -> CandidateArgument:
    found = _ARGUMENT.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{where}: {text.strip()!r}: write NAME: TYPE or NAME: TYPE[SIZES], with `out` or `inout` before a result")
    said, name, kind, inside = found.groups()
    use = use or "".join((said or IN).split())
    if inside is None:
        if use != IN:
            raise UsageError(f"{where}: {name} is a number, which no kernel can write: leave {said} out")
        return CandidateArgument(name, array_type(kind, arch), IN, None)
    extents = split_at_commas(inside)
    extents[-1], _, leading = (part.strip() for part in extents[-1].partition(":"))
    return CandidateArgument(name, array_type(kind, arch), use, tuple(parse(each, f"{where}: {name}") for each in extents), leading)


def parse_launches(source: str, default: str, arch: str, name: str) -> tuple[list[CandidateLaunch], list[CandidateArgument]]:
    """Reads the comments `launch:` and `scratch:` of a source; default: the launch if it has none. Raises UsageError.

    >>> launches, scratch = parse_launches("// launch: scale(grid=cdiv(n, 64), block=64)", "", "gfx942", "k.hip")
    >>> launches[0].kernel, launches[0].extents({"n": 100}), scratch
    ('scale', {'grid': (2,), 'block': (64,), 'dynamic_lds': 0}, [])
    """
    launches, scratch = [], []
    for what, text in _COMMENT.findall(source):
        if what == "launch":
            launches.append(_launch(text, name))
        else:
            scratch.append(_argument(text, arch, f"{name}: scratch", SCRATCH))
    if not launches and default:
        launches = [_launch(default, "LAUNCH")]
    if not launches:
        raise UsageError(f"{name} names no launch: write a comment, as `// launch: KERNEL(grid=cdiv(n, 256), block=256)`")
    if len(launches) > MOST_LAUNCHES:
        raise UsageError(f"{name} has {len(launches)} launches, more than {MOST_LAUNCHES}")
    return launches, scratch


def _launch(text: str, where: str) -> CandidateLaunch:
    where = f"{where}: launch"
    match parse(text, where):
        case ast.Call(func=ast.Name(id=kernel), args=[], keywords=keywords):
            given = {str(word.arg): word.value for word in keywords}
        case _:
            raise UsageError(f"{where}: {text!r}: write KERNEL(grid=..., block=...), as in scale(grid=cdiv(n, 256), block=256)")
    if unknown := [name for name in given if name not in ("grid", "block", "lds", "args")]:
        raise UsageError(f"{where}: {unknown[0]!r} is unknown: give grid, block, lds, args")
    if not {"grid", "block"} <= set(given):
        raise UsageError(f"{where}: {text!r} lacks grid or block")
    args = given.get("args")
    named = None if args is None else tuple(_name(each, where) for each in _several(args))
    return CandidateLaunch(kernel, _several(given["grid"]), _several(given["block"]), given.get("lds", ast.Constant(0)), named)


def _several(node: ast.expr) -> tuple[ast.expr, ...]:
    return tuple(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else (node,)


def _name(node: ast.expr, where: str) -> str:
    if not isinstance(node, ast.Name):
        raise UsageError(f"{where}: {ast.unparse(node)} in args: give names of arguments or scratch arrays")
    return node.id


def require_known(launches: Sequence[CandidateLaunch], arguments: Sequence[CandidateArgument], name: str) -> None:
    """Raises UsageError if a launch names an argument that nobody declared."""
    known = [one.name for one in arguments]
    for one in launches:
        for wanted in one.args or ():
            if wanted not in known:
                raise UsageError(f"{name}: launch {one.kernel}: no argument {wanted!r}; there are {', '.join(known)}")
