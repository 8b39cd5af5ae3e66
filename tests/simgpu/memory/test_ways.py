"""Tables of ways: every instruction finds a way under any conditions, and each row serves some instruction."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa.kinds import Flag
from simgpu.memory.vmem import WAYS, Way, moves_of
from tests.simgpu.engine.test_refusals import instances


@functools.cache
def pairs() -> set[tuple[str, str]]:
    """Returns the space and move of the instructions that `vmem` emits."""
    found = set()
    for target in TARGETS:
        for inst in instances(target):
            memory = inst.spec.memory
            if memory is not None and inst.spec.encoding not in ("smem", "ds"):
                found.add((memory.space, moves_of(inst)))
                if {Flag.LDS_FORM, Flag.LDS_FORM_GFX950} & set(inst.spec.flags):
                    found.add((memory.space, moves_of(replace(inst, mods={"lds": True}))))
    return found


def test_every_instruction_has_a_way_without_conditions_behind_those_with() -> None:
    for pair in pairs():
        rows = [way.conditions for way in WAYS if (way.space, way.moves) == pair]
        assert rows and rows[-1] == () and all(rows[:-1]), pair


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.space}-{way.moves}-{way.strategy.__name__}")
def test_each_way_serves_some_instruction(way: Way) -> None:
    assert (way.space, way.moves) in pairs()
