"""AITER's tuned tables through their history, and the model's choice among its kernels."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from simgpu.hardware.errors import LaunchError
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import choices, tuned
from simgpu.tools.validation.aiter import ShippedLaunch
from simgpu.tools.validation.choices import lower_bound
from simgpu.tools.validation.tuned import TunedShape, splits_tried, tuned_times

TABLE = "aiter/configs/a8w8_tuned_gemm.csv"
OBJECTS = "hsa/gfx942/i8gemm/i8gemm.csv"
HEAD = "cu_num,M,N,K,kernelId,splitK,us,kernelName,bias\n"
TILES = "tile_m,tile_n,splitK,bpreshuffle,knl_name,co_name\n32,128,1,1,small,small.co\n"
MORE = TILES + "64,128,1,1,large,large.co\n16,128,1,0,other,other.co\n"
SHAPE = TunedShape("i8gemm", "mi308x", 64, 1280, 384)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)


def commit(folder: Path, day: int, **files: str) -> None:
    for name, text in {TABLE: files["table"], OBJECTS: files["tiles"]}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", ".")
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"], check=True,
        env={"GIT_COMMITTER_DATE": f"2026-01-{day:02}T00:00:00Z", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    first = HEAD + "80,64,1280,384,0,1,30.0,small,False\n80,64,1280,384,0,1,5.0,unknown,False\n"
    commit(tmp_path, 1, table=first, tiles=TILES)
    commit(tmp_path, 2, table=first.replace("30.0,small", "20.0,large"), tiles=MORE)
    commit(tmp_path, 3, table=HEAD + "80,64,1280,384,0,1,31.0,small,False\n80,1,1280,384,0,3,nan,small,False\n", tiles=MORE)
    return tmp_path


def test_history_has_each_kernels_newest_time(checkout: Path) -> None:
    times = tuned_times(checkout)
    assert list(times) == [SHAPE]
    assert {key: row.us for key, row in times[SHAPE].rows.items()} == {("small", 1): 31.0, ("large", 1): 20.0}
    assert times[SHAPE].winner.us == 31.0  # the newest commit's
    known = [tuned.kernels_of_commit(checkout, row.commit, "gfx942", "i8gemm") for row in times[SHAPE].rows.values()]
    assert known == [{"small", "large", "other"}] * 2


def test_a_folder_without_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with its history"):
        tuned_times(tmp_path)


def test_splits_are_those_of_aiters_tuner() -> None:
    """csrc/gemm_a16w16/gemm_a16w16_tune.py: from 2 to the CUs over the tiles, 16 at most, 4 if tiles fill the board."""
    shape, tile = TunedShape("bf16gemm", "mi355x", 64, 1024, 7168), {"tilem": 64, "tilen": 64, "splitk": 1, "subk": 64}
    assert splits_tried(shape, tile, 256) == list(range(2, 17))
    assert splits_tried(replace(shape, n=16384), tile, 256) == [2, 3, 4]
    assert splits_tried(replace(shape, n=131072), tile, 256) == []  # more tiles than semaphores
    assert splits_tried(replace(shape, k=200), tile, 256) == [2, 3]
    assert splits_tried(shape, {**tile, "splitk": 0}, 256) == [1]
    assert splits_tried(replace(shape, family="f4gemm"), tile, 256) == [0]
    assert splits_tried(replace(shape, family="i8gemm", k=1000), tile, 80) == [1, 2, 3, 4, 8]  # eight parts of 128 at most


def timed(us: dict[tuple[str, int], float], asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def modelled(call: ShippedLaunch) -> float:
        asked.append(call.kernel)
        found = us[call.kernel, int(call.values[12] or 0)]  # type: ignore[arg-type]
        if not found:
            raise LaunchError("no")
        return found

    monkeypatch.setattr(choices, "modelled_us", modelled)


def test_a_choice_ranks_the_winner_among_the_kernels_of_its_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    timed({("small", 1): 9.0, ("small", 2): 8.0, ("small", 3): 0.0, ("large", 1): 10.0, ("large", 2): 7.0, ("large", 3): 11.0},
          asked, monkeypatch)  # fmt: skip
    monkeypatch.setattr(choices, "lower_bound", lambda _shape, tile, split, _call: 9e-6 * (tile["tilem"] == 64 and split == 3))
    one = choices.choose(checkout, SHAPE, tuned_times(checkout)[SHAPE], False)
    assert (one.winner, one.chosen, one.rank, one.tile_rank, one.candidates) == ("small 1", "large 2", 3, 2, 6)
    assert one.modelled_regret == pytest.approx(9 / 7) and one.measured_regret is None
    assert len(asked) == 5 and "other" not in asked  # neither a bound above the winner's time nor another layout of B is timed
    pair = choices.choose(checkout, SHAPE, tuned_times(checkout)[SHAPE], True)
    assert (pair.winner, pair.chosen, pair.candidates) == ("large 1", "small 1", 2)
    assert pair.measured_regret == pytest.approx(31 / 20)


def test_judged_shapes_are_kept_and_not_repeated(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    timed({("small", 1): 9.0, ("large", 1): 10.0}, asked, monkeypatch)
    kept = tmp_path / "kept.jsonl"
    for _ in range(2):
        assert choices.main([str(checkout), "--pairs", "--keep", str(kept)]) == 0
        assert "1.550" in capsys.readouterr().out
    assert len(asked) == 2 and len(kept.read_text().splitlines()) == 1
    kept.write_text("{}\n")
    with pytest.raises(UsageError, match="--keep"):
        choices.main([str(checkout), "--keep", str(kept)])


def test_a_lower_bound_is_the_matrix_peak_of_the_fullest_cu() -> None:
    """MI300X: 1,307 TFLOPS of dense bf16 on 304 CUs at 2,100 MHz; the clock under load is lower, by the CUs that work."""
    shape, tile = TunedShape("bf16gemm", "mi300x", 256, 256 * 305, 4096), {"tilem": 256, "tilen": 256}
    call = ShippedLaunch(Path("k.co"), "k", "mi300x", (305, 1, 1), [])
    seconds = 2 * 2 * 256 * 256 * 4096 / (1307.4e12 / 304) * 2100 / 1152  # two rounds
    assert lower_bound(shape, tile, 1, call) == pytest.approx(seconds, rel=0.06)
    alone = lower_bound(replace(shape, n=256), tile, 1, replace(call, grid=(1, 1, 1)))
    assert alone == pytest.approx(seconds / 2 * 1152 / 2100, rel=0.15)
    assert lower_bound(shape, tile, 2, call) < lower_bound(shape, tile, 1, call)
