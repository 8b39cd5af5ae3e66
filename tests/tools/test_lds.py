"""`simgpu lds`: an operator's kernels and a file's, suggestions, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.cli import main

ZEROS = ["--grid", "1", "--arg", "zeros:f32:64", "--arg", "zeros:f32:64"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    assert main(["museum", "padding-that-does-not-help", "--save", str(tmp_path)]) == 0
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    capsys.readouterr()
    assert main(["lds", *words, "--json"]) == 0
    found: list[dict] = json.loads(capsys.readouterr().out)
    return found


def test_what_it_suggests_is_what_the_exhibit_did(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row of 160 + 16 bytes is the museum's repair: the verb reports checked mode's count before it, and no loss after it."""
    (before,) = answer(capsys, str(saved / "padding-that-does-not-help-before.s"), *ZEROS)
    (buffer,) = before["buffers"]
    assert buffer["clocks_lost"] == sum(access["clocks_lost"] for access in before["accesses"]) == 16
    assert [(s["row"], s["padding"], s["bits"]) for s in buffer["suggestions"]] == [(160, 16, 0), (128, 0, 1)]
    (after,) = answer(capsys, str(saved / "padding-that-does-not-help-after.s"), *ZEROS)
    assert [buffer["clocks_lost"] for buffer in after["buffers"]] == [0] and after["buffers"][0]["suggestions"] == []


@pytest.mark.slow
def test_all_waves_and_all_kernels_of_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = answer(capsys, "gemm", "-m", "64", "-n", "64", "-k", "64", "--dtype", "f16", "--target", "mi300x")
    assert one["accesses"] and all(access["visits"] >= 4 for access in one["accesses"]), "four waves"
    assert main(["lds", "gemm", "-m", "64", "-n", "64", "-k", "64", "--dtype", "f16", "--target", "mi300x"]) == 0
    assert "no conflict" in capsys.readouterr().out


def test_a_kernel_without_lds(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--ic 3 --ih 5 --iw 5 --oc 4 --kh 3 --kw 3"
    assert main(["lds", "conv2d", *sizes.split(), "--kernel", "naive"]) == 0
    assert "no access to LDS" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["none.s"], ["gemm"], ["gemm", "-m", "4", "-n", "4", "-k", "4", "--wat"]])
def test_what_cannot_be_launched_is_said_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lds", *words]) == 2
    assert capsys.readouterr().err.startswith("simgpu lds: ")
