"""Choice of the model among AITER's kernels against the measured one: `python -m simgpu.tools.validation.choices CHECKOUT`.

Shapes are drawn by hash from the tables' history (`tuned.py`). The model times the measured winner of a shape. Then it times each
kernel and split that AITER's tuner had at the winner's commit, unless a lower bound shows that it is slower. So the winner's rank
is exact, and the least time is the least. `--pairs` draws from shapes with several measured kernels, and times only these: the
model's choice has a measured time there, hence a measured regret.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from simgpu.hardware.errors import SimError
from simgpu.hardware.rates.clocks import Busy, sustained_clock
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.predict import predict
from simgpu.tools.shared.console import count_progress, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import Parser
from simgpu.tools.validation.aiter import FAMILIES, ShippedLaunch, objects, tiles
from simgpu.tools.validation.judge import board, profiled_us, sampled_call, zeroing
from simgpu.tools.validation.tuned import ARCHS, TunedShape, TunedTimes, kernels_of_commit, splits_tried, tuned_times

# Type, bytes, and the type's name in hardware/rates/clocks.py:
ELEMENTS = {
    "f4gemm": ("fp4", 0.5, "f4"), "fp8gemm_blockscale": ("fp8", 1, "f8"), "i8gemm": ("i8", 1, "i8"),
    "bf16gemm": ("bf16", 2, "bf16"),
}  # fmt: skip
CLOSE = 1.03  # the aim for regret


@dataclass(frozen=True)
class Choice:
    """A shape with its kernels, timed by the model."""

    shape: str
    measured: Mapping[str, float]  # us by kernel and split
    modelled: Mapping[str, float]  # us by kernel and split, without the excluded ones
    winner: str  # a key of `measured`
    candidates: int  # number of kernels and splits, also excluded ones

    @property
    def chosen(self) -> str:
        """Kernel and split of least modelled time."""
        return min(self.modelled, key=lambda name: self.modelled[name])

    @property
    def rank(self) -> int:
        """Place of the winner by the model, from 1."""
        return 1 + sum(each < self.modelled[self.winner] for each in self.modelled.values())

    @property
    def tile_rank(self) -> int:
        """Place of the winner's kernel if each kernel has its best split."""
        best: dict[str, float] = {}
        for name, each in self.modelled.items():
            kernel = name.split()[0]
            best[kernel] = min(each, best.get(kernel, each))
        return 1 + sum(each < best[self.winner.split()[0]] for each in best.values())

    @property
    def modelled_regret(self) -> float:
        """Modelled time of the winner over the least one."""
        return self.modelled[self.winner] / self.modelled[self.chosen]

    @property
    def measured_regret(self) -> float | None:
        """Measured time of the model's choice over the winner's; None without a measurement."""
        taken = self.measured.get(self.chosen)
        return taken / self.measured[self.winner] if taken else None


def draw(times: Mapping[TunedShape, TunedTimes], count: int, pairs: bool) -> list[TunedShape]:
    """Returns `count` shapes by hash; pairs: draws from shapes with several measured kernels."""
    known = [shape for shape, each in times.items() if not pairs or len(each.rows) > 1]
    return sorted(known, key=lambda shape: hashlib.sha256(shape.key.encode()).digest())[:count]


def choose(checkout: Path, shape: TunedShape, times: TunedTimes, pairs: bool) -> Choice:
    """Times a shape's candidates by the model. Raises SimError if the winner cannot be timed."""
    winner = min(times.rows.values(), key=lambda row: row.us) if pairs else times.winner
    first = winner.kernel, winner.split
    listed = list(times.rows) if pairs else list(_candidates(checkout, shape, times))
    calls = {key: _call(checkout, shape, *key) for key in dict.fromkeys((first, *listed))}
    least = modelled_us(calls[first])
    found, excluded = {first: least}, 0
    for key, call in calls.items():
        if key == first:
            continue
        if not pairs and 1e6 * lower_bound(shape, _tile(checkout, shape, key[0]), key[1], call) >= least:
            excluded += 1
            continue
        try:
            found[key] = modelled_us(call)
        except SimError:
            excluded += 1
    measured = {_name(key): row.us for key, row in times.rows.items()}
    return Choice(shape.key, measured, {_name(key): us for key, us in found.items()}, _name(first), len(found) + excluded)


def modelled_us(call: ShippedLaunch) -> float:
    """Returns the modelled time of a launch and of the memset before it, as a profiler measures them."""
    return profiled_us(call, predict(sampled_call(call), warm=call.warm))


def lower_bound(shape: TunedShape, tile: Mapping[str, int], split: int, call: ShippedLaunch) -> float:
    """Returns the least seconds that a launch takes: the launch itself, and the CU with most workgroups.

    Either the CU's matrix units are always busy, at the clock that they then hold, or its vector cache is, at the peak clock.
    """
    chip, parts = board(shape.board), 1 if shape.family == "f4gemm" else max(1, split)
    (dtype, size, name), row = ELEMENTS[shape.family], pipelines(chip.arch)
    groups = call.grid[0] * call.grid[1] * call.grid[2]
    clock = sustained_clock(chip, Busy(1.0), min(1.0, groups / chip.num_cus), name).mhz
    atom = chip.scaled_atom(dtype, dtype) if dtype == "fp4" else chip.atom(dtype)
    matrix = 2 * tile["tilem"] * tile["tilen"] * shape.k / parts / (chip.simds_per_cu * atom.flops_per_clock)
    loads = (tile["tilem"] + tile["tilen"]) * shape.k / parts * size / row.cache_rate
    of_cu = -(-groups // chip.num_cus) * max(matrix / clock, loads / chip.clock_mhz)
    return (of_cu + row.profiled_us) * 1e-6 + zeroing(call, row.profiled_us)


def _candidates(checkout: Path, shape: TunedShape, times: TunedTimes) -> Iterator[tuple[str, int]]:
    winner, chip = times.winner, board(shape.board)
    had = kernels_of_commit(checkout, winner.commit, ARCHS[shape.board], shape.family)
    preshuffled = _tile(checkout, shape, winner.kernel).get("bpreshuffle")
    for kernel, tile in tiles(_folder(checkout, shape) / "all").items():
        if kernel not in had or tile.get("bpreshuffle") != preshuffled or (winner.bias and not tile.get("bias")):
            continue
        if shape.n % tile["tilen"] and shape.family in ("fp8gemm_blockscale", "i8gemm"):
            continue
        for split in splits_tried(shape, tile, chip.num_cus):
            yield kernel, split


def _folder(checkout: Path, shape: TunedShape) -> Path:
    return checkout / "hsa" / ARCHS[shape.board] / shape.family


def _tile(checkout: Path, shape: TunedShape, kernel: str) -> Mapping[str, int]:
    return tiles(_folder(checkout, shape) / "all")[kernel]


def _call(checkout: Path, shape: TunedShape, kernel: str, split: int) -> ShippedLaunch:
    tile = _tile(checkout, shape, kernel)
    path = _folder(checkout, shape) / objects(_folder(checkout, shape) / "all")[kernel]
    return FAMILIES[shape.family](path, kernel, shape.board, shape.m, shape.n, shape.k, split, tile)


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]} {key[1]}"


def main(words: Sequence[str] | None = None) -> int:
    """Judges the drawn shapes, prints the figures, and keeps each shape's times in a file, from which a later call goes on."""
    parser = Parser(prog="python -m simgpu.tools.validation.choices", description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="a clone of github.com/ROCm/aiter with its history")
    parser.add_argument("--shapes", type=int, default=200, metavar="N", help="shapes, by hash (default: 200)")
    parser.add_argument("--pairs", action="store_true", help="draw from shapes with several measured kernels, and time only these")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a line of JSON for each judged shape, not judged again")
    options = parser.parse_args(words)
    times = tuned_times(options.checkout)
    kept = {one.shape: one for one in _kept_choices(options.keep)}
    found, failed = [], []
    drawn = draw(times, options.shapes, options.pairs)
    with count_progress(len(drawn), "shapes") as done:
        for shape in drawn:
            try:
                one = kept.get(shape.key) or choose(options.checkout, shape, times[shape], options.pairs)
            except SimError as error:
                failed.append((shape.key, str(error)))
            else:
                found.append(one)
                if options.keep and shape.key not in kept:
                    with open(options.keep, "a") as file:
                        file.write(json.dumps(asdict(one)) + "\n")
            done()
    show(table("", COLUMNS, summary(found), left=1))
    for name, why in failed:
        print(f"{name}: {why}", file=sys.stderr)
    return 0


COLUMNS = (
    "kernels", "shapes", "first, %", "in two, %", "kernel in two, %", "modelled regret", "worst", "measured", "worst", "to 3 %, %",
)  # fmt: skip


def summary(choices: Sequence[Choice]) -> Iterator[tuple[object, ...]]:
    """Yields rows by family and board, and a row of all. Measured regrets are of shapes whose choice was measured."""
    groups: dict[str, list[Choice]] = {}
    for one in choices:
        groups.setdefault(" ".join(one.shape.split()[:2]), []).append(one)
    for name, some in [*sorted(groups.items()), *([("all", list(choices))] if choices else [])]:
        regrets, known = [one.modelled_regret for one in some], [each for one in some if (each := one.measured_regret)]
        parts = [100 * statistics.mean(each) for each in zip(*((one.rank == 1, one.rank < 3, one.tile_rank < 3) for one in some))]
        measured = ("",) * 3
        if known:
            close = 100 * statistics.mean(each <= CLOSE for each in known)
            measured = f"{statistics.mean(known):.3f}", f"{max(known):.2f}", f"{close:.0f}"
        modelled = f"{statistics.mean(regrets):.3f}", f"{max(regrets):.2f}"
        yield name, len(some), *(f"{part:.0f}" for part in parts), *modelled, *measured


def _kept_choices(path: Path | None) -> list[Choice]:
    if path is None or not path.is_file():
        return []
    try:
        return [Choice(**json.loads(line)) for line in path.read_text().splitlines()]
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: not a file that --keep wrote: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
