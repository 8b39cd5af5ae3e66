"""Opcode tables of the VALU against the oracle's, every target."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.isa.instructions import vop1, vop1_cvt, vop2, vop3, vop3p, vopc
from simgpu.hardware.isa.spec import REGISTRY, Spec
from tests.support.places import SHARED

MODULES = (vop1, vop1_cvt, vop2, vop3, vop3p, vopc)
ENCODINGS = SHARED / "oracles" / "encodings"
VALU = ("vop1", "vop2", "vopc", "vop3", "vop3p")
E64_BASE = {"vop1": 0x140, "vop2": 0x100, "vopc": 0}
VOP3_ONLY = 0x1C0
SUFFIXES = ("_e32", "_sdwa", "_dpp")
# Valid encodings that the oracle's sampling missed; each assembles with clang 22 for its target.
UNSAMPLED = {
    "vop1": {"v_nop", "v_clrexcp"},
    "gfx950": {
        "v_sat_pk_u8_i16",
        "v_swap_b32",
        "v_accvgpr_mov_b32",
        "v_cvt_f32_fp8",
        "v_cvt_f32_bf8",
        "v_cvt_pk_f32_fp8",
        "v_cvt_pk_f32_bf8",
        "v_prng_b32",
        "v_permlane16_swap_b32",
        "v_permlane32_swap_b32",
        "v_cvt_f32_bf16",
    },
}
# LLVM forms without operands (v_nop) or with an operand LLVM doubts are not in every sample.
UNSAMPLED_E64 = {"v_nop", "v_clrexcp"}


def specs(encoding: str, target: str) -> list[Spec]:
    return [s for s in REGISTRY.specs if s.encoding == encoding and target in s.opcodes]


def table(encoding: str, target: str, without: str = "") -> set[tuple[int, str]]:
    """Returns (opcode, mnemonic) of the specs, except those with the flag `without`."""
    return {(s.opcodes[target], s.mnemonic) for s in specs(encoding, target) if without not in s.flags}


@pytest.fixture(scope="module", params=TARGETS)
def oracle(request: pytest.FixtureRequest) -> tuple[str, dict[str, dict[str, dict[str, object]]]]:
    path = ENCODINGS / f"{request.param}.json.gz"
    if not path.exists():
        pytest.skip("no ../shared/oracles")
    with gzip.open(path) as file:
        return request.param, json.load(file)


def sampled(section: dict[str, dict[str, object]]) -> set[tuple[int, str]]:
    rows = set()
    for opcode, entry in section.items():
        name = str(entry["mnemonic"])
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        rows.add((int(opcode), name))
    return rows


@pytest.mark.parametrize("encoding", ["vop1", "vop2", "vopc"])
def test_e32(oracle: tuple[str, dict], encoding: str) -> None:
    target, data = oracle
    ours, theirs = table(encoding, target), sampled(data[encoding.upper()])
    assert theirs - ours == set()
    missed = {name for _, name in ours - theirs}
    allowed = (UNSAMPLED["vop1"] | UNSAMPLED.get(target, set())) if encoding == "vop1" else set()
    assert missed == allowed


@pytest.mark.parametrize("encoding", ["vop1", "vop2", "vopc"])
@pytest.mark.parametrize("form", ["SDWA", "DPP"])
def test_sdwa_and_dpp(oracle: tuple[str, dict], encoding: str, form: str) -> None:
    target, data = oracle
    theirs = sampled(data.get(f"{encoding.upper()}_{form}", {}))
    assert table(encoding, target, without=f"no_{form.lower()}") == theirs


def test_vop3(oracle: tuple[str, dict]) -> None:
    target, data = oracle
    theirs = {
        (int(opcode), str(entry["mnemonic"]))
        for section in ("VOP3", "VOP3B")
        for opcode, entry in data[section].items()
    }
    only = {(opcode, name) for opcode, name in theirs if opcode >= VOP3_ONLY}
    assert table("vop3", target) == only
    e64 = {(opcode, name.removesuffix("_e64")) for opcode, name in theirs - only}
    ours = {
        (opcode + base, name)
        for encoding, base in E64_BASE.items()
        for opcode, name in table(encoding, target, without="no_e64")
    }
    assert e64 - ours == set()
    assert {name for _, name in ours - e64} <= UNSAMPLED_E64


def test_vop3p(oracle: tuple[str, dict]) -> None:
    target, data = oracle
    theirs, ours = (
        {row for row in rows if not row[1].startswith("v_mfma")}
        for rows in (sampled(data["VOP3P"]), table("vop3p", target))
    )
    assert ours == theirs


@pytest.mark.parametrize("target", TARGETS)
def test_no_two_specs_share_an_opcode_or_a_name(target: str) -> None:
    for encoding in VALU:
        rows = specs(encoding, target)
        assert max(Counter(s.opcodes[target] for s in rows).values()) == 1
    names = Counter(s.mnemonic for e in VALU for s in specs(e, target))
    assert max(names.values()) == 1


def test_every_instruction_says_what_it_does() -> None:
    for spec in (s for s in REGISTRY.specs if s.encoding in VALU):
        assert (spec.body is not None and spec.results) or spec.kind == "control", spec
