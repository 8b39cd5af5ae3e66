"""Random LLVM IR: the host and the simulator agree, a wrong instruction is found, a program shrinks. The long run is
`robustness.ir`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from simgpu.asm.builder import toolchain
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.tools.robustness import ir, ir_exam
from simgpu.tools.robustness.ir_exam import EXAM, OUT_OF_REACH, REFUTED, SHOWN, Report
from simgpu.tools.robustness.ir_faults import FAULTS, CompilerFault
from simgpu.tools.robustness.ir_programs import IrProgram, program
from simgpu.tools.robustness.ir_reduce import reduce_program
from simgpu.tools.robustness.ir_runs import ProgramRejected, Setting, code_object, difference, host_results

SEED = 11
SETTING = Setting("gfx950", "-O0", False)


def small_programs(count: int) -> list[IrProgram]:
    """Returns the shortest of some, as each has many handlers to compile."""
    drawn = [program(SEED, number) for number in range(40)]
    return sorted(drawn, key=lambda one: sum(map(len, one.bodies)))[:count]


def test_host_and_simulator_agree() -> None:
    programs = small_programs(3)
    assert list(ir.differences(programs, ir.host_memory(programs, SEED), SETTING, SEED)) == []


def test_a_program_depends_on_seed_and_number_only() -> None:
    assert program(3, 4) == program(3, 4)
    assert program(3, 4) != program(4, 4)


def is_llvm_22() -> bool:
    return "version 22." in toolchain.candidates()[0].version()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_llvm_is_in_the_setting_that_is_named(fault: CompilerFault) -> None:
    """Fails for a release of LLVM 22 that has repaired it: the row and what avoids it go then."""
    if not is_llvm_22():
        pytest.skip("the faults are those of LLVM 22")
    example = fault.example()
    expected = ir.host_memory([example], SEED)
    assert list(ir.differences([example], expected, fault.wrong, SEED))
    assert not list(ir.differences([example], expected, fault.right, SEED))


@pytest.mark.parametrize("report", [report for report in EXAM if not report.fault], ids=lambda report: report.issue)
def test_a_public_report_has_the_verdict_that_is_recorded(report: Report) -> None:
    if not is_llvm_22():
        pytest.skip("the verdicts are those of LLVM 22")
    verdict, sign = report.judge()
    assert verdict == report.verdict, sign
    assert (verdict == OUT_OF_REACH) == bool(report.reason)


def test_reports_name_faults_that_exist() -> None:
    named = {report.fault for report in EXAM if report.fault}
    assert named <= {fault.name for fault in FAULTS}
    assert all(report.verdict == SHOWN for report in EXAM if report.fault)


def test_a_right_program_refutes_a_report_and_a_wrong_one_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Lint's rows depend on the words of a finding: the same program with enough wait states has none."""
    far = next(report for report in EXAM if report.issue == "llvm #222040")
    assert "%m18, %m18" in far.lines
    nearer = dataclasses.replace(far, lines=far.lines.replace("mul i32 %m18, %m18", "add i32 %m18, 0"))
    assert nearer.judge()[0] == REFUTED
    assert ir_exam.main(["222040"]) == 0
    assert capsys.readouterr().out.startswith("llvm #222040: shown: 19 wait states")
    with pytest.raises(SystemExit):
        ir_exam.main(["1"])
    assert "no report 1; there are 215745" in capsys.readouterr().err


@pytest.mark.parametrize("count", [0, 1, 7, 64])
def test_the_first_wrong_pass_is_found(count: int) -> None:
    ir_bisect = pytest.importorskip("simgpu.tools.robustness.ir_bisect", reason="needs the solver z3", exc_type=ImportError)
    for at in range(count + 1):
        assert ir_bisect.first_wrong(count, lambda limit, at=at: limit >= at) == at
    passes = ["sroa on f", "gvn on f"]
    assert ir_bisect.blame(passes, lambda limit: limit >= 2) == "wrong from pass 2 of 2 on: gvn on f"
    assert "always runs" in ir_bisect.blame(passes, lambda limit: True)


@pytest.mark.slow
def test_the_pass_of_a_file_that_is_compiled_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ir_bisect = pytest.importorskip("simgpu.tools.robustness.ir_bisect", reason="needs the solver z3", exc_type=ImportError)
    fault = next(fault for fault in FAULTS if fault.name == "scc-of-a-removed-and")
    file, script = tmp_path / "k.ll", tmp_path / "wrong.sh"
    file.write_text(fault.example().text(gpu=True))
    options = "--options=-O2 -Xclang -disable-llvm-passes"
    assert ir_bisect.main([str(file), options, "--script", str(script)]) == 0
    assert re.search(r"wrong from pass \d+ of \d+ on: si-shrink-instructions on function \(p0\)", capsys.readouterr().out)
    assert script.read_text().startswith("#!/bin/sh") and script.stat().st_mode & 0o100
    assert ir_bisect.main([str(file), "--options=-O1", "--other-options=-O1"]) == 0
    assert capsys.readouterr().out.startswith("equal: both compilations do the same")
    with pytest.raises(SystemExit):
        ir_bisect.main(["nothing.ll"])
    assert "no such file, and no fault" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_first_pass_of_a_fault_is_recorded(fault: CompilerFault) -> None:
    ir_bisect = pytest.importorskip("simgpu.tools.robustness.ir_bisect", reason="needs the solver z3", exc_type=ImportError)
    line = ir_bisect.blame_in_fault(fault)
    assert f": {fault.first_pass} on " in line if fault.first_pass else "always runs" in line


def test_programs_without_odd_widths_are_for_globalisel() -> None:
    odd = re.compile(r"\bi(3[3-9]|[45]\d|6[0-3])\b")
    signs = r"sext|ashr|sdiv|srem|icmp s\w\w|sitofp|smin|smax|\.abs|s(add|sub)\.(sat|with)|fptosi"
    signed = re.compile(rf"({signs})\S* .*{odd.pattern}")
    for number in range(60):
        one = program(SEED, number)
        lines = [line for body in one.bodies for line in body]
        assert one.global_isel == (number % 2 == 0)
        assert not one.global_isel or not [line for line in lines if signed.search(line.partition(" to ")[0])]


def test_levels_of_the_host_agree() -> None:
    programs = small_programs(5)
    for unoptimized, optimized in zip(host_results(programs, SEED), host_results(programs, SEED, "-O1"), strict=True):
        assert difference(unoptimized, optimized) is None


def test_code_that_ends_the_host_s_process_is_rejected() -> None:
    body = ("entry:", "  store i32 1, ptr null", "  ret void")
    one = IrProgram(0, (body, ("entry:", "  ret void")), ("noinline", "noinline"))
    with pytest.raises(ProgramRejected, match="ended by signal 11"):
        host_results([one], SEED)


def shifted_stores(code: bytes) -> bytes:
    """Returns the code object with one byte more (or less) in the offset of each global store."""
    changed = bytearray(code)
    (segment,) = (segment for segment in CodeObject.parse(code).segments if segment.executable)
    start = code.index(segment.data)
    for place in range(start, start + len(segment.data) - 3, 4):
        word = int.from_bytes(code[place : place + 4], "little")
        # Encoding of flat instructions: bits 26 to 31; the segment, 2 for global: bits 14 and 15; the opcode: bits 18 to 24.
        if word >> 26 == 0x37 and word >> 14 & 3 == 2 and 24 <= word >> 18 & 0x7F <= 31:
            changed[place] ^= 1
    return bytes(changed)


@pytest.mark.slow
def test_a_wrong_instruction_is_found_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ir, "code_object", lambda programs, setting: shifted_stores(code_object(programs, setting)))
    monkeypatch.setattr(ir, "TRIALS", 6)
    (one,) = small_programs(1)
    assert ir.main(["--seed", str(SEED), "--first", str(one.number), "--count", "1", "--target", "gfx950", "--level=-O0"]) == 1
    printed = capsys.readouterr().out
    assert f"p{one.number} differs, gfx950 -O0: " in printed
    assert f"define amdgpu_kernel void @p{one.number}(" in printed
    assert "1 programs differ" in printed


def test_a_reduced_program_keeps_what_fails_and_still_compiles() -> None:
    def fails(candidate: IrProgram) -> bool:
        return "@llvm.memmove" in candidate.text(gpu=False)

    whole = next(one for number in range(100) if fails(one := program(SEED, number)))
    small = reduce_program(whole, fails)
    assert fails(small)
    assert sum(map(len, small.bodies)) < sum(map(len, whole.bodies)) / 4
    assert host_results([small], SEED)
