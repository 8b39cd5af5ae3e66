"""Versions of PyTorch and Triton in a table. Stand-ins replace pip and the parts, since a pair takes gigabytes."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from simgpu.tools.torch import versions
from simgpu.tools.torch.versions import Pair


def done(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Stands in for `subprocess.run`: release 9.9 is not there, and Inductor fails."""
    if "pip" in command:
        missing = any(word.endswith("==9.9") for word in command)
        return subprocess.CompletedProcess(command, int(missing), "", "WARNING: old\nERROR: No matching distribution\n")
    failed = command[-1] == "compile"
    return subprocess.CompletedProcess(
        command, int(failed), "" if failed else "passed\n", "Traceback\nTypeError: no such thing\n\nat exit"
    )


def test_a_table_tells_which_parts_passed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(versions.subprocess, "run", done)
    monkeypatch.setattr("sys.argv", ["versions", "2.14.1:3.8.0", "9.9:3.8.0"])
    assert versions.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "3.8.0  " in line] == [
        ["2.14.1", "3.8.0", *["passed"] * 4, "failed"], ["9.9", "3.8.0", *["absent"] * 5],
    ]  # fmt: skip
    assert lines[-2:] == [
        "PyTorch 2.14.1, Triton 3.8.0, compile: TypeError: no such thing",
        "PyTorch 9.9, Triton 3.8.0: ERROR: No matching distribution",
    ]


@pytest.mark.parametrize(
    ("words", "says"), [(["2.14.1"], "give PyTorch's release and Triton's"), (["2:3", "--target", "mi9"], "mi9")]
)
def test_a_pair_or_target_that_cannot_be_read_is_told(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["versions", *words])
    assert versions.main() == 2 and says in capsys.readouterr().err


def test_every_part_is_tried() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from simgpu.tools.torch.version_probe import PARTS

    assert list(versions.PARTS) == list(PARTS) and Pair.parse("2.13.0+cpu:3.9.0") == ("2.13.0+cpu", "3.9.0")
