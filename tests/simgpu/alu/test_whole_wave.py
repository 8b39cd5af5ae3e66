"""Instructions that see the whole wave, through their handlers, against models in Python."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware.isa.instruction import Const, Instruction, Reg
from simgpu.hardware.isa.spec import REGISTRY, Spec
from tests.support.one_instruction import Wave

SPECS: dict[str, Spec] = {spec.mnemonic: spec for spec in REGISTRY.specs}
u32 = np.uint32
EXECS = [0xFFFFFFFFFFFFFFFF, 0x0F0FFFF000000001, 1 << 63, 0]


def prepared(seed: int, mask: int) -> Wave:
    wave = Wave()
    rng = np.random.default_rng(seed)
    wave.v[:8] = rng.integers(0, 2**32, (8, 64), dtype=np.uint64).astype(u32)
    wave.s[126:128] = mask & 0xFFFFFFFF, mask >> 32
    return wave


def active(mask: int) -> list[bool]:
    return [bool(mask >> lane & 1) for lane in range(64)]


def run(wave: Wave, name: str, args: dict[str, Reg | Const], form: str = "e32", **mods: int) -> None:
    spec = SPECS[name]
    wave.run(Instruction(spec, sorted(spec.opcodes)[-1], form, args, mods, size=8))


V = {name: Reg("v", number) for number, name in enumerate(("vdst", "addr", "data0"))}


@pytest.mark.parametrize("mask", EXECS)
@pytest.mark.parametrize("offset", [0, 4, 260])
def test_permute(mask: int, offset: int) -> None:
    wave = prepared(offset, mask)
    before = wave.v.copy()
    run(wave, "ds_permute_b32", dict(V), offset=offset)
    want = [0] * 64
    for lane in range(64):  # the highest sender wins
        if mask >> lane & 1:
            want[(int(before[1, lane]) + offset) // 4 % 64] = int(before[2, lane])
    got = np.where(active(mask), np.array(want, u32), before[0])
    np.testing.assert_array_equal(wave.v[0], got)


@pytest.mark.parametrize("mask", EXECS)
@pytest.mark.parametrize("offset", [0, 8, 252])
def test_bpermute(mask: int, offset: int) -> None:
    wave = prepared(offset, mask)
    before = wave.v.copy()
    run(wave, "ds_bpermute_b32", dict(V), offset=offset)
    for lane in range(64):
        source = (int(before[1, lane]) + offset) // 4 % 64
        want = int(before[2, source]) if mask >> source & 1 else 0
        assert int(wave.v[0, lane]) == (want if mask >> lane & 1 else int(before[0, lane]))


@pytest.mark.parametrize("mask", EXECS[:2])
@pytest.mark.parametrize("pattern", [0x041F, 0x8000 | 0b00011011, 0x7C10, 0xC000 | 3 << 5, 0xC400 | 1 << 5 | 16])
def test_swizzle(mask: int, pattern: int) -> None:
    wave = prepared(pattern, mask)
    before = wave.v.copy()
    run(wave, "ds_swizzle_b32", {"vdst": V["vdst"], "addr": V["addr"]}, offset=pattern)
    for lane in range(64):
        at = lane % 32
        if pattern >= 0xC000:
            count, keep = pattern >> 5 & 31, pattern & 31
            moved = at + (-count if pattern >> 10 & 1 else count) & 31
            source = at & keep | moved & ~keep & 31
        elif pattern & 0x8000:
            source = at & ~3 | pattern >> 2 * (at & 3) & 3
        else:
            source = (at & pattern & 31 | pattern >> 5 & 31) ^ pattern >> 10 & 31
        source |= lane & 32
        want = int(before[1, source]) if mask >> source & 1 else 0
        assert int(wave.v[0, lane]) == (want if mask >> lane & 1 else int(before[0, lane]))


@pytest.mark.parametrize("mask", EXECS)
def test_read_and_write_lanes(mask: int) -> None:
    wave = prepared(1, mask)
    before = wave.v.copy()
    run(wave, "v_readfirstlane_b32", {"sdst": Reg("s", 20), "vdst": Reg("s", 20), "src0": Reg("v", 1)})
    first = (mask & -mask).bit_length() - 1 if mask else 0
    assert int(wave.s[20]) == int(before[1, first])
    for lane in (0, 31, 63, 64 + 5, 0xFFFFFFFF):
        wave.s[21] = lane
        operands = {"vdst": Reg("s", 22), "sdst": Reg("s", 22), "src0": Reg("v", 2), "src1": Reg("s", 21)}
        run(wave, "v_readlane_b32", operands, "e64")
        assert int(wave.s[22]) == int(before[2, lane % 64])
        wave.s[23] = 0xABCD0000 | lane & 0xFFFF
        operands = {"vdst": Reg("v", 0), "src0": Reg("s", 23), "src1": Reg("s", 21)}
        run(wave, "v_writelane_b32", operands, "e64")
        before[0, lane % 64] = wave.s[23]
        np.testing.assert_array_equal(wave.v[0], before[0])
    run(wave, "v_writelane_b32", {"vdst": Reg("v", 0), "src0": Const(129), "src1": Const(130)}, "e64")
    assert int(wave.v[0, 2]) == 1


@pytest.mark.parametrize("mask", EXECS)
def test_swaps(mask: int) -> None:
    wave = prepared(3, mask)
    before = wave.v.copy()
    pair: dict[str, Reg | Const] = {"vdst": Reg("v", 0), "src0": Reg("v", 1)}
    run(wave, "v_swap_b32", pair)
    for target, source in ((0, 1), (1, 0)):
        want = np.where(active(mask), before[source], before[target])
        np.testing.assert_array_equal(wave.v[target], want)


@pytest.mark.parametrize("width", [16, 32])
def test_permlane_swaps(width: int) -> None:
    """Odd groups of 16 (32) lanes of vdst change places with the even groups of src0."""
    wave = prepared(width, EXECS[0])
    before = wave.v.copy()
    pair: dict[str, Reg | Const] = {"vdst": Reg("v", 0), "src0": Reg("v", 1)}
    run(wave, f"v_permlane{width}_swap_b32", pair)
    want = before[:2].copy()
    for start in range(0, 64, 2 * width):
        low, high = slice(start, start + width), slice(start + width, start + 2 * width)
        want[0, high], want[1, low] = before[1, low], before[0, high]
    np.testing.assert_array_equal(wave.v[:2], want)


@pytest.mark.parametrize(("name", "width"), [("v_div_fmas_f32", 32), ("v_div_fmas_f64", 64)])
def test_division_step_reads_vcc(name: str, width: int) -> None:
    """a·b + c, scaled by 2**64 (f64: 2**128) or its inverse in the lanes that VCC names."""
    wave = Wave()
    kind = np.float32 if width == 32 else np.float64
    numbers = np.random.default_rng(1).uniform(1, 2, (3, 64)).astype(kind)
    count = width // 32
    args: dict[str, Reg | Const] = {"vdst": Reg("v", 0, count)}
    for i, column in enumerate(numbers):
        for part in range(count):
            wave.v[10 + i * count + part] = column.view(u32)[part::count]
        args[f"src{i}"] = Reg("v", 10 + i * count, count)
    wave.s[106:108] = 0xAAAAAAAA, 0x0000FFFF
    run(wave, name, args, "e64")
    raw = np.stack([wave.v[part] for part in range(count)], 1).reshape(-1).view(kind)
    lanes = np.unpackbits(wave.s[106:108].view(np.uint8), bitorder="little").astype(bool)
    exact = numbers[0].astype(np.longdouble) * numbers[1] + numbers[2]
    plain = exact.astype(kind)
    scaled = raw / plain
    np.testing.assert_allclose(np.abs(np.log2(scaled[lanes])), {32: 64, 64: 128}[width], atol=1e-6)
    np.testing.assert_allclose(scaled[~lanes], 1, rtol=1e-6)


def test_accumulation_registers() -> None:
    wave = prepared(2, EXECS[1])
    before = wave.v[1].copy()
    run(wave, "v_accvgpr_write_b32", {"vdst": Reg("a", 7), "src0": Reg("v", 1)}, "e64")
    run(wave, "v_accvgpr_read_b32", {"vdst": Reg("v", 0), "src0": Reg("a", 7)}, "e64")
    written = np.where(active(EXECS[1]), before, 0)
    np.testing.assert_array_equal(wave.a[7], written)
    np.testing.assert_array_equal(wave.v[0][active(EXECS[1])], before[active(EXECS[1])])


@pytest.mark.parametrize("mask", EXECS)
@pytest.mark.parametrize("distance", [16, 32])
def test_permlane_swap(mask: int, distance: int) -> None:
    """Odd rows of 16 (or the upper half) of vdst change places with even rows of src0."""
    wave = prepared(distance, mask)
    before = wave.v.copy()
    run(wave, f"v_permlane{distance}_swap_b32", {"vdst": Reg("v", 0), "src0": Reg("v", 1)})
    want = before[:2].copy()
    for lane in range(64):
        if mask >> lane & 1:
            if lane & distance:
                want[0, lane] = before[1, lane - distance]
            else:
                want[1, lane] = before[0, lane + distance]
    np.testing.assert_array_equal(wave.v[:2], want)
