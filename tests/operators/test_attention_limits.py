"""Attention's plan has every limit of other operators: LDS, registers of each file, SGPRs, waves, workgroup, atoms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simgpu import asm, hardware
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import LaunchError
from simgpu.operators import AttentionProblem, FusedAttention, UnfusedAttention, plan_attention
from simgpu.operators.attention.unfused import PARTS

COMMON = {"LDS", "SGPR", "waves per SIMD", "workgroup size", "atom alignment"}
FILES = {"mi100": {"ArchVGPR", "AccVGPR"}, "mi300x": {"ArchVGPR", "AccVGPR", "VGPR file"}}
MORE = {"published": {"VGPR"}, "corrected": {"L2 bandwidth", "HBM bandwidth", "split of keys", "load latency", "LDS bandwidth",
                                                "vector cache bandwidth", "loads in flight"}}  # fmt: skip
CACHES = {("mi300x", "corrected"): {"Infinity Cache bandwidth"}}


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("policy", ["corrected", "published"])
def test_every_limit_has_a_row(target: str, policy: str) -> None:
    tree = FusedAttention(AttentionProblem(300, 500, 64, 2), target, policy)
    rows = {row.name: row for row in tree.derivation.constraints}
    more = MORE[policy] | CACHES.get((target, policy), set())
    assert COMMON | FILES[target] | more | {"occupancy", "operand bandwidth"} == set(rows)
    assert all(row.slack == row.limit - row.use and row.remedy for row in rows.values() if row.hard)
    assert sum(len(node.constraints()) for node in tree.representatives()) == len(rows)
    d = tree.descriptor
    assert (rows["SGPR"].limit, rows["waves per SIMD"].limit) == (d.sgprs_per_wave + 6, d.max_waves_per_simd)
    unfused = UnfusedAttention(AttentionProblem(300, 500, 64, 2), target, policy).derivation.constraints
    for part in PARTS:
        wanted = {f"{part}: {name}" for name in ("LDS", "ArchVGPR", "AccVGPR", "SGPR", "waves per SIMD")}
        assert wanted <= {row.name for row in unfused}


STOPS = [
    ("corrected", "SGPR", {"sgprs_per_wave": 40}),
    ("published", "SGPR", {"sgprs_per_wave": 40}),
    ("corrected", "workgroup size", {"max_workgroup_size": 128}),
    ("published", "workgroup size", {"max_workgroup_size": 32}),
    ("corrected", "waves per SIMD", {"simds_per_cu": 1, "max_waves_per_simd": 3}),
]


@pytest.mark.parametrize(("policy", "name", "figures"), STOPS)
def test_each_limit_can_stop_it(policy: str, name: str, figures: dict[str, int]) -> None:
    plan = plan_attention(AttentionProblem(64, 64, 32), replace(hardware.target("mi300x"), **figures), policy)  # type: ignore[arg-type]
    assert not plan.feasible and plan.binding.name == name and plan.remedy == plan.binding.remedy


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("values", ["mfma", "fma"])
def test_published_kernels_stay_within_the_sgprs(dtype: str, values: str) -> None:
    tree = FusedAttention(AttentionProblem(70, 90, 128, 4, 2, 2, True, 20, dtype=dtype), "mi100", "published", values)
    kernel = asm.emit(tree)
    code = CodeObject.parse(kernel.assemble())
    rows, planned = {row.name: row.use for row in tree.derivation.constraints}, tree.derivation.resources
    use = rows["SGPR"]
    assert (planned.arch_vgprs, planned.acc_vgprs, planned.sgprs) == (rows["ArchVGPR"], rows["AccVGPR"], use)
    assert use - 8 < code.kernels[kernel.name].sgpr_count <= use, "within a granule of 8"


@pytest.mark.parametrize("given", [{"d": 2**48}, {"d": 64, "dv": 8208}])
def test_heads_wider_than_the_register_file_are_refused_at_once(given: dict[str, int]) -> None:
    problem = AttentionProblem(lq=128, lk=128, **given)
    with pytest.raises(LaunchError, match=r"dv? = \d+: a wave holds 16 rows of a head in registers: d <= \d+ fits"):
        plan_attention(problem, hardware.target("mi300x"))
