"""`simgpu time` and `simgpu report --schedule`: their output and their refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu import asm
from simgpu.hardware import target
from simgpu.operators import AttentionProblem, FusedAttention, TiledComputation, UnfusedAttention
from simgpu.timing.history import LaunchHistory
from simgpu.tools.cli import main
from simgpu.tools.shared import arrays
from simgpu.tools.tables.schedule_report import predictions, schedules

Capture = pytest.CaptureFixture[str]
GEMM = ["gemm", "-m", "500", "-n", "260", "-k", "200", "--target", "mi300x"]


def test_an_operator_is_timed_within_80_columns(capsys: Capture) -> None:
    assert main(["time", *GEMM]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert "cycles" in text and "MHz" in text and "clock:" in text and "limited by" in text and "reason" in text


def test_each_kernel_finds_what_the_ones_before_it_left(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Options say otherwise for all of them."""
    plain, how = simgpu.device.Kernel.time, list[object]()

    def time(self: simgpu.device.Kernel, *args: object, **more: object) -> object:
        how.append(more["warm"])
        return plain(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(simgpu.device.Kernel, "time", time)
    unfused = ["unfused", "-L", "64", "-d", "64", "--target", "mi300x"]
    seconds = []
    for options in ([], ["--stored"], ["--warm"]):
        assert main(["time", "--json", *options, *unfused]) == 0
        seconds.append([kernel["seconds"] for kernel in json.loads(capsys.readouterr().out)["kernels"]])
    first, *others = how[: len(seconds[0])]
    assert len(others) > 1 and first is False
    assert [len(one.accessed) for one in others if isinstance(one, LaunchHistory)] == list(range(1, len(others) + 1))
    assert how[len(seconds[0]) :] == ["stored"] * len(seconds[1]) + [True] * len(seconds[2])
    assert seconds[0][0] > seconds[2][0] and seconds[0][-1] <= 1.2 * seconds[2][-1]


@pytest.mark.slow
def test_kernels_are_judged_by_the_times_of_the_command(capsys: Capture) -> None:
    """Rankings of tiles allocate operands otherwise, but the second pass of a split K finds its parts, too."""
    main(["time", "gemm", "-m", "96", "-n", "96", "-k", "8192", "--dtype", "f16", "--target", "mi300x", "--json"])
    timed = json.loads(capsys.readouterr().out)["kernels"]
    found = predictions(TiledComputation(96, 96, 8192, dtype="f16", target="mi300x"))
    assert len(timed) == 2 and [one.seconds for one in found.values()] == pytest.approx([one["seconds"] for one in timed], rel=0.01)


def test_counters_say_which_were_compared_with_profiles(capsys: Capture) -> None:
    assert main(["time", "--counters", "--lines", "0", *GEMM]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[0] == "FETCH_SIZE" and "MI250X" in line for line in lines if line)
    assert any(line.split()[0] == "SQ_WAVES" and line.endswith("not validated") for line in lines if line)
    assert main(["time", "--counters", "--json", *GEMM]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["counters"]["SQ_WAVES"] == 4 * kernel["workgroups"]


def test_json_has_every_line(capsys: Capture) -> None:
    assert main(["time", "--json", *GEMM]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["seconds_low"] < kernel["seconds"] < kernel["seconds_high"]
    assert kernel["cycles"] == pytest.approx(kernel["seconds"] * kernel["clock_mhz"] * 1e6, rel=1e-3)
    assert kernel["lines"][0]["offset"] == 0 and any("mfma" in line["text"] for line in kernel["lines"])
    assert all(sum(line["reasons"].values()) == line["stall"] + line["idle"] <= line["latency"] for line in kernel["lines"])


def test_the_clock_and_the_exports(tmp_path: Path, capsys: Capture) -> None:
    timeline, folder = tmp_path / "t.json", tmp_path / "att"
    assert main(["time", "--clock", "1000", "--perfetto", str(timeline), "--att", str(folder), *GEMM]) == 0
    assert "at 1,000 MHz" in capsys.readouterr().out
    assert json.loads(timeline.read_text())["traceEvents"]
    assert (folder / "ui_output_agent_0_dispatch_1" / "code.json").is_file()
    assert main(["time", "--perfetto", str(timeline), *GEMM]) == 2


def test_stacks_for_speedscope_hold_every_clock(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "s.json"
    assert main(["time", "--speedscope", str(path), "--json", *GEMM]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    document = json.loads(path.read_text())
    (profile,), frames = document["profiles"], document["shared"]["frames"]
    assert profile["endValue"] == sum(profile["weights"]) == sum(line["latency"] for line in kernel["lines"])
    assert all(0 <= frame < len(frames) for stack in profile["samples"] for frame in stack)
    stacks = [[frames[frame]["name"] for frame in stack] for stack in profile["samples"]]
    assert {stack[0] for stack in stacks} == {kernel["kernel"]} and {len(stack) for stack in stacks} == {3, 4}
    assert all(frames[stack[1]]["file"].endswith(".py") and frames[stack[1]]["line"] for stack in profile["samples"])
    assert main(["time", "--speedscope", str(path), *GEMM]) == 2
    # The fields that speedscope's src/lib/file-format-spec.ts requires, and no others but `exporter`, of its schema.
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(document) == {"$schema", "name", "exporter", "shared", "profiles"} and set(document["shared"]) == {"frames"}
    assert all({"name"} <= set(frame) <= {"name", "file", "line", "col"} for frame in frames)
    assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    units = ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")
    assert profile["type"] == "sampled" and profile["unit"] in units
    assert profile["startValue"] <= profile["endValue"] and len(profile["samples"]) == len(profile["weights"])
    assert all(isinstance(weight, int) and weight > 0 for weight in profile["weights"])


def test_room_is_asked_for_what_the_command_uses(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """With operands of 0.5 MB, `debug` also needs float64 results and is refused on a host of 16 MB; `time` is not."""
    softmax = ["softmax", "--rows", "256", "-n", "512", "--dtype", "f16"]
    monkeypatch.setattr(arrays.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4096}[name])
    assert main(["time", *softmax]) == 0
    assert main(["debug", *softmax]) == 2
    monkeypatch.setattr(arrays.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1024}[name])
    assert main(["time", *softmax]) == 2
    assert "needs 0.0 GB" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--clock", "0", *GEMM], [*GEMM, "--device", "hip"]])
def test_bad_requests_are_refused(arguments: list[str], capsys: Capture) -> None:
    assert main(["time", *arguments]) == 2
    assert capsys.readouterr().err


def test_the_schedule_is_a_view_of_the_model(capsys: Capture) -> None:
    assert main(["report", *GEMM, "-k", "300", "--schedule", "--json"]) == 0
    (loop,) = json.loads(capsys.readouterr().out)["kernels"].values()
    assert 0 < loop["utilisation"] <= 1 and loop["clocks"] > 0 and 0 < loop["first"] < loop["last"]
    assert 0 < sum(loop["stalls"].values()) < 1
    assert main(["report", "softmax", "--rows", "100", "-n", "512", "--schedule"]) == 2


@pytest.mark.slow
def test_the_schedule_counts_waves_that_are_in_the_loop() -> None:
    """Four workgroups reside and take turns at the matrix units: they count while they are in the loop, so less than four."""
    board = replace(target("mi355x"), num_cus=4, xcds=1)
    tree = TiledComputation(1024, 512, 512, board, dtype="f64")
    (loop,) = schedules(tree).values()
    assert 0.9 < loop.utilisation <= 1 and 3.5 < loop.waves < 3.99


@pytest.mark.parametrize("policy, rounds", [("published", 4), ("corrected", 2)])
def test_attention_streams_keys_once_a_round(policy: str, rounds: int) -> None:
    """Erratum E21: workgroups that run together read K and V once, and the next round reads them again, past an L2 of 8 MB."""
    problem = AttentionProblem(15360, 15360, 128)
    tree = FusedAttention(problem, "mi100", policy)
    gpu = simgpu.Device("mi100", threads=1)
    shapes = problem.q_shape, problem.k_shape, problem.v_shape, problem.q_shape
    buffers = [gpu.upload(np.zeros(shape, np.float32)) for shape in shapes]
    ((kernel, call),) = asm.Prepared(asm.emit(tree), gpu).calls(*buffers)
    assert tree.plan.rounds == rounds
    assert kernel.time(**call).past_l2_bytes == pytest.approx(rounds * problem.kv_bytes + problem.qr_bytes, rel=1e-3)


@pytest.mark.slow
def test_unfused_attention_moves_s_four_times() -> None:
    """S is larger than L2, and its tiles are whole lines: the softmax reads and writes it; Q, K, V, R pass at least once."""
    problem = AttentionProblem(1536, 1536, 64)
    tree = UnfusedAttention(problem, "mi100")
    gpu = simgpu.Device("mi100", threads=1)
    shapes = problem.q_shape, problem.k_shape, problem.v_shape, problem.q_shape
    buffers = [gpu.upload(np.zeros(shape, np.float32)) for shape in shapes]
    moved = [kernel.time(**call).past_l2_bytes for kernel, call in asm.Prepared(asm.emit(tree), gpu).calls(*buffers)]
    assert len(moved) == 3 and moved[1] == pytest.approx(2 * tree.score_bytes, rel=0.02)
    assert sum(moved) >= 0.99 * tree.bytes_once
