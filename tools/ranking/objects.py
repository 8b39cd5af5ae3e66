"""AITER's code objects for a product: every tile of a family's table, with every split that it allows."""

from __future__ import annotations

import csv
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.predict import predict
from simgpu.tools.ranking.ranked import Ranked, Ranking, rank
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import Parser
from simgpu.tools.validation.aiter import FAMILIES, ShippedLaunch, tiles
from simgpu.tools.validation.judge import board, sampled_call, zeroing

SPLITS = (1, 2, 4, 8, 16)
LOGARITHMS = ("f4gemm",)  # families whose argument is the split's logarithm
UNDIVIDED = ("f4gemm", "bf16gemm")  # families that take an n that is no multiple of their tile's
STEP = 256  # least part of k


def is_aiter(what: str) -> bool:
    """True for a folder of AITER's code objects with their table."""
    return Path(what).is_dir() and Path(what).name in FAMILIES and any(Path(what).glob("*.csv"))


def rank_objects(what: str, rest: list[str]) -> Ranking:
    """Ranks the kernels of a folder of AITER, such as hsa/gfx950/f4gemm, for the product of the options."""
    parser = Parser(prog=f"simgpu time --rank {what}")
    _add_options(parser)
    options = parser.parse_args(rest)
    if min(options.m, options.n, options.k) < 1:
        raise UsageError(f"-m {options.m} -n {options.n} -k {options.k}: give 1 or more")
    board(options.target)  # raises TargetError for an unknown one
    found = list(_candidates(Path(what), options.target, options.m, options.n, options.k))
    if not found:
        raise UsageError(f"{what}: no kernel of it divides m = {options.m}, n = {options.n}, k = {options.k}")
    title = f"{Path(what).name} {options.m}x{options.n}x{options.k} on {options.target}: {len(found)} kernels and splits of K"
    return rank(title, found)


def _add_options(parser: ArgumentParser) -> None:
    for name in "mnk":
        parser.add_argument(f"-{name}", type=int, required=True, help=f"extent {name} of the product")
    parser.add_argument("--target", default="mi355x", help="board: mi300x, mi308x or mi355x (default)")


def _candidates(folder: Path, name_of_board: str, m: int, n: int, k: int) -> Iterator[tuple[str, Callable[[], Ranked]]]:
    family = folder.name
    listed = [(table, _rows(table)) for table in sorted(folder.glob("*.csv"))]  # all are refused before one is used
    for table, rows in listed:
        known = tiles(table)
        for kernel, object_name in rows:
            path, tile = folder / object_name, known[kernel]
            if min(tile.get("tilem", 0), tile.get("tilen", 0)) < 1:
                raise UsageError(f"{table}: no tile of {kernel}: columns tile_m and tile_n hold numbers above 0")
            if not path.is_file() or (n % tile["tilen"] and family not in UNDIVIDED):
                continue
            for split in SPLITS if tile.get("splitk") == 1 else SPLITS[:1]:
                if split > 1 and k // split < STEP:
                    continue
                given = split.bit_length() - 1 if family in LOGARITHMS else split
                call = FAMILIES[family](path, kernel, name_of_board, m, n, k, given, tile)
                name = f"{path.stem} split {split}"
                yield name, partial(_time, name, call)


def _rows(table: Path) -> list[tuple[str, str]]:
    """Returns each kernel of a table and the name of its object. Raises UsageError for another table."""
    try:
        with open(table, newline="") as file:
            found = [(entry["knl_name"], entry["co_name"]) for entry in csv.DictReader(file)]
    except (KeyError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{table}: not a table of AITER's kernels, with columns knl_name and co_name: {error}") from None
    if not all(kernel and name for kernel, name in found):
        raise UsageError(f"{table}: not a table of AITER's kernels: a row without knl_name or co_name")
    return found


def _time(name: str, call: ShippedLaunch) -> Ranked:
    made = predict(sampled_call(call))
    return Ranked.of(name, [made], zeroing(call, pipelines(made.sampled.chip.arch).launch_us))
