"""Undefined bits through LDS, by all lanes at once and lane by lane: each lane keeps its own in any order of lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simgpu.checks.test_uninitialized import STORE, findings

BYTES = 2048
OPTIONS = {"group_segment_fixed_size": BYTES}
# Lanes' places in LDS: in sequence, 16-byte pieces in another order, or each apart.
ORDERS = {
    "straight": "v_mov_b32 v1, v0", "swizzled": "v_xor_b32 v1, 20, v0", "apart": "v_bfrev_b32 v1, v0\nv_lshrrev_b32 v1, 26, v1",
}  # fmt: skip
# Stores of v[4:7], loads to v[8:11], dwords a lane.
PAIRS = {
    "b32": ("ds_write_b32 v2, v4", "ds_read_b32 v8, v2", 1),
    "b64": ("ds_write_b64 v2, v[4:5]", "ds_read_b64 v[8:9], v2", 2),
    "b128": ("ds_write_b128 v2, v[4:7]", "ds_read_b128 v[8:11], v2", 4),
    "2_b32": ("ds_write2_b32 v2, v4, v5 offset1:1", "ds_read2_b32 v[8:9], v2 offset1:1", 2),
    "2_b64": ("ds_write2_b64 v2, v[4:5], v[6:7] offset1:1", "ds_read2_b64 v[8:11], v2 offset1:1", 4),
}


def lanes_told(lines: str, number: int) -> tuple[int, ...]:
    """Returns the lanes in which register `number` is undefined at the lines' end."""
    text = lines + f"\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v3, v{number}" + STORE
    found = findings(text, "gfx90a", OPTIONS)
    return found[0].lanes if found else ()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("reader", ["all lanes", "some"])
def test_lanes_stay_apart(order: str, pair: str, reader: str) -> None:
    """Some lanes store an undefined last dword; then the same lanes load, or each loads its neighbour's."""
    store, load, count = PAIRS[pair]
    defined = 0x0F0F_F0FF_1234_5678
    registers = "".join(f"v_mov_b32 v{4 + part}, {part}\n" for part in range(count - 1))
    lines = (
        f"{ORDERS[order]}\nv_mul_u32_u24 v2, {4 * count}, v1\n{registers}"
        f"s_mov_b32 exec_lo, {defined & 0xFFFFFFFF:#x}\ns_mov_b32 exec_hi, {defined >> 32:#x}\nv_mov_b32 v{3 + count}, 1\n"
        f"s_mov_b64 exec, -1\n{store}\ns_waitcnt lgkmcnt(0)\n"
        f"v_xor_b32 v1, 1, v1\nv_mul_u32_u24 v2, {4 * count}, v1\n"
    )
    active = np.ones(64, bool) if reader == "all lanes" else np.arange(64) % 3 != 0
    mask = int.from_bytes(np.packbits(active, bitorder="little").tobytes(), "little")
    clear = "".join(f"v_mov_b32 v{8 + part}, 0\n" for part in range(count))
    if reader == "some":
        lines += f"s_mov_b32 s20, {mask & 0xFFFFFFFF:#x}\ns_mov_b32 s21, {mask >> 32:#x}\n{clear}s_mov_b64 exec, s[20:21]\n"
    lines += load + "\ns_mov_b64 exec, -1"
    # the lane that is read from: its place differs in the last bit
    place = {"straight": lambda lane: lane, "swizzled": lambda lane: lane ^ 20,
             "apart": lambda lane: int(f"{lane:06b}"[::-1], 2)}[order]  # fmt: skip
    owner = {place(lane): lane for lane in range(64)}
    source = [owner[place(lane) ^ 1] for lane in range(64)]
    wanted = tuple(lane for lane in range(64) if active[lane] and not defined >> source[lane] & 1)
    assert lanes_told(lines, 7 + count) == wanted
    for part in range(count - 1):
        assert lanes_told(lines, 8 + part) == ()


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_defined_over_what_was_not_is_defined(pair: str) -> None:
    """Undefined LDS gets undefined registers, then defined ones; the loads go to undefined registers."""
    store, load, count = PAIRS[pair]
    address = f"v_mul_u32_u24 v2, {4 * count}, v0\n"
    clear = "".join(f"v_mov_b32 v{4 + part}, {part}\n" for part in range(count))
    assert lanes_told(address + load, 8) == tuple(range(64))
    assert lanes_told(address + store + "\ns_waitcnt lgkmcnt(0)\n" + load, 7 + count) == tuple(range(64))
    assert lanes_told(address + store + "\n" + clear + store + "\ns_waitcnt lgkmcnt(0)\n" + load, 7 + count) == ()
    assert lanes_told(address + clear + store + "\ns_waitcnt lgkmcnt(0)\n" + 2 * (load + "\n"), 7 + count) == ()
