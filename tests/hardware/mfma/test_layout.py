"""Matrix instruction rows and fragment ownership, against AMD's calculator and LLVM."""

from __future__ import annotations

import functools
import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma import MatrixInstruction, by_opcode, find, instructions
from tests.support.places import SHARED
from tests.support.sweeps import swept

ORACLES = SHARED / "oracles"
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
ROWS = [row for target in TARGETS for row in instructions(target)]
VARIANTS = [
    v
    for row in ROWS
    for v in ([row.with_formats(a, b) for a in range(5) for b in range(5)] if row.flexible else [row])
]

# The oracle's names of types.
TYPES = {
    "fp64": "f64",
    "fp32": "f32",
    "xf32": "xf32",
    "fp16": "f16",
    "bf16": "bf16",
    "int8": "i8",
    "int32": "i32",
    "amd_fp8": "fp8_fnuz",
    "amd_bf8": "bf8_fnuz",
    "fp8": "fp8",
    "bf8": "bf8",
    "fp6": "fp6",
    "fp4": "fp4",
}


@functools.cache
def oracle(name: str):
    path = ORACLES / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return json.loads(gzip.decompress(path.read_bytes()))


def operands(row: MatrixInstruction) -> list[str]:
    return ["A", "B", "C", "D"] + ["IDX"] * row.sparse + ["SCALE_A", "SCALE_B"] * row.scaled


def label(row: MatrixInstruction) -> str:
    return f"{row.target}-{row.mnemonic}-{row.a_type}-{row.b_type}"


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_the_calculators(target):
    theirs = oracle("mfma_layouts.json.gz")["targets"][target]
    ours = {row.mnemonic for row in instructions(target) if not row.scaled}
    assert ours == {name.split(":")[0] for name in theirs}
    for name, row in theirs.items():
        mine = find(name, target)
        assert (mine.m, mine.n, mine.k, mine.blocks, mine.opcode, mine.passes, mine.sparse) == tuple(
            row[key] for key in ("m", "n", "k", "blocks", "opcode", "passes", "sparse")
        ), name
        assert (mine.a_type, mine.b_type, mine.cd_type) == tuple(
            TYPES[row[t]] for t in ("a_type", "b_type", "cd_type")
        )
        assert {"A": mine.registers("A"), "B": mine.registers("B"), "CD": mine.registers("D")} == row[
            "vgprs"
        ], name
        assert ("cbsz" in mine.modifiers) == row["cbsz_abid"], name
        assert bool({"blgp", "neg"} & mine.modifiers) == row["blgp"], name
        assert mine.coexec_delay == row.get("coexec_delay"), name


@pytest.mark.parametrize("target", TARGETS)
def test_every_element_is_where_the_calculator_has_it(target):
    for name, row in oracle("mfma_layouts.json.gz")["targets"][target].items():
        mine = find(name, target)
        for operand, theirs in row["layout"].items():
            loc = np.array(theirs["loc"])
            low = np.array(theirs["lo"]) if "lo" in theirs else np.zeros_like(loc)
            for each in operand if operand == "CD" else [operand]:
                got = mine.map(each)
                assert got.shape == (*loc.shape, 3), (name, each)
                assert mine.width(each) == theirs["width"], (name, each)
                if "UNVERIFIED" in row["source"] and each not in "CD":
                    assert not mine.is_verified(each), (name, each)
                    if mine.registers("B") == 8 and each == "B":
                        continue  # the calculator has no gfx950; its B is as hipSPARSELt's kernels need it
                assert (got[..., 0] * 64 + got[..., 1] == loc).all() and (got[..., 2] == low).all(), (name, each)
                if target != "gfx950":
                    assert mine.is_verified(each)


@pytest.mark.parametrize("target", TARGETS)
def test_mnemonics_and_opcodes_are_llvms(target):
    mai = oracle(f"encodings/{target}.json.gz")["MAI"]
    theirs = {
        int(op): e["mnemonic"]
        for op, e in mai.items()
        if e["mnemonic"].startswith(("v_mfma_f", "v_mfma_i", "v_smfmac"))
    }
    ours = {row.opcode: row.mnemonic for row in instructions(target) if not row.scaled}
    assert theirs.items() <= ours.items()
    assert set(ours) - set(theirs) <= {125, 126, 127}  # the samples lack these of gfx942


@pytest.mark.slow
@swept("row", VARIANTS, ids=label)
def test_maps_are_bijections_and_invert(row):
    for operand in operands(row):
        places = row.map(operand)
        stride = row._stride(operand) if operand not in "CD" else 1
        flat = places.reshape(-1, 3) @ np.array([64 * 32, 32, 1])
        assert len(np.unique(flat)) * stride == flat.size
        assert (
            places[..., 0].max() + -(-(places[..., 2].max() + row.width(operand)) // 32)
            <= row.registers(operand) + 1
        )
        for block, i, j in np.argwhere(np.ones(places.shape[:3]))[:: max(1, flat.size // 97)]:
            place = tuple(int(x) for x in places[block, i, j])
            found = row.element(operand, *place)
            rows_are_k = operand in ("B", "SCALE_B")
            wanted = [int(i), int(j), int(block)]
            if stride > 1:
                wanted[0 if rows_are_k else 1] -= wanted[0 if rows_are_k else 1] % stride
            assert found == tuple(wanted), (operand, place)


@given(st.sampled_from(VARIANTS), st.data())
def test_owner_agrees_with_the_map(row, data):
    operand = data.draw(st.sampled_from(operands(row)))
    rows, columns = row.shape(operand)
    i, j = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    block = data.draw(st.integers(0, row.blocks - 1))
    assert row.owner(operand, i, j, block) == tuple(row.map(operand)[block, i, j])


def test_broadcast_reads_another_block():
    row = find("v_mfma_f32_4x4x1_16b_f32", "gfx942")
    for cbsz in range(5):
        for abid in range(1 << cbsz):
            got = row.map("A", cbsz=cbsz, abid=abid)
            for block in range(16):
                wanted = row.map("A")[(block >> cbsz << cbsz) + abid if cbsz else block]
                assert (got[block] == wanted).all()
    assert row.readers("A", 0, 5, cbsz=2, abid=1) == tuple((1, 0, b) for b in range(4))


@pytest.mark.parametrize(
    "blgp, lanes",
    [
        (1, [*range(32)] * 2),
        (2, [*range(32, 64)] * 2),
        (3, [*range(16, 64), *range(16)]),
        (4, [*range(16)] * 4),
        (5, [*range(16, 32)] * 4),
        (6, [*range(32, 48)] * 4),
        (7, [*range(48, 64)] * 4),
    ],
)
def test_blgp_permutes_lanes(blgp, lanes):
    row = find("v_mfma_f32_32x32x1f32", "gfx908")
    plain, got = row.map("B"), row.map("B", blgp=blgp)
    assert (got[..., 1] == np.array(lanes)[plain[..., 1]]).all()


@pytest.mark.parametrize(("name", "run"), [("v_smfmac_f32_16x16x64_bf16", 8), ("v_smfmac_i32_16x16x128_i8", 16)])
def test_a_wide_smfmac_has_two_runs_of_b_in_a_lane(name, run):
    """Each 16 bytes, one from each half of k: hipSPARSELt's products on gfx950 are right with this order only."""
    row = find(name, "gfx950")
    for k in range(row.k):
        half, rest = divmod(k, row.k // 2)
        register, lane, low = row.owner("B", k, 3)
        assert (lane, 4 * half + rest % run * row.width("B") // 32) == (3 + 16 * (rest // run), register)
        assert low == rest % run * row.width("B") % 32


def test_index_sets():
    half, byte = find("v_smfmac_f32_16x16x32_f16", "gfx942"), find("v_smfmac_i32_16x16x64_i8", "gfx942")
    assert (half.index_sets, byte.index_sets) == (4, 2)
    for row, shift in ((half, 8), (byte, 16)):
        for abid in range(row.index_sets):
            assert row.owner("IDX", 3, 8, abid=abid)[2] == row.owner("IDX", 3, 8)[2] + shift * abid
            assert row.owner("IDX", 3, 8, abid=abid, cbsz=1) == row.owner("IDX", 3, 8)


def test_aliases_boards_and_formats():
    assert find("v_mfma_f32_16x16x4f32", "mi300x").mnemonic == "v_mfma_f32_16x16x4_f32"
    assert find("v_mfma_f32_32x32x8bf16_1k", "gfx942").opcode == 96
    assert find("v_mfma_f32_32x32x8bf16_1k", "gfx90a").opcode == 102
    row = find("v_mfma_f32_16x16x128_f8f6f4", "gfx950")
    assert row.owner("A", 0, 33, cbsz=4) == find("v_mfma_f32_16x16x128_f8f6f4:fp4", "gfx950").owner(
        "A", 0, 33
    )
    assert find("v_mfma_f32_16x16x128_f8f6f4:fp8:fp4", "gfx950").registers("B") == 4
    passes = {(a, b): row.with_formats(a, b).passes for a in range(5) for b in range(5)}
    assert {8} == {p for (a, b), p in passes.items() if min(a, b) < 2} and {4} == {
        p for (a, b), p in passes.items() if min(a, b) > 1
    }
    assert by_opcode(45, "gfx950", scaled=True).mnemonic == "v_mfma_scale_f32_16x16x128_f8f6f4"
    assert all(by_opcode(r.opcode, r.target, scaled=r.scaled) is r for r in ROWS)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: find("v_mfma_f32_16x16x4_f32", "gfx908"), ["gfx942", "v_mfma_f32_16x16x4f32"]),
        (lambda: find("v_mfma_f32_16x16x8_xf32", "gfx950"), ["gfx942"]),
        (lambda: find("v_mfma_f32_16x16x4f32", "gfx1100"), ["gfx1100", "gfx908", "mi300x"]),
        (lambda: by_opcode(3, "gfx942"), ["opcode 3"]),
        (lambda: find("v_mfma_f32_16x16x4f32", "gfx908").owner("D", 16, 0), ["row 16", "0 to 15"]),
        (lambda: find("v_mfma_f32_16x16x4f32", "gfx908").owner("IDX", 0, 0), ["IDX"]),
        (lambda: find("v_mfma_f32_16x16x4f32", "gfx908").owner("A", 0, 0, cbsz=1), ["cbsz"]),
        (lambda: find("v_mfma_f32_4x4x1f32", "gfx908").owner("A", 0, 0, cbsz=5), ["2^cbsz"]),
        (lambda: find("v_mfma_f32_16x16x4f32", "gfx908").element("D", 4, 0), ["register 4"]),
        (lambda: find("v_mfma_f32_16x16x128_f8f6f4", "gfx950").owner("A", 0, 0, cbsz=5), ["cbsz:5", "fp4"]),
    ],
)
def test_errors_say_what_is_wrong(call, words):
    with pytest.raises(TargetError) as error:
        call()
    assert all(word in str(error.value) for word in words)


def test_xdl_classes():
    slow = {row.mnemonic for row in instructions("gfx942") if not row.xdl}
    assert all(name.endswith(("_f32", "_f64")) for name in slow) and len(slow) == 7
    assert [row.mnemonic for row in instructions("gfx90a") if not row.xdl] == [
        "v_mfma_f64_16x16x4f64",
        "v_mfma_f64_4x4x4f64",
    ]
