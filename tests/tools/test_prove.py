"""Verb prove: verdicts, their status, files of a counterexample, errors."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from simgpu.tools.cases.sources import load
from simgpu.tools.cli import main
from simgpu.tools.shared.errors import UsageError
from tests.support.altered import altered

SOURCE = "__global__ void f(unsigned *x, unsigned n) {{\n  unsigned i = threadIdx.x;\n  if (i < n) x[i] = {};\n}}\n"
GIVEN = ["--target", "mi300x"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in {"a": "i * 12 + x[i]", "b": "x[i] + 4 * i + (i << 3)", "c": "i * 12 + x[i] + (x[i] == 77)"}.items():
        Path(f"{name}.hip").write_text(SOURCE.format(value))
    return tmp_path


def test_equal(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "a.hip", "b.hip", *GIVEN]) == 0
    assert capsys.readouterr().out.startswith("equal: f(unsigned int*, unsigned int) of a.hip and b.hip")
    assert main(["prove", "a.hip", *GIVEN, "--options=-O1", "--other-options=-O3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "equal" and document["counterexample"] is None and len(document["assumed"]) == 2


@pytest.mark.slow
def test_a_counterexample_runs_by_the_printed_commands(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "a.hip", "c.hip", *GIVEN, "--save", "found"]) == 1
    lines = capsys.readouterr().out.splitlines()
    commands = [line.strip() for line in lines if line.strip().startswith("simgpu exec")]
    assert lines[0].startswith("different: ") and [command.split()[2] for command in commands] == ["found.a.co", "found.b.co"]
    for letter, command in zip("ab", commands, strict=True):
        assert main([*shlex.split(command)[1:], "--save", f"0={letter}.npy"]) == 0
    a, b = (np.load(f"{letter}.npy") for letter in "ab")
    assert (a != b).any() and 77 in np.load("found.0.npy").view(np.uint32)
    assert main(["prove", "a.hip", "c.hip", *GIVEN, "--save", "found"]) == 2
    assert "found.0.npy exists" in capsys.readouterr().err


def test_llvm_ir_is_a_source() -> None:
    text = "define amdgpu_kernel void @seven(ptr addrspace(1) %x) {\n  store i32 7, ptr addrspace(1) %x\n  ret void\n}\n"
    x = np.zeros(1, np.uint32)
    load(text, "mi300x")["seven"].launch(grid=1, block=1, args=[x])
    assert x[0] == 7
    with pytest.raises(UsageError, match="expected"):
        load(text.replace("store i32", "store"), "mi300x")


IR = """
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i64, ptr addrspace(1) %in, i32 %lane
  %q = getelementptr i64, ptr addrspace(1) %out, i32 %lane
  %a = load i40, ptr addrspace(1) %p, align 8
  %b = ashr i40 %a, 3
  store i40 %b, ptr addrspace(1) %q, align 8
  ret void
}
define i32 @f(i32 %a) {
  %b = add nsw i32 %a, 1
  ret i32 %b
}
define i32 @g(ptr addrspace(5) byval(i32) %a) {
  %b = load i32, ptr addrspace(5) %a
  ret i32 %b
}
"""


def test_machine_code_and_its_ir(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.ll").write_text(IR)
    assert main(["prove", "k.ll", *GIVEN]) == 0
    assert capsys.readouterr().out.startswith("verified: the machine code of k does what k.ll says, for all inputs\nassumed:")
    wrong = "--options=-O1 -mllvm -global-isel"
    assert main(["prove", "k.ll", *GIVEN, wrong, "--save", "found"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wrong: the machine code of k does not do what k.ll says" and "the IR " in lines[2]
    assert main([*shlex.split(lines[3])[1:], "--save", "1=after.npy"]) == 0
    capsys.readouterr()
    assert main(["prove", "k.ll", *GIVEN, wrong, "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)["counterexample"]
    machine = np.load("after.npy").tobytes()[shown["byte"] : shown["byte"] + 8]
    assert shown["results"][0] == machine.hex() and shown["results"][1] != shown["results"][0]


def test_functions_of_a_file_are_a_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("functions.ll").write_text(IR[IR.index("define i32 @f") :])
    assert main(["prove", "functions.ll", *GIVEN]) == 3
    lines = capsys.readouterr().out.splitlines()
    unknown = "unknown: g: a parameter of type ptr addrspace(5) by reference"
    assert lines == ["verified: f", unknown, "1 verified, 0 wrong, 1 unknown"]
    assert main(["prove", "functions.ll", *GIVEN, "--kernel", "f", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["function"] == "f"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (IR, GIVEN[:0], "give --target"),
        (IR, [*GIVEN, "--kernel", "h"], "k.ll defines no function h; it has f, g, k"),
        ("define void @f( {", GIVEN, "expected type"),
        ("", GIVEN, "k.ll defines no function"),
        ("BC\u00c0", GIVEN, "error"),
    ],
)
def test_errors_of_ir(files: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], message: str) -> None:
    Path("k.ll").write_text(text)
    assert main(["prove", "k.ll", *words]) == 2
    assert message in capsys.readouterr().err


def test_unknown_says_why(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = SOURCE.format("x[i] % n").replace("x[i] =", "for (unsigned k = 0; k < n; k++) x[i] *=")
    Path("loop.hip").write_text(loop)
    status = main(["prove", "loop.hip", *GIVEN, "--options=-O1", "--other-options=-O2", "--rounds", "2"])
    assert status == 3 and "unknown: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.hip", *GIVEN], "compile FILE twice"),
        (["a.hip", "b.hip", *GIVEN, "--rounds", "0"], "give 1 or more"),
        (["a.hip", "b.hip", *GIVEN, "--kernel", "g"], "no kernel 'g'"),
        (["a.hip", "b.hip"], "give --target"),
        (["a.hip", "b.hip", *GIVEN, "--seconds", "never"], "no number above 0"),
        (["a.hip", "b.hip", *GIVEN, "--effort", "0"], "no number above 0"),
        (["a.hip", "b.hip", *GIVEN, "--no-race"], "are about one kernel"),
        (["a.hip", "--other-kernel", "f", "--no-race"], "are about one kernel"),
        (["a.hip", "b.hip", *GIVEN, "--buffer", "x=4*n"], "--buffer goes with --no-out-of-bounds"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--buffer", "x"], "give an argument and its bytes"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--buffer", "x=4*k"], "'k' is no number here; there are n, grid_x"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--buffer", "n=4"], "'n' is no buffer but a number; buffers are x"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--buffer", "x=n // 0"], "divides by 0"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--assume", "n"], "give a comparison"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--assume", "n < x[0]"], "is not allowed"),
        (["a.hip", *GIVEN, "--no-out-of-bounds", "--largest-buffer", "-1"], "up to 2**48"),
    ],
)
def test_errors(files: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["prove", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_launch_that_leaves_a_buffer_is_saved(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prove", "a.hip", *GIVEN, "--no-out-of-bounds"]
    assert main([*words, "--buffer", "x=4*n"]) == 0
    assert capsys.readouterr().out.startswith("proved: f(unsigned int*, unsigned int) of a.hip accesses only its buffers: ")
    assert main([*words, "--buffer", "x=2*n", "--save", "left", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["counterexample"]
    assert found["finding"]["kind"] == "out-of-bounds" and found["command"].startswith("simgpu check left.co --grid")
    assert main(shlex.split(found["command"])[1:]) == 1
    assert "out-of-bounds" in capsys.readouterr().out
    assert main(words) == 3
    assert "the size of buffer x is not stated" in capsys.readouterr().out


def test_without_the_solver_a_sentence_says_what_to_install(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("simgpu.proof") or name == "simgpu.hardware.isa.lane_smt"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "z3", None)
    assert main(["prove", "a.hip", "b.hip", *GIVEN]) == 2
    assert "pip install 'simgpu[prove]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gemm_and_a_broken_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gemm", "-m", "100", "-n", "100", "-k", "100", *GIVEN]
    assert main(["prove", *words]) == 0
    page = (Path(__file__).parents[2] / "docs/how-to/prove-planned.md").read_text()
    assert all(f"    {line}\n" in page for line in capsys.readouterr().out.splitlines())
    kernel, edited = tmp_path / "k.s", tmp_path / "edited.s"
    assert main(["emit", *words, "-o", str(kernel)]) == 0
    edited.write_text(altered(kernel.read_text(), "v_lshl_add_u32 v3, v2, 2, s43 ", "v_lshl_add_u32 v3, v2, 1, s43 "))
    capsys.readouterr()
    assert main(["prove", *words, "--code", str(edited), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "counterexample" and "accessed twice" in document["reason"]
    assert document["counterexample"].startswith("simulated with m = ")


@pytest.mark.slow
def test_a_split_product_is_two_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gemm", "-m", "16", "-n", "16", "-k", "4096", "--target", "mi300x"]
    assert main(["prove", *words]) == 0
    said = capsys.readouterr().out
    assert "parts of K: each element of a part" in said and "adds the parts as planned" in said
    kernel, edited = tmp_path / "k.s", tmp_path / "edited.s"
    assert main(["emit", *words, "-o", str(kernel)]) == 0
    edited.write_text(kernel.read_text().replace("v_add_f32 v9, v17, v9 ", "v_add_f32 v9, v13, v9 ", 1))
    capsys.readouterr()
    assert main(["prove", *words, "--code", str(edited), "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)["kernels"]
    assert (first["verdict"], second["verdict"]) == ("proved", "counterexample") and "part 0 is added twice" in second["reason"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["softmax", "--rows", "8", "-n", "8"], "only gemm"),
        (["gemm", "-m", "8", "-n", "8", "-k", "8", "--groups", "2"], "--groups 2: no claim is made, as where"),
        (["gemm", *"-m 8 -n 8 -k 128 --scales block --dtype fp8 --target mi300x".split()], "block: no claim is made, as products"),
        (["gemm", "-m", "8", "-n", "8"], "-k"),
        (["k.co", "--code", "k.s"], "--code"),
        (["gemm", "-m", "8", "-n", "8", "-k", "8", "--no-race"], "go with a FILE"),
        (["k.co", "other.co", "third.co"], "third.co"),
    ],
)
def test_what_has_no_plan(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", *words]) == 2
    assert message in capsys.readouterr().err


def test_code_of_another_kernel_is_unknown(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "gemm", "-m", "8", "-n", "8", "-k", "8", *GIVEN, "--code", "a.hip"]) == 3
    assert capsys.readouterr().out.startswith("unknown: f")
