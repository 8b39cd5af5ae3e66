"""Declared fields of a wave, of the context and of an allocation, and the checks' data after them."""

from __future__ import annotations

from ctypes import Structure, sizeof

import pytest

from simgpu.engine.workers import fields
from simgpu.machine import layout

PARTS = [
    (layout.Wave, layout.WAVE_CHECKS, layout.ADDRESSES), (layout.Context, layout.CTX_CHECKS, layout.CTX_OPERAND_CACHE),
]  # fmt: skip


@pytest.mark.parametrize(("structure", "parts", "end"), PARTS, ids=["wave", "context"])
def test_checks_have_room_of_their_own(structure: type[Structure], parts: range, end: int) -> None:
    assert sizeof(structure) <= parts[0] and parts[-1] + parts.step <= end
    assert all(part % 8 == 0 for part in parts)


def test_an_entry_is_as_long_as_its_fields() -> None:
    assert sizeof(layout.AllocationEntry) == layout.ALLOC_BYTES
    assert layout.ALLOC_CHECKS[0] == sizeof(layout.AllocationEntry) - 8 * len(layout.ALLOC_CHECKS)


def test_offsets_are_those_of_the_structures() -> None:
    for structure, prefix in ((layout.Wave, ""), (layout.Context, "CTX_"), (layout.AllocationEntry, "ALLOC_")):
        for name, _ in structure._fields_:
            if name not in ("sgprs", "checks"):
                assert getattr(layout, prefix + name.upper()) == getattr(structure, name).offset


def test_no_check_takes_more_than_its_part() -> None:
    with pytest.raises(AssertionError, match="paths"):
        fields.wave_fields("paths", 6)
    assert list(fields.wave_fields("in_flight", 2)) == [layout.WAVE_CHECKS[1], layout.WAVE_CHECKS[1] + 8]
