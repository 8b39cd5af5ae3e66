"""`simgpu baselines`: tiles of the paper, of Triton's tutorial and of Origami's published rankings, next to ours."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from math import exp, log
from pathlib import Path

from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.errors import UsageError

SHAPES = ("4096x4096x4096", "8192x8192x8192", "16x28672x8192", "512x512x32768")


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("shapes", nargs="*", metavar="MxNxK", help=f"GEMMs (default: {' '.join(SHAPES)})")
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--dtype", default="bf16", help="type of A and B (default: bf16)")
    parser.add_argument("--origami", metavar="FILE", help="rankings of AMD's Origami: compare on its problems")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints one table per problem, or the comparison with Origami's tiles."""
    from simgpu.hardware import target
    from simgpu.operators import GemmProblem
    from simgpu.tools.cost.baselines import COLUMNS, baselines

    descriptor = target(options.target)
    if options.origami:
        return _origami(options)
    tables, document = [], []
    for shape in options.shapes or SHAPES:
        parts = shape.split("x")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            raise UsageError(f"{shape!r} is no GEMM: give M x N x K as in {SHAPES[0]}")
        m, n, k = map(int, parts)
        with progress(f"searching for {shape}"):
            found = baselines(GemmProblem(m, n, k, options.dtype), descriptor)
        rows = [row.row(found[0].seconds) for row in found]
        tables.append(table(shape, COLUMNS, rows, left=2))
        document.append({"shape": shape, "rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})
    if options.json:
        print_json({"target": options.target, "dtype": options.dtype, "problems": document})
        return 0
    show(f"Tiles of a GEMM by who chose them, on {options.target}, {options.dtype}: bytes, LDS, occupancy, modelled time", *tables)
    return 0


def _origami(options: Namespace) -> int:
    """Prints the geometric means of bytes and times, ours over Origami's, by size of the problem."""
    from simgpu.hardware import target
    from simgpu.tools.cost.baselines import origami

    path = Path(options.origami)
    if not path.is_file():
        raise UsageError(f"{path} is no file: give a ranking of shared/origami/python/tests/baselines/rankings")
    with progress("planning what Origami ranks"):
        found = list(origami(path.read_text("utf-8", errors="replace"), target(options.target), options.dtype))
    if not found:
        raise UsageError(f"{path} ranks no tile that fits {options.target}: give a ranking of its architecture")
    groups = {
        "all": found,
        "m, n, k >= 1024": [row for row in found if min(row[0].m, row[0].n, row[0].k) >= 1024],
        "others": [row for row in found if min(row[0].m, row[0].n, row[0].k) < 1024],
    }
    columns = ("problems", "count", "L2 bytes", "HBM bytes", "modelled time", "slowest")
    rows = []
    for name, group in groups.items():
        if group:
            pairs = [(ours.l2_bytes / theirs.l2_bytes, ours.hbm_bytes / theirs.hbm_bytes, ours.seconds / theirs.seconds)
                     for _, ours, theirs in group]  # fmt: skip
            means = (exp(sum(map(log, values)) / len(values)) for values in zip(*pairs, strict=True))
            rows.append((name, len(group), *means, max(pair[2] for pair in pairs)))
    if options.json:
        found_rows = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"target": options.target, "dtype": options.dtype, "rows": found_rows})
        return 0
    show(f"Our tiles over Origami's, {options.target}, {options.dtype}: geometric means", table("Ratios", columns, rows, left=1))
    return 0
