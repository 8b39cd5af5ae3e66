"""`--weak` and `--late` on the command line: the search for a wrong seed, its replay, and what it excludes."""

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
from tests.support.kernels import KernelText, assemble

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
        (["--late", "1", "--weak", "2"], "not allowed with"), (["--late", "1", "--html", "p.html"], "--late and --html exclude"),
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


UNWAITED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dwordx2 s[6:7], s[0:1], 0x8
v_lshlrev_b32 v2, 2, v0
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
global_load_dword v1, v2, s[4:5]
{wait}
v_add_u32 v1, 1, v1
global_store_dword v2, v1, s[6:7]
"""


def test_late_mode_is_searched_and_replayed_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, wait in (("broken", ""), ("right", "s_waitcnt vmcnt(0)")):
        (tmp_path / f"{name}.co").write_bytes(assemble("gfx942", KernelText("k", UNWAITED.format(wait=wait), ("buffer", "buffer"))))
    more = ["--grid", "1", "--arg", "count:u32:64", "--arg", "zeros:u32:64", "--save", f"1={tmp_path}/out.npy"]
    assert main(["exec", str(tmp_path / "right.co"), *more, "--late", "1:20"]) == 0
    assert "Late mode: 20 seeds, all with the right result" in capsys.readouterr().out
    (tmp_path / "out.npy").unlink()
    assert main(["exec", str(tmp_path / "broken.co"), *more, "--late", "1:20"]) == 1
    said = capsys.readouterr().out
    assert "Late mode: seed" in said and "of argument 1 differ from the plain launch's" in said
    replay = next(line for line in said.splitlines() if line.startswith("Replay: simgpu ") and "--late" in line)
    wrong = np.load(tmp_path / "out.npy")
    assert (wrong == 1).all()
    assert main([*shlex.split(replay)[2:], "--force"]) == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), wrong)
    capsys.readouterr()
    assert main(["check", *shlex.split(replay)[3:], "--force"]) == 2
    assert "give --late to" in capsys.readouterr().err


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


HIDDEN = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshrrev_b32 v9, 6, v0
s_nop 0
v_readfirstlane_b32 s9, v9
v_lshlrev_b32 v2, 2, v0
v_xor_b32 v3, 0x100, v2
v_mov_b32 v10, 0x800
v_mov_b32 v11, 1
s_mov_b64 s[20:21], 0xff
s_mov_b64 exec, s[20:21]
ds_write_b32 v2, v0
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, 1
ds_add_rtn_u32 v4, v10, v11
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, s[20:21]
s_cmp_eq_u32 s9, 0
s_cbranch_scc1 done
ds_read_b32 v5, v3
s_waitcnt lgkmcnt(0)
done:
"""


def test_other_orders_show_a_race(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = KernelText("hidden", HIDDEN, ("buffer",), {"group_segment_fixed_size": 4096})
    (tmp_path / "k.co").write_bytes(assemble("gfx942", text))
    command = ["check", str(tmp_path / "k.co"), "--grid", "1", "--block", "128", "--arg", "zeros:u32:64"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--schedules", "0:20"]) == 1
    said = capsys.readouterr().out
    assert "with waves in the order of seed" in said and "race" in said
