"""An operator in a user's file: every verb takes the file as OP, and says what it lacks."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from simgpu.hardware.targets import targets
from simgpu.operators import rmsnorm_gemm
from simgpu.operators.rows import forms
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.operators.table import BUILT_IN, operators_of
from simgpu.tools.cases.script import is_script
from simgpu.tools.cli import main

SHAPE = ["-m", "33", "-n", "9", "-k", "35"]
MINE = '''
from dataclasses import dataclass
import numpy as np
from simgpu.operators import FusedGemm
from simgpu.operators.expressions import absolute, maximum

@dataclass(frozen=True)
class Mine(FusedGemm):
    """C (m,n) = A / max(sum(|A|), floor) * gain @ B. More."""
    name = "l1norm_gemm"
    vectors = ("gain",)
    floor: float = 1e-3
    both: bool = True

    def row_sums(self, a, gain):
        return {"size": absolute(a)}

    def left_operand(self, a, gain):
        return a * gain

    def result(self, product, size):
        return product / maximum(size, self.floor)

    def reference(self, a, b, gain):
        return (a * gain) @ b / np.maximum(np.abs(a).sum(1, keepdims=True), self.floor)

OPERATORS = (Mine,)
'''
ROW = '''
from dataclasses import replace
from simgpu.tools.cases.operators import OPERATORS as KNOWN

OPERATORS = (replace(KNOWN["softmax"], name="mine"),)
'''
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


def failing(capsys: Capture, *words: str) -> str:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "Traceback" not in said and "internal error" not in said
    return said


def test_verbs_take_a_file(capsys: Capture, mine: str, tmp_path: Path) -> None:
    for verb in ("tree", "check", "time"):
        assert main([verb, mine, *SHAPE]) == 0
    assert main(["emit", mine, *SHAPE, "--object", str(tmp_path / "k.co")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.exhaustive
def test_the_other_verbs_take_a_file(capsys: Capture, mine: str) -> None:
    for verb in ("derive", "run", "report", "bench", "lds", "profile"):
        assert main([verb, mine, *SHAPE]) == 0
    assert main(["trace", mine, *SHAPE, "--at", "0x0"]) == 0
    assert main(["why", "C[3,5]", mine, *SHAPE]) == 0
    assert main(["debug", "-ex", "continue", "-ex", "quit", mine, *SHAPE]) == 0
    assert main(["same", mine, *SHAPE, "and", f"{mine}:l1norm_gemm", *SHAPE]) == 0
    assert capsys.readouterr().err == ""


def test_a_row_in_a_file_is_an_operator(capsys: Capture, mine: str) -> None:
    Path(mine).write_text(ROW)
    assert main(["check", f"{mine}:mine", "--rows", "3", "-n", "70"]) == 0
    assert capsys.readouterr().err == ""


def test_fields_are_options_and_the_document_has_them(capsys: Capture, mine: str) -> None:
    assert main(["run", mine, *SHAPE, "--floor", "9", "--no-both", "--bias", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["pass"] and made["operator"] == "l1norm_gemm"
    assert (made["problem"]["floor"], made["problem"]["both"], made["problem"]["bias"]) == (9, False, True)
    assert "name" not in made["problem"]
    assert main(["run", mine, "--help"]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "C (m,n) = A / max(sum(|A|), floor) * gain @ B" in said and "of the operator (default: 0.001)" in said


@pytest.mark.slow
def test_a_sweep_takes_a_file(capsys: Capture, mine: str, tmp_path: Path) -> None:
    (tmp_path / "shapes.txt").write_text("-m 5 -n 7 -k 9\n")
    words = ["sweep", mine, "--shapes", str(tmp_path / "shapes.txt"), "-o", str(tmp_path / "t.csv"), "--dtypes", "f32,f16"]
    assert main(words) == 0 and "2 pass" in capsys.readouterr().out
    assert "no operator 'gem' (did you mean gemm?)" in failing(capsys, "sweep", "gem", *words[2:])


def test_built_in_operators_come_in_by_the_same_door() -> None:
    """Expects nothing in the table but the OPERATORS of its modules; one of them is written as a user's file is."""
    of_rows = [kind.name for kind in forms.OPERATORS]
    others = ["gemm", "conv2d", "softmax", "attention", "unfused", "attention_backward", "rmsnorm_gemm"]
    assert list(OPERATORS) == [*others, *of_rows, "transpose", "columns"]
    assert not re.search(r"simgpu\.(asm|tools)", Path(str(forms.__file__)).read_text())
    assert BUILT_IN["rmsnorm_gemm"] == rmsnorm_gemm.__name__ and (rmsnorm_gemm.RmsNormGemm,) == rmsnorm_gemm.OPERATORS
    for module in set(BUILT_IN.values()):
        names = [name for name, home in BUILT_IN.items() if home == module]
        assert list(operators_of(importlib.import_module(module), module)) == names
    text = Path(str(rmsnorm_gemm.__file__)).read_text()
    assert not re.search(r"simgpu\.(asm|tools)", text)


def test_a_broken_operator_fails(capsys: Capture, mine: str) -> None:
    Path(mine).write_text(MINE.replace("return a * gain", "return a + gain"))
    assert main(["run", mine, *SHAPE]) == 1
    assert "are outside their bound" in capsys.readouterr().out


def test_a_script_without_operators_is_a_script(mine: str) -> None:
    assert not is_script(mine) and not is_script(f"{mine}:l1norm_gemm")
    Path(mine).write_text("import triton\n")
    assert is_script(mine)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("OPERATORS = (Mine,)", "", "has no OPERATORS: end it with OPERATORS = (YourClass,)"),
        ("OPERATORS = (Mine,)", "OPERATORS = (dict,)", "OPERATORS has dict: give classes that derive from FusedGemm"),
        ("OPERATORS = (Mine,)", "OPERATORS = ()", "OPERATORS is empty"),
        ("OPERATORS = (Mine,)", "OPERATORS = (Mine, Mine)", "two named l1norm_gemm"),
        ("OPERATORS = (Mine,)", "1 +", "mine.py:27: invalid syntax"),
        ("import numpy as np", "import nothing_of_this_name", "mine.py:3: ModuleNotFoundError: No module named"),
        ('name = "l1norm_gemm"', "", "Mine.name is ''"),
        ("@dataclass(frozen=True)", "", "decorate it with @dataclass(frozen=True)"),
        ("both: bool = True", "both: object = None", "Mine.both has the default None"),
        ("both: bool = True", "target: int = 1", "conflicting option string: --target"),
        ("def reference", "def other", "Mine has no reference"),
        ("absolute(a)", "abs(a) + 1", "is 1 for zeros"),
        ("absolute(a)", "np.abs(a)", "Mine.row_sums(a, gain):"),
        ("return product", "return gamma", "Mine.result(product, size): name 'gamma' is not defined"),
        ("def left_operand(self, a, gain)", "def left_operand(self, a)", "Mine.left_operand(a, gain): "),
        ("gain", "beta", "_l1norm_gemm: it has an argument 'beta' of its own"),
        ("gain", "lda", "Mine: 'lda' cannot name an operand"),
        ("gain", "arch", "Mine: 'arch' cannot name an operand"),
        ("import numpy as np", "\0", "mine.py: source code string cannot contain null bytes"),
        ("(a * gain) @ b /", "1j * (a * gain) @ b /", "Mine.reference(a, b, gain): Cannot cast array data"),
        ("(a * gain) @ b /", "a.T /", "Mine.reference(a, b, gain): operands could not be broadcast"),
    ],
)
def test_what_a_file_lacks_is_said(capsys: Capture, mine: str, before: str, after: str, said: str) -> None:
    assert before in MINE
    Path(mine).write_text(MINE.replace(before, after))
    assert said in failing(capsys, "run", mine, *SHAPE)


def test_words_that_are_no_operators(capsys: Capture, mine: str, tmp_path: Path) -> None:
    assert "no such file; operators by name are gemm," in failing(capsys, "run", str(tmp_path / "none.py"), *SHAPE)
    assert f"{mine} has no operator l1norm_gem (did you mean l1norm_gemm?)" in failing(capsys, "run", f"{mine}:l1norm_gem", *SHAPE)
    two = '\nclass Other(Mine):\n    name = "other"\n\nOPERATORS = [Mine, Other]\n'
    Path(mine).write_text(MINE.replace("OPERATORS = (Mine,)", two))
    assert f"has 2 operators: choose {mine}:l1norm_gemm, {mine}:other" in failing(capsys, "derive", mine, *SHAPE)
    assert main(["derive", f"{mine}:other", *SHAPE]) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [name for name in targets() if name.startswith("mi")])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_file_runs_checked_on_every_board(mine: str, target: str, dtype: str) -> None:
    assert main(["check", mine, "-m", "65", "-n", "47", "-k", "131", "--target", target, "--dtype", dtype]) == 0
