"""Tiles of an operator's problem: those of least closed cost, emitted and timed by the model."""

from __future__ import annotations

from functools import partial

import numpy as np

from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.subject import Subject, launch_options
from simgpu.tools.cost.space import TILES, Space, Tile, space
from simgpu.tools.ranking.ranked import Ranked, Ranking, rank
from simgpu.tools.shared.arrays import require_memory
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import Inputs
from simgpu.tools.shared.launching import simulated_device


def rank_tiles(op: str, rest: list[str], most: int) -> Ranking:
    """Ranks the `most` tiles of least closed cost, each with its best split. The closed form's tile is among them."""
    from simgpu import asm
    from simgpu.sampling.samples import time_launch

    options = launch_options("time", op, rest)
    if op not in TILES:
        raise UsageError(f"time --rank {op}: it has no tiles to choose from; give {', '.join(TILES)}, objects or a script")
    operator = OPERATORS[op]
    tree = operator.tree(options)
    require_memory(operator.host_bytes(tree.problem), tree.derivation.title)
    device = simulated_device(options, options.target)
    inputs = Inputs(np.random.default_rng(options.seed), options.inputs, compares=False)
    work = operator.choose_kernels(options).workload(tree, device.arch, inputs)
    buffers = [device.upload(array) for array in work.arrays]
    tiles = space(op, tree.problem, tree.descriptor)

    def time_tile(name: str, tile: Tile) -> Ranked:
        prepared = asm.Prepared(asm.emit(tiles.tree(tile)), device)
        try:
            launches = [Subject(kernel, call) for kernel, call in prepared.calls(*buffers)]
            found = [time_launch(one.kernel, one.geometry, one.call["args"], restore=False) for one in launches]
        finally:
            prepared.free()
        return Ranked.of(name, found)

    chosen = least_cost(tiles, most)
    names = ["x".join(map(str, tile)) + " (closed form)" * (tile == tiles.chosen) for tile in chosen]
    title = f"{tree.derivation.title}: {len(chosen)} of {tiles.seconds.size:,} tiles, {TILES[op]}"
    return rank(title, [(name, partial(time_tile, name, tile)) for name, tile in zip(names, chosen, strict=True)])


def least_cost(tiles: Space, most: int) -> list[Tile]:
    """Returns the closed form's tile, and tiles with their best split by closed cost, `most` in all."""
    splits = tiles.seconds.argmin(1)
    seconds = tiles.seconds[np.arange(len(splits)), splits]
    order = [at for at in np.argsort(seconds, kind="stable").tolist() if seconds[at] < np.inf]
    found = [(*tiles.rows[at], int(tiles.splits[splits[at]])) for at in order]
    return list(dict.fromkeys((tiles.chosen, *found)))[:most]
