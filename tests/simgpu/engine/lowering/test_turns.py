"""Instructions after which a workgroup's other waves get their turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from simgpu.engine.lowering.turns import AHEAD, lets_others_on
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.instruction import Instruction
from tests.support.clang import assemble

READ, WRITE, ADD = "ds_read_b32 v1, v2", "ds_write_b32 v2, v3", "v_add_f32 v4, v5, v6"
LOADED, ARRIVED = "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"


@pytest.mark.parametrize(
    ("turn", "lines"),
    [
        (True, [ARRIVED, ADD, WRITE]),
        (True, [ARRIVED, "s_nop 1", READ]),
        (True, [LOADED, ADD, "s_branch 4"]),
        (True, [LOADED, "flat_store_dword v[2:3], v1"]),
        (True, [LOADED, "buffer_load_dword v1, s[4:7], 0 offen lds"]),
        (True, [LOADED, *[ADD] * AHEAD, ARRIVED]),
        (False, [ARRIVED, "s_barrier", WRITE]),
        (False, [LOADED, ADD, "global_store_dword v[2:3], v1, off", ARRIVED, WRITE]),
        (True, [ARRIVED, "s_waitcnt vmcnt(63)", WRITE]),
        (False, ["s_waitcnt vmcnt(63)", WRITE]),
        (False, [LOADED, "s_endpgm"]),
        (True, [READ, ADD, WRITE]),
        (True, ["flat_load_dword v1, v[2:3]", WRITE]),
        (False, [READ, READ, WRITE]),
        (False, [READ, ARRIVED, WRITE]),
        (False, [READ, "s_branch 4", WRITE]),
        (False, [WRITE, WRITE]),
        (False, [ADD, WRITE]),
    ],
    ids=lambda value: " ".join(line.split()[0] for line in value[:4]) if isinstance(value, list) else None,
)  # fmt: skip
def test_turns_come_before_lds_is_touched_again(turn: bool, lines: list[str]) -> None:
    """A wait, each text's first instruction, has a turn unless the wave waits, meets the others or ends before it touches LDS."""
    code = b"".join(each.code for each in assemble(lines, "gfx90a") if each is not None)
    first, *behind = islice(_decoded(code), len(lines))
    assert lets_others_on(first, behind) is turn


def _decoded(code: bytes) -> Iterator[Instruction]:
    at = 0
    while at < len(code):
        inst = decode(code, at, "gfx90a")
        yield inst
        at += inst.size
