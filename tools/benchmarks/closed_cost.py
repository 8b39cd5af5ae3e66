"""Closed cost against the model of time, on random GEMMs: `python -m simgpu.tools.benchmarks.closed_cost`.

Board, type, m of 1 to 8,191, n of 64 to 11,585 and k of 256 to 11,585 are random. With `--whole`, n is a multiple of 64 and k
of 256, so that no load is cut.
With `--aiter CHECKOUT --data DIR` the other side is measured times of AITER's kernels, by their tiles only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgpu.hardware import target, targets
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.operators import GemmProblem, TiledComputation
from simgpu.operators.gemm.cost import Tiles, gemm_cost, gemm_seconds
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.tables.schedule_report import predictions
from simgpu.tools.validation import aiter
from simgpu.tools.validation.judge import board, zeroing
from simgpu.tools.validation.rows import Measurement, data_folder, read

COLUMNS = ("boards", "n", "mean |error| %", "median", "p90", "worst", "bias")
ROWS = ("m x n x k", "type", "board", "tile", "closed us", "us", "error %")
# Operands of AITER's families: B is (n,k), results are bf16. A step of their kernels is 128 bytes of k.
FAMILIES: dict[str, dict[str, Any]] = {
    "bf16gemm": {"dtype": "bf16"}, "i8gemm": {"dtype": "i8"}, "fp8gemm_blockscale": {"dtype": "fp8", "scales": "block"},
    "f4gemm": {"dtype": "fp4", "scales": "mx"},
}  # fmt: skip
STEP_BYTES = 128


@dataclass(frozen=True)
class CostComparison:
    """A GEMM with its times in seconds."""

    problem: GemmProblem
    board: str
    tile: str
    closed: float
    other: float  # modelled or measured

    @property
    def error(self) -> float:
        """Error of the closed cost, relative to the other."""
        return self.closed / self.other - 1

    def row(self) -> tuple[object, ...]:
        """Returns the values of ROWS."""
        p = self.problem
        times = (f"{1e6 * seconds:.1f}" for seconds in (self.closed, self.other))
        return f"{p.m}x{p.n}x{p.k}", p.dtype, self.board, self.tile, *times, f"{100 * self.error:+.1f}"


def draw(seed: int, count: int, whole: bool = False) -> Iterator[tuple[GemmProblem, HardwareDescriptor]]:
    """Draws `count` GEMMs and boards; whole: n in multiples of 64 and k in multiples of 256, so that no load is cut."""
    source = np.random.default_rng(seed)
    boards = [name for name in targets() if not name.startswith("gpu_")]
    of_n, of_k = (64, 256) if whole else (1, 1)
    for _ in range(count):
        m, n, k = (source.uniform(0, 13), source.uniform(0, 7.5), source.uniform(0, 5.5))
        sizes = int(2**m), of_n * int(2**n * 64 / of_n), of_k * int(2**k * 256 / of_k)
        chip = target(boards[int(source.integers(len(boards)))])
        kinds = chip.dtypes()
        yield GemmProblem(*sizes, kinds[int(source.integers(len(kinds)))]), chip


def compare(problem: GemmProblem, chip: HardwareDescriptor) -> CostComparison:
    """Prices the problem's derived tiles by both."""
    tree = TiledComputation.of(problem, chip)
    plan = tree.plan
    tiles = Tiles(plan.tile_m, plan.tile_n, plan.tile_k, plan.split_k, max(1, plan.resources.blocks_per_cu))
    closed = float(gemm_seconds(problem, chip, tiles)["total"])
    tile = f"{plan.tile_m}x{plan.tile_n}x{plan.tile_k}" + f"/{plan.split_k}" * (plan.split_k > 1)
    return CostComparison(problem, chip.name, tile, closed, sum(one.seconds for one in predictions(tree).values()))


def compare_measurement(row: Measurement, checkout: Path) -> CostComparison:
    """Prices a row of AITER's by its kernel's tile. Raises NotJudged."""
    call = aiter.call_of(row, checkout)
    tile, chip = aiter.tiles(call.path)[call.kernel], board(call.board)
    m, n, k = (int(part) for part in row.shape.split(" ")[0].split("x"))
    problem = GemmProblem(m, n, k, trans_b=True, dtype_c="bf16", **FAMILIES[call.path.parent.name])
    across = -(-n // tile["tilen"]) * -(-m // tile["tilem"])
    split = call.grid[0] * call.grid[1] * call.grid[2] // across
    tiles = Tiles(tile["tilem"], tile["tilen"], STEP_BYTES * 8 // problem.element.bits, split)
    # Parts of a split K are added in place, so there is no second kernel.
    closed = float(gemm_cost(problem, chip, tiles).terms()["total"]) + zeroing(call, pipelines(chip.arch).launch_us)
    return CostComparison(problem, chip.name, f"{tile['tilem']}x{tile['tilen']}/{split}", closed, 1e-6 * row.value)


def compare_shipped(folder: Path, checkout: Path) -> Iterator[CostComparison]:
    """Yields all rows of AITER's that can be priced."""
    for row in read(folder, "aiter*.csv.gz"):
        with suppress(aiter.NotJudged):
            yield compare_measurement(row, checkout)


def summary(name: str, found: Sequence[CostComparison]) -> tuple[object, ...]:
    """Returns the values of COLUMNS."""
    errors = 100 * np.array([one.error for one in found])
    size = np.abs(errors)
    values = size.mean(), np.median(size), np.quantile(size, 0.9), size.max(), errors.mean()
    return name, len(found), *(f"{value:.1f}" for value in values)


def main() -> None:
    """Prints the errors by board and the worst GEMMs."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.benchmarks.closed_cost", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=3, help="of the draw (default: 3)")
    parser.add_argument("--count", type=int, default=100, help="GEMMs (default: 100)")
    parser.add_argument("--whole", action="store_true", help="draw n in multiples of 64, k of 256")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--aiter", type=Path, metavar="CHECKOUT", help="measured times of AITER's kernels instead")
    parser.add_argument("--data", metavar="DIR", help="the tables of measurements")
    options = parser.parse_args()
    if options.aiter:
        found = list(compare_shipped(data_folder(options.data), options.aiter))
    else:
        found = [compare(*case) for case in draw(options.seed, options.count, options.whole)]
    if options.json:
        print_json({"rows": [dict(zip(ROWS, one.row(), strict=True)) for one in found]})
        return
    kinds = sorted({(one.board, one.problem.dtype if options.aiter else "") for one in found})
    rows = [
        summary(f"{name} {kind}".strip(), [one for one in found if one.board == name and kind in ("", one.problem.dtype)])
        for name, kind in kinds
    ]
    other = "measured times of AITER's kernels" if options.aiter else f"the model of time, seed {options.seed}"
    show(table(f"Closed cost against {other}", COLUMNS, [*rows, summary("all", found)]))
    worst = sorted(found, key=lambda one: -abs(one.error))[:8]
    show(table("Worst", ROWS, [one.row() for one in worst], left=4))


if __name__ == "__main__":
    main()
