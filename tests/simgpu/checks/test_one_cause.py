"""Findings with one cause are one: pairs of places that share an instruction."""

from __future__ import annotations

import random
from dataclasses import replace

from simgpu.engine.finding import Finding, FindingPlace, group
from simgpu.tools.shared.sarif import sarif
from tests.support.checked import findings, line_of

HALVES = ["v_and_b32 v62, 0x3ff, v0", "v_lshlrev_b32 v62, 2, v62", "v_xor_b32 v63, 0x100, v62"]
STORES = [f"ds_write_b32 v62, v60 offset:{512 * n}" for n in range(4)]
LOADS = [f"ds_read_b32 v{n + 1}, v63 offset:{512 * n}" for n in range(4)]
CROSSED = [f"ds_read2st64_b32 v[{2 * n + 10}:{2 * n + 11}], v63 offset0:{2 * n} offset1:{2 * n + 2}" for n in range(3)]
DONE = "s_waitcnt lgkmcnt(0)"


def test_a_barrier_on_the_wrong_side_is_one_finding() -> None:
    """Each load of two dwords shares one with the next; six pairs of places are one cause."""
    right = [*HALVES, *STORES, DONE, "s_barrier", *CROSSED, DONE]
    assert findings("gfx90a", right, block=128) == []
    swapped = [*HALVES, *STORES, DONE, *CROSSED, DONE, "s_barrier"]
    (finding,) = findings("gfx90a", swapped, block=128)
    assert (finding.kind, finding.pairs, len(finding.places)) == ("race", 6, 2)
    lines = {line_of("gfx90a", swapped, at) for at in range(len(swapped))}
    assert {place.source for place in finding.places} | {place.other_source for place in finding.places} <= lines
    assert all(isinstance(place, FindingPlace) and place.count for place in finding.places)
    said = str(finding)
    assert "one cause shows at 6 pairs of places, the next:" in said and len(said.splitlines()) == 8
    assert finding.document()["places"][0]["pc"] == finding.places[0].pc


def test_two_causes_are_two_findings() -> None:
    """Stores and loads of one place, and others of another, have no link."""
    lines = [*HALVES, STORES[0], STORES[3], DONE, LOADS[0], LOADS[3], DONE]
    assert [(f.kind, f.pairs) for f in findings("gfx90a", lines, block=128)] == [("race", 1), ("race", 1)]


def made(kind: str, pc: int, other: int | None, count: int = 1, severity: str = "error") -> Finding:
    texts = {"text": f"i{pc}", "other_text": f"i{other}"}
    return Finding(kind, "", pc, other_pc=other, count=count, severity=severity, **texts)  # type: ignore[arg-type]


def test_what_is_grouped() -> None:
    assert [f.pairs for f in group([made("race", 1, 2), made("race", 3, 4), made("race", 2, 3)])] == [3]
    assert [f.pairs for f in group([made("race", 1, 2), made("hazard", 1, 2), made("race", 1, 2, severity="note")])] == [1, 1, 1]
    # Waves that lag by one barrier meet at each pair of barriers from there on.
    assert [f.pairs for f in group([made("barrier", 1, 2), made("barrier", 3, 1), made("barrier", 3, 4)])] == [3]
    # A load without a wait may itself be a load that others do not wait for.
    assert [f.pairs for f in group([made("missing-wait", 2, 1), made("missing-wait", 3, 2)])] == [1, 1]
    assert [f.pairs for f in group([made("missing-wait", 2, 1), made("missing-wait", 3, 1), made("missing-wait", 3, 0)])] == [3]
    others = [made("uninitialized", 1, 2), made("uninitialized", 3, 2), made("race", 1, None)]
    assert group(others) == others


def test_copies_of_one_access_past_a_buffer_are_one_finding() -> None:
    """A loop that the compiler unrolled: the same source line stores at eight offsets."""
    stores = [
        Finding("out-of-bounds", "past x", 8 * at, f"flat_store_short v[2:3], v4 offset:{2 * at}", source="k.hip:7", count=1)
        for at in range(8)
    ]
    elsewhere = [replace(stores[0], pc=99, source="k.hip:9"), replace(stores[0], pc=100, text="global_load_dword v1, v2, s[0:1]")]
    one, *others = group([*stores, *elsewhere])
    assert one.pairs == 8 and "one cause shows at 8 places, the next:" in str(one)
    assert others == elsewhere
    sums = [
        Finding("uninitialized", "", 8 * at, f"v_mfma_f32_4x4x1f32 v[4:7], v{at}, v1, v[4:7]", source="k.hip:9", other_pc=4 * at,
                other_text=f"ds_read_b32 v{at}, v9", other_source="k.hip:3")
        for at in range(5)
    ]  # fmt: skip
    (one,) = group(sums)
    assert one.pairs == 5 and "one cause shows at 5 pairs of places" in str(one)
    unknown = [replace(store, source="") for store in stores]
    assert group(unknown) == unknown


def test_the_most_often_seen_comes_first_and_nothing_is_lost() -> None:
    rng = random.Random(1)
    found = [made("race", rng.randrange(40), rng.randrange(40), rng.randrange(1, 99)) for _ in range(60)]
    groups = group(found)
    assert sum(f.pairs for f in groups) == len(found) and len(groups) < len(found)
    for finding in groups:
        counts = [finding.count, *(place.count for place in finding.places)]
        assert counts == sorted(counts, reverse=True) and len(counts) == min(finding.pairs, 3)


def test_copies_of_a_pair_are_one_finding() -> None:
    """An unrolled loop repeats a pair: copies join by source line if known, else by text. Other operations stay apart."""

    def copy(at: int, text: str, source: str = "") -> Finding:
        other = source and "k.hip:4"
        return Finding("race", "", at, text, other_pc=at + 1, other_text="ds_write_b32 v1, v2", source=source, other_source=other)

    same = [copy(at, "ds_read_b32 v3, v1") for at in range(0, 80, 2)]
    assert [f.pairs for f in group([*same, copy(90, "ds_read_b32 v4, v1")])] == [40, 1]
    lines = [copy(at, f"ds_read_b32 v{at}, v1", "k.hip:7") for at in range(0, 80, 2)]
    others = [copy(90, "ds_read_b64 v[2:3], v1", "k.hip:7"), copy(92, "ds_read_b32 v3, v1", "k.hip:8")]
    (first, *rest) = group([*lines, *others])
    assert (first.pairs, [f.pairs for f in rest]) == (40, [1, 1])
    (result,) = sarif([first], "k.co")["runs"][0]["results"]
    assert result["properties"]["pairs"] == 40 and len(result["relatedLocations"]) == 1 + len(first.places) == 3
    assert result["relatedLocations"][1]["message"]["text"] == "the same cause, seen once: ds_read_b32 v2, v1"


def test_unknown_origins_count_with_the_known_one_of_their_place() -> None:
    """In a wave whose last lanes are off, a register may hold only undefined bits: then its load is not known."""
    first, other = made("uninitialized", 8, None, count=1), made("uninitialized", 4, None, count=5)
    merged = group([other, first, made("uninitialized", 8, 2, count=21), made("race", 8, None)])
    assert [(f.kind, f.pc, f.other_pc, f.count) for f in merged] == [
        ("uninitialized", 4, None, 5), ("uninitialized", 8, 2, 22), ("race", 8, None, 1),
    ]  # fmt: skip
    noted = [made("uninitialized", 8, None, severity="note"), made("uninitialized", 8, 2)]
    assert len(group(noted)) == 2
