"""Launches of shipped kernels: their references, and the outcome of a right and of a broken kernel in AITER's form."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from simgpu.tools.validation.aiter import ShippedLaunch
from simgpu.tools.validation.shipped import __main__ as command
from simgpu.tools.validation.shipped.case import ShippedCase, relative_error
from simgpu.tools.validation.shipped.gemm import MatrixProduct4
from simgpu.tools.validation.shipped.mla import VALUES, WIDTH, Decode
from simgpu.tools.validation.shipped.moe import ExpertLayer
from simgpu.tools.validation.shipped.rows import ROWS
from tests.support.kernels import KernelText, assemble

DOUBLED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dwordx2 s[6:7], s[0:1], 0x10
v_lshlrev_b32 v2, 2, v0
v_mov_b32 v1, 1.0
s_waitcnt lgkmcnt(0)
global_load_dword v1, v2, s[6:7]
{wait}
v_add_f32 v1, v1, v1
global_store_dword v2, v1, s[4:5]
"""


def doubled(folder: Path, wait: str) -> ShippedCase:
    """Returns the launch of a kernel R = 2 X, its arguments 16 bytes apart."""
    text = KernelText("doubled", DOUBLED.format(wait=wait), ("buffer",) * 4)
    (folder / "k.co").write_bytes(assemble("gfx950", text))
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    launch = ShippedLaunch(folder / "k.co", "", "mi355x", (1, 1, 1), ["R", "X"], threads=64)
    error = lambda got: relative_error(got["R"], 2 * x.astype(np.float64))  # noqa: E731
    return ShippedCase(launch, {"X": x}, {"R": np.full(64, np.nan, np.float32)}, error, 1e-6)


def test_a_missing_wait_is_wrong_under_some_seeds(tmp_path: Path) -> None:
    found = command.outcome(doubled(tmp_path, ""), "k.co", range(1, 31), checked=True)
    assert found.error <= found.bound and 0 < len(found.wrong) < 30 and found.findings["missing-wait"] == 1
    assert found.row(30, True)[3:6] == (30, len(found.wrong), found.wrong[0])
    found = command.outcome(doubled(tmp_path, "s_waitcnt vmcnt(0)"), "k.co", range(1, 31), checked=True)
    assert found.error <= found.bound and not found.late and not found.findings


def test_decode_joins_the_splits_of_a_right_kernel() -> None:
    case = Decode(4, 4, splits=3, lengths=(5, 9))(Path("k.co"), "mi355x")
    got = {name: array.copy() for name, array in case.results.items()}
    query, keys = (case.inputs[name].astype(np.float64) for name in ("Q", "KV"))
    for at, (first, end) in enumerate(((0, 5), (5, 14))):
        mine = keys[case.inputs["LTD"][first:end]]
        for split, part in enumerate(np.array_split(mine, 2)):  # the third split gets no keys
            powers = np.exp(query[at] @ part.T * WIDTH**-0.5)
            got["R"][at, split] = powers @ part[:, :VALUES] / powers.sum(axis=1, keepdims=True)
            got["LSE"][at, split] = np.log(powers.sum(axis=1))
    assert case.error(got) < 1e-6
    got["R"][0, 0, 0, 0] += 1
    assert case.error(got) > 0.1
    got["LSE"][1, 0, 0] = np.nan
    assert np.isnan(case.error(got))


def test_fp4_products_and_their_order_in_memory() -> None:
    """Each code is followed to its place by index arithmetic, and converted by ml_dtypes."""
    case = MatrixProduct4(16, 256, 256, (192, 256))(Path("k.co"), "mi355x")
    nibble = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)

    def scale(codes: np.ndarray, row: int, group: int) -> float:
        at = (((row // 32 * 1 + group // 8) * 4 + group % 4) * 16 + row % 16) * 4 + group // 4 % 2 * 2 + row // 16 % 2
        return 2.0 ** (int(codes.reshape(-1)[at]) - 127)

    def weight(row: int, byte: int) -> int:
        return int(case.inputs["B"].reshape(-1)[row // 16 * 16 * 128 + byte // 16 * 256 + row % 16 * 16 + byte % 16])

    for m, n in ((0, 0), (3, 17), (15, 255), (7, 38)):
        total = 0.0
        for k in range(256):
            a, b = int(case.inputs["A"][m, k // 2]), weight(n, k // 2)
            factor = scale(case.inputs["scaleA"], m, k // 32) * scale(case.inputs["scaleB"], n, k // 32)
            total += nibble[a >> k % 2 * 4 & 15] * nibble[b >> k % 2 * 4 & 15] * factor
        got = case.results["D"].copy()
        others = dataclasses.replace(case)
        got[m, n] = np.array(total).astype(ml_dtypes.bfloat16).view(np.uint16)
        zero = np.zeros_like(got)
        assert others.error({"D": got}) <= others.error({"D": zero}) + 1e-9


def test_rows_name_objects_once_and_know_their_boards() -> None:
    assert len({row.path for row in ROWS}) == len(ROWS) and {row.board for row in ROWS} == {"mi300x", "mi355x"}
    assert [row.path for row in command.choose_rows(["KSplit"])] == [row.path for row in ROWS if "KSplit" in row.path]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A repository with the broken kernel in place of one of AITER's, then with the right one."""
    row = ROWS[0]._replace(make=lambda path, board: dataclasses.replace(
        made, launch=dataclasses.replace(made.launch, path=path)))  # fmt: skip
    monkeypatch.setattr(command, "ROWS", (row,))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git[:3], "init", "-q"], check=True)
    for wait in ("", "s_waitcnt vmcnt(0)"):
        made = doubled(tmp_path, wait)
        place = tmp_path / row.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(made.launch.path.read_bytes())
        subprocess.run([*git, "add", row.path], check=True)
        subprocess.run([*git, "commit", "-qm", "k"], check=True)
    for revision, status in (("HEAD~1", 1), ("HEAD", 0)):
        monkeypatch.setattr(sys, "argv", ["shipped", str(tmp_path), "--at", revision, "--late", "1:5"])
        assert command.main() == status
        assert revision in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["shipped", str(tmp_path), "nothing"])
    with pytest.raises(SystemExit):
        command.main()
    assert "no object has nothing in its path" in capsys.readouterr().err


def test_a_layer_of_experts_is_compared_with_the_sum_over_sorted_rows() -> None:
    """Adds by sorted row, as the kernel goes, instead of by token."""
    case = ExpertLayer(32, tokens=5, width=64, experts=3)(Path("k.co"), "mi300x")
    given, total = case.inputs, np.zeros((5, 64))

    def plain(name: str, kind: np.dtype) -> np.ndarray:
        shape = given[f"{name}Q"].shape
        tiles = given[name].reshape(shape[0], shape[1] // 16, -1, 2, 16, 16).transpose(0, 1, 4, 2, 3, 5)
        return tiles.reshape(*shape, -1).view(kind).astype(np.float64) * given[f"{name}Q"][..., None]

    x = given["X"].astype(np.float64) * given["XQ"][:, None]
    up, down = (plain(name, given["X"].dtype) for name in ("GU", "D"))
    for row, (packed, weight) in enumerate(zip(given["STP"], given["SW"], strict=True)):
        expert, token = given["SEP"][row // 32], packed & 0xFFFFFF
        if token < 5:
            gate, other = np.split(up[expert] @ x[token], 2)
            total[token] += weight * (down[expert] @ (gate * other / (1 + np.exp(-gate))))
    assert len(given["SEP"]) * 32 == len(given["STP"]) == given["XC"][0] and (given["STP"] >> 24 <= 2).all()
    got = total.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert case.error({"O": got}) < 0.004 and case.error({"O": np.roll(got, 1)}) > 0.1


def test_persistent_workgroups_share_whole_blocks() -> None:
    """AITER's grid has all workgroups; the kernel's argument has the workgroups that whole blocks take."""
    case = ExpertLayer(32, tokens=5, width=64, inner=96, experts=3, persistent=8)(Path("k.co"), "mi300x")
    assert case.launch.grid == (8, 1, 1) and list(case.launch.values[-2:]) == [6, 3]
    case = ExpertLayer(32, tokens=5, width=64, inner=96, experts=3)(Path("k.co"), "mi300x")
    assert case.launch.grid == (3, len(case.inputs["SEP"]), 1) and list(case.launch.values[-2:]) == [0, 3]
