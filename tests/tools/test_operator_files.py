"""An operator in a user's file: every verb takes the file as OP, and says what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.script import is_script
from simgpu.tools.cli import main

SHAPE = ["--rows", "3", "-n", "70"]
MINE = '''
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


def test_verbs_take_a_file(capsys: Capture, mine: str) -> None:
    for verb in ("derive", "tree", "run", "check", "time"):
        assert main([verb, mine, *SHAPE]) == 0
    assert main(["run", f"{mine}:mine", *SHAPE]) == 0
    assert capsys.readouterr().err == ""


def test_built_in_operators_come_in_by_the_same_door() -> None:
    assert list(OPERATORS) == ["gemm", "conv2d", "softmax", "attention", "unfused"]


def test_a_script_without_operators_is_a_script(mine: str) -> None:
    assert not is_script(mine)
    Path(mine).write_text("import triton\n")
    assert is_script(mine)
