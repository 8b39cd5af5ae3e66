"""Fidelity report: every inexact instruction has a bound or a reason, and a run lists what it executed."""

from __future__ import annotations

import pytest

from simgpu.hardware import mfma
from simgpu.hardware.isa import REGISTRY, TARGETS
from simgpu.hardware.isa.fidelity import BOUNDS, OPEN, fidelity_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.tools.shared.launching import combine_runs, run_document, show_run
from tests.support.engine_kernel import execute


def test_every_bounded_instruction_has_its_bound() -> None:
    assert {spec.mnemonic for spec in REGISTRY.specs if "bounded" in spec.flags} == set(BOUNDS)


def test_every_unverified_instruction_has_a_reason() -> None:
    unverified = [spec for spec in REGISTRY.specs if "unverified" in spec.flags]
    for spec in unverified:
        target = next(iter(spec.opcodes))
        found = fidelity_of(Instruction(spec, target, "e64", {}))
        assert found.kind == "unverified" and found.why
    used = {name for name in OPEN for spec in REGISTRY.specs if spec.mnemonic.startswith(name)}
    assert used == set(OPEN)


@pytest.mark.parametrize("target", TARGETS)
def test_every_matrix_instruction_is_exact_or_says_why_not(target: str) -> None:
    specs = {spec.mnemonic: spec for spec in REGISTRY.specs if spec.kind == "matrix" and target in spec.opcodes}
    for row in mfma.instructions(target):
        found = fidelity_of(Instruction(specs[row.mnemonic], target, "e64", {}))
        assert found.kind == row.fidelity()
        assert bool(found.why) == (found.kind != "exact")


def test_a_run_lists_what_is_not_exact() -> None:
    lines = "v_cvt_f32_u32 v1, v0\nv_exp_f32 v2, v1\nv_exp_f32 v3, v2\nv_dot2_f32_f16 v4, v0, v0, v0\ns_memtime s[20:21]"
    run = execute("gfx942", lines, block=128).run
    listed = {entry.mnemonic: (entry.fidelity.kind, entry.count) for entry in run.inexact}
    assert listed == {"v_exp_f32": ("bounded", 4), "v_dot2_f32_f16": ("unverified", 2), "s_memtime": ("unverified", 2)}
    assert (run.fidelity["bounded"], run.fidelity["unverified"]) == (4, 4)
    assert sum(run.fidelity.values()) == run.instructions
    assert "1 ulp" in run.inexact[0].fidelity.why and "guides" in run.inexact[0].fidelity.why


def test_commands_print_it(capsys: pytest.CaptureFixture[str]) -> None:
    run = execute("gfx908", "v_cvt_f32_u32 v1, v0\nv_sin_f32 v2, v1").run
    show_run(run)
    printed = " ".join(capsys.readouterr().out.split())
    assert "v_sin_f32 bounded 1 within 1 ulp" in printed
    [entry] = run_document(combine_runs([run, run]))["inexact"]
    assert (entry["instruction"], entry["fidelity"], entry["count"]) == ("v_sin_f32", "bounded", 2)
