"""A kernel leaves the same bytes in every mode; at length: `simgpu.tools.robustness.modes`."""

from __future__ import annotations

import pytest

from simgpu.tools.robustness import modes


@pytest.mark.parametrize(("kind", "numbers"), [("streams", range(6)), ("programs", range(1)), ("operators", range(3))])
def test_every_mode_leaves_the_same_bytes(kind: str, numbers: range) -> None:
    replayed = 0
    for number in numbers:
        found = modes.endings(kind, 11, number)
        assert modes.modes_agree(found), found
        seeded = () if kind == "streams" else modes.SEEDED
        more = {"sliced"} if kind == "operators" else {"replayed"}
        assert set(found) | more == {*modes.DEVICES, *seeded, *more}
        replayed += "replayed" in found
    assert replayed or kind == "operators"  # not where a random instruction names FLAT_SCRATCH


def test_a_difference_is_seen() -> None:
    found = {"plain": "MemoryFault k+0x4 0123", "checked": "MemoryFault k+0x4 0123", "replayed": "0123"}
    assert modes.modes_agree(found)
    assert not modes.modes_agree({**found, "checked": "MemoryFault k+0x8 0123"})
    assert modes.modes_agree({**found, "checked": f"MemoryFault k+0x8 {modes.OUTSIDE_LDS} 0123"})
    assert not modes.modes_agree({**found, "numerics": f"MemoryFault k+0x8 {modes.OUTSIDE_LDS} 0123"})
    assert not modes.modes_agree({**found, "replayed": "4567"}) and not modes.modes_agree({**found, "checked": "0123"})
