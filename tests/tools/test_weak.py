"""`--weak` on the command line: the search for a wrong seed, its replay, and what it excludes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from simgpu.tools.cli import main
from tests.simgpu.checks.test_memory_model import BLOCKS, WEAKENED, built
from tests.simgpu.hip.test_programs import hip
from tests.support.hip_compiler import program

WEAK = WEAKENED["split-K only releases"]
VALUES = np.arange(256 * BLOCKS, dtype="u4") % 97


def words(folder: Path, right: bool) -> list[str]:
    """Returns the command line of a launch of split-K, without --weak."""
    changes = () if right else ((WEAK.old, WEAK.new),)
    (folder / "k.co").write_bytes(built("ordered", "gfx942", *changes))
    np.save(folder / "in.npy", VALUES)
    np.save(folder / "want.npy", VALUES.reshape(BLOCKS, 256).sum(axis=0, dtype="u4"))
    sizes = 256 * BLOCKS, 256, 4
    given = [str(folder / "in.npy"), *(f"zeros:u32:{size}" for size in sizes)]
    options = ["--kernel", "split_k", "--grid", str(BLOCKS), "--block", "256"]
    return ["exec", str(folder / "k.co"), *options, *(word for each in given for word in ("--arg", each))]


def test_a_search_finds_a_seed_that_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = words(tmp_path, right=False)
    assert main([*command, "--weak", "1:20", "--save", f"2={tmp_path}/out.npy"]) == 1
    said = capsys.readouterr().out
    assert "gives another result" in said and "of argument 2 differ from the plain launch's" in said
    replay = next(line for line in said.splitlines() if line.startswith("Replay: simgpu "))
    wrong = np.load(tmp_path / "out.npy")
    assert main([*shlex.split(replay)[2:], "--force"]) == 0  # without anything to compare with
    capsys.readouterr()
    assert np.array_equal(np.load(tmp_path / "out.npy"), wrong)
    want = ["--expect", f"2={tmp_path}/want.npy"]
    assert main([*command, *want, "--weak=1:20", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["weak"]
    assert f"--weak={found['seed']}" in found["replay"] and "not as expected" in found["why"]


def test_a_right_program_passes_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words(tmp_path, right=True), "--weak", "1:8"]) == 0
    assert "8 seeds, all with the right result" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more, said",
    [
        (["--weak", "9:1"], "the smaller one first"), (["--weak", "x"], "give a seed"),
        (["--weak", "1", "--html", "p.html"], "exclude each other"), (["--weak", "1", "--device", "hip"], "the simulator's"),
    ],
)  # fmt: skip
def test_bad_uses(more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words(tmp_path, right=True), *more]) == 2
    assert said in capsys.readouterr().err


def test_checked_mode_and_the_debugger_say_what_to_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = words(tmp_path, right=True)
    assert main(["check", *command[1:], "--weak", "1"]) == 2
    assert "simgpu exec" in capsys.readouterr().err
    assert main(["debug", *command[1:], "--weak", "1:9", "--batch"]) == 2
    assert "simgpu exec --weak 1:9" in capsys.readouterr().err


def test_an_operator_is_compared_with_float64(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "gemm", "-m", "40", "-n", "33", "-k", "70", "--target", "mi300x", "--weak", "1:3"]) == 0
    assert "3 seeds, all with the right result" in capsys.readouterr().out


def test_a_hip_program() -> None:
    compiled = program("stale", "gfx942")
    found = hip("--target", "mi300x", "--weak", "1:200", compiled)
    assert found.returncode == 1 and "the program ends with status 1" in found.stdout
    replay = shlex.split(found.stdout.splitlines()[-1].removeprefix("Replay: simgpu hip "))
    again = hip(*replay)
    assert again.returncode == 1 and again.stdout.strip() == "0"
