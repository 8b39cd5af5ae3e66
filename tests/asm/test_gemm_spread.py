"""Places of the main loop's moves among a GEMM's matrix instructions."""

from __future__ import annotations

import pytest

from simgpu import asm
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.waits import Label
from simgpu.asm.gemm.turn import Read, SpreadUnit, add_writes_and_loads, read_numbers
from simgpu.operators.gemm.tree import TiledComputation


def whole_tile(target, name, trans_a, trans_b, **more):
    """Returns mnemonics of the loop over tiles inside the view, its branch last."""
    kernel = asm.emit(TiledComputation(8192, 8192, 8192, target, dtype=name, trans_a=trans_a, trans_b=trans_b, **more))
    items = [item for item in kernel.items if isinstance(item, (Instr, Label))]
    top = next(n for n, item in enumerate(items) if isinstance(item, Label) and "whole_tile_0" in item.name)
    names = [item.mnemonic for item in items[top:] if isinstance(item, Instr)]
    return names[: names.index("s_cbranch_scc1") + 1]


@pytest.mark.parametrize(("target", "name", "trans", "more"), [
    ("gfx942", "bf16", (False, False), {}), pytest.param("gfx942", "fp8", (True, False), {}, marks=pytest.mark.exhaustive),
    ("gfx908", "f32", (False, True), {}), pytest.param("gfx950", "bf16", (True, True), {}, marks=pytest.mark.exhaustive),
    ("gfx950", "fp4", (False, True), {"scales": "mx"}),
])  # fmt: skip
def test_the_loops_branch_follows_a_matrix_instruction(target, name, trans, more):
    """Expects the loop's counter before its last matrix instruction, and at most a fragment's read after it."""
    loop = whole_tile(target, name, *trans, **more)
    last = max(n for n, mnemonic in enumerate(loop) if mnemonic.startswith("v_mfma"))
    assert all(mnemonic.startswith("ds_read") for mnemonic in loop[last + 1 : -1]) and len(loop) - last <= 4


@pytest.mark.slow
def test_reads_go_as_fast_as_lds_takes_them():
    """16 bytes a lane of four waves take 40 clocks on gfx942, 2.5 matrix instructions."""
    loop = whole_tile("gfx942", "bf16", False, False)
    gaps = "".join("m" if name.startswith("v_mfma") else "r" if name.startswith("ds_read") else "" for name in loop)
    assert "rr" not in gaps


def test_reads_behind_the_barrier_and_before_their_use():
    """Reads are paced, after the last use, before the first one. None is left to the next tile from its barrier on."""
    reads = [Read(0, 5, 2.0), Read(0, 6, 2.0), Read(1, 6, 2.0), Read(8, 9, 2.0), Read(9, 9, 2.0)]
    assert read_numbers(reads, 10, 20, (14, 16), 2) == [16, 17, 18, 22, 24]  # the second and third are needed at 20 and 21
    assert read_numbers(reads, 10, 20, (3, 16), 2) == [16, 17, 18, 22, 22]
    assert read_numbers(reads, 10, 20, (0, 19), 2) == [19, 19, 19, 19, 19]


@pytest.mark.parametrize("room", [1, 7, 18])
def test_loads_follow_their_writes_and_precede_the_tiles_end(room):
    places: dict[str, int] = {}
    units = [SpreadUnit([lambda n=n: f"w{n}"], [lambda n=n: f"l{n}"], 0.5) for n in range(6)]
    last = add_writes_and_loads(lambda number, move: places.update({move(): number}), units, room, 20, 2, 4)
    assert all(places[f"w{n}"] <= places[f"l{n}"] <= max(18, places[f"w{n}"]) for n in range(6))
    assert last == places["l5"] == max(places.values()) < 20
