"""Command line: draws problems, times the formula's tiles and all others, prints regret.

    python -m simgpu.tools.validation.paper.silicon [--operator gemm ...] [--count 20] [--seed 8] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import SimError
from simgpu.tools.validation.paper.silicon.boards import board
from simgpu.tools.validation.paper.silicon.candidates import by_formula, candidates
from simgpu.tools.validation.paper.silicon.shapes import DRAW, Problem, draw

POLICIES = ("corrected", "published")


def sizes(problem: Problem) -> str:
    """Returns the sizes of a problem as a row names them."""
    names = ("m", "n", "k") if hasattr(problem, "k") else ("rows", "n") if hasattr(problem, "rows") else ("heads", "lq", "d")
    return "x".join(str(getattr(problem, name)) for name in names)


def compare(operator: str, problems: Sequence[Problem], chip: HardwareDescriptor) -> list[dict[str, object]]:
    """Times all candidates of the problems. Returns a row a problem: best, and each policy's tiles and regret."""
    from simgpu.tools.validation.paper.silicon import measure

    chosen = {policy: [by_formula(problem, chip, policy) for problem in problems] for policy in POLICIES}
    tiles = [
        list(dict.fromkeys([*(one for policy in POLICIES if (one := chosen[policy][at])), *candidates(problem, chip)]))
        for at, problem in enumerate(problems)
    ]
    measure.compile_all((problem, one) for problem, some in zip(problems, tiles, strict=True) for one in some)
    rows: list[dict[str, object]] = []
    for at, problem in enumerate(problems):
        found = measure.times(operator, problem, tiles[at])
        best = min(found, key=lambda one: found[one])
        row: dict[str, object] = {
            "operator": operator, "sizes": sizes(problem), "tried": len(found), "best": asdict(best), "best_us": found[best],
        }  # fmt: skip
        for policy in POLICIES:
            mine = chosen[policy][at]
            took = found.get(mine, math.nan) if mine else math.nan
            row |= {policy: asdict(mine) if mine else None, f"{policy}_us": took, f"{policy}_regret": took / found[best]}
        rows.append(row)
        print(line(row), flush=True)
    return rows


def line(row: dict[str, object]) -> str:
    """Returns a row for a person."""
    best, mine = row["best"], row["corrected"]
    assert isinstance(best, dict) and (mine is None or isinstance(mine, dict))
    return (
        f"{row['operator']:<10}{row['sizes']:<18}{row['best_us']:9.1f} us {_tiles(best):<24}"
        f"{row['corrected_regret']:6.2f} {_tiles(mine):<24}{row['published_regret']:6.2f}"
    )


def _tiles(one: dict[str, int] | None) -> str:
    if one is None:
        return "no kernel"
    sides = "x".join(str(one[name]) for name in ("m", "n", "k") if one[name])
    return f"{sides} w{one['warps']} s{one['stages']}" + (f" /{one['split']}" if one["split"] > 1 else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Exit status 2 without PyTorch, Triton or a GPU that has a descriptor."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.validation.paper.silicon")
    parser.add_argument("--operator", choices=tuple(DRAW), action="append", help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=20, help="problems of each operator (20)")
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args(argv)
    try:
        import torch
        import triton  # noqa: F401

        if not torch.cuda.is_available():
            raise ImportError("PyTorch finds no GPU")
        properties = torch.cuda.get_device_properties(0)
        chip = board(properties.name, getattr(properties, "gcnArchName", ""))
    except (ImportError, SimError) as error:
        print(f"this comparison needs PyTorch, Triton and a GPU: {error}", file=sys.stderr)
        return 2
    print(f"{properties.name}: best of all tiles, then the formula's with its regret, then the paper's as printed")
    rows = []
    for operator in options.operator or DRAW:
        rows += compare(operator, draw(operator, options.seed, options.count), chip)
    for operator in options.operator or DRAW:
        for policy in POLICIES:
            print(summary(operator, policy, rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


def summary(operator: str, policy: str, rows: Sequence[dict[str, object]]) -> str:
    """Returns a line on the regret of a policy's tiles; those without a kernel of Triton's are only counted."""
    all_of = [float(row[f"{policy}_regret"]) for row in rows if row["operator"] == operator]  # type: ignore[arg-type]
    some = sorted(value for value in all_of if not math.isnan(value))
    if not some:
        return f"{operator} {policy}: none of {len(all_of)} has a kernel"
    mean = math.exp(sum(map(math.log, some)) / len(some))
    return (
        f"{operator} {policy}: {len(some)} of {len(all_of)} have a kernel; "
        f"regret: mean {mean:.3f}, median {some[len(some) // 2]:.3f}, worst {some[-1]:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
