"""`simgpu bench`: the table of goals, rows at small sizes, corpus, memory, and times by opcode."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from simgpu import Device
from simgpu.asm.builder.toolchain import assemble
from simgpu.hardware.errors import ToolchainError
from simgpu.hardware.isa.spec import REGISTRY
from simgpu.profile import Opcode, Profile
from simgpu.tools.bench import exec, operator, profile
from simgpu.tools.benchmarks import (
    attention,
    blas,
    commands,
    corpus,
    debugger,
    engine,
    first_launch,
    goals,
    host,
    rates,
    start,
    table,
)
from simgpu.tools.benchmarks import gemm as bench_gemm
from simgpu.tools.benchmarks.blas import PIN_VARIABLES
from simgpu.tools.benchmarks.goals import GOALS, GoalSetting, GoalValue
from simgpu.tools.benchmarks.table import GoalRow
from simgpu.tools.benchmarks.turn_about import best_seconds
from simgpu.tools.cli import main
from simgpu.tools.matrix.kernel import NAME, kernel
from simgpu.tools.page.page import read_document
from simgpu.tools.shared.errors import KernelFailed
from simgpu.tools.shared.processes import environment, output_of
from tests.simgpu.test_profile import pytestmark as LINUX
from tests.support.places import CORPUS

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert main(["bench", *arguments]) == status
    out, err = capsys.readouterr()
    assert not err
    return out


def failing(capsys: Capture, *arguments: str) -> str:
    assert main(["bench", *arguments]) == 2
    return capsys.readouterr().err


def made(name: str, value: float | None, right: bool = True) -> GoalRow:
    (goal,) = [goal for goal in GOALS if goal.name == name]
    return GoalRow(goal, GoalValue(value, "a note", right), "", 1.0)


def test_every_row_of_the_issue_is_there_with_its_goal() -> None:
    assert [(goal.name, goal.limit, goal.unit, goal.at_least) for goal in GOALS] == [
        ("gemm f32", 1.5, "x numpy", False), ("gemm f16", 4, "x numpy", False), ("gemm bf16", 4, "x numpy", False),
        ("gemm fp8", 4, "x numpy", False), ("gemm mxfp4", 4, "x numpy", False), ("gemm aiter", 5, "x numpy", False),
        ("attention", 0.8, "x numpy", False),
        ("valu", 500, "M/s", True), ("lds", 90, "M/s", True), ("scalar", 300, "M/s", True), ("vector add", 0.05, "s", False),
        ("corpus", 0.1, "s", False),
        ("cold start", 0.8, "s", False), ("warm start", 0.35, "s", False), ("version", 0.15, "s", False),
        ("first launch", 0.5, "s", False), ("first launch, 300", 1.2, "s", False), ("empty launch", 0.1, "ms", False),
        ("hip", 1, "s", False), ("triton", 0.8, "s", False), ("time", 1, "s", False), ("lint", 3, "s", False),
        ("page", 1, "s", False), ("why", 2, "s", False), ("debugger step", 10, "us", False), ("memory", 150, "MiB", False),
        ("checked valu", 1.3, "x plain", False), ("checked lds", 4, "x plain", False), ("checked start", 3, "s", False),
        ("checked gemm", 1.5, "x plain", False), ("ring gemm", 1.5, "x plain", False), ("ring bf16", 1.5, "x plain", False),
        ("numerics gemm", 1.5, "x plain", False), ("numerics attention", 1.2, "x plain", False),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["version", "lint", "hip"])
def test_commands_are_timed_in_processes_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "BLOCKS", 20)
    monkeypatch.setattr(commands, "LAUNCHES", 20)
    taken = commands.measure(name, times=1)
    assert 0 < taken.processor < 60 and taken.wall > 0


def test_a_command_that_fails_or_lacks_a_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands.COMMANDS, "version", commands.Command("x", lambda folder: ["lint", str(folder / "absent.co")]))
    with pytest.raises(KernelFailed, match=r"simgpu lint .*absent.co"):
        commands.measure("version")
    monkeypatch.setitem(commands.COMMANDS, "triton", commands.Command("x", lambda folder: [], ("no_such_package",)))
    with pytest.raises(ToolchainError, match="triton: no_such_package is not installed"):
        commands.measure("triton")


def test_a_step_of_the_debugger_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debugger, "STEPS", 30)
    assert 0 < debugger.step_microseconds("mi100") < 1e6


def test_a_row_is_printed_when_it_is_measured(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def measure(goal: table.Goal, *unused: object) -> GoalRow:
        shown.append(capsys.readouterr().out)
        return made(goal.name, 0.5 * goal.limit)

    monkeypatch.setattr(table, "_row", measure)
    last = printed(capsys, "--only", "hip", "--only", "page", "--quiet")
    assert "over goal" in shown[0] and "hip" not in shown[0]
    assert re.search(r"^hip .* 0\.50 +yes\n    a note$", shown[1], re.M) and "page" not in shown[1]
    assert re.search(r"^page .* 0\.50 +yes\n    a note\n\n2 of 2 met", last, re.M)


def test_the_last_line_says_how_near_to_numpy_this_host_could_come() -> None:
    row = made("gemm f32", 2.0)
    assert row.measured is not None
    found = replace(row, measured=replace(row.measured, detail={"least": 1.25}))
    (line,) = table.least_lines([made("hip", 1.0), found])
    assert line.endswith("x numpy: gemm f32 1.25")
    assert table.least_lines([row]) == []


@LINUX
def test_a_product_without_its_loads_would_take_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "SIZE", 512)
    found = GOALS[0].measure(GoalSetting(1))
    assert found.right and found.value is not None
    assert 0.2 * found.value < found.detail["least"] < found.value
    assert re.search(r"; \d\d% of the time in v_ instructions$", found.note)


def test_without_a_checkout_of_aiter_its_row_says_what_to_give(capsys: Capture) -> None:
    out = printed(capsys, "--only", "gemm aiter", "--aiter", "/nowhere")
    assert "not found: give --aiter FOLDER" in out and "0 of 1 met" in out
    asked = subprocess.run([sys.executable, "-m", "simgpu.tools.benchmarks.aiter_gemm", "/nowhere"], capture_output=True, text=True)
    assert asked.returncode == 2 and "give the folder of a checkout" in asked.stderr


def test_an_operator_s_inputs_are_those_named(capsys: Capture) -> None:
    """Sums of multiples of 1/4 are exact, those of uniform deviates are not."""
    gemm = "gemm", "-m", "30", "-n", "20", "-k", "40", "--json"
    exact, rounded = (json.loads(printed(capsys, *gemm, *more))["error"]["max_error"] for more in (("--inputs", "ties"), ()))
    assert exact == 0 < rounded
    assert "leave --inputs" in failing(capsys, "attention", "--table", "--inputs", "ties")


def test_a_goal_is_met_at_its_limit_and_not_beyond() -> None:
    assert [made("gemm f32", value).cells()[4:6] for value in (1.5, 0.75, 3.0)] == [
        ("1.00", "yes"), ("0.50", "yes"), ("2.00", "no"),
    ]  # fmt: skip
    rates = [made("valu", value).cells()[4:6] for value in (500.0, 1000.0, 125.0)]
    assert rates == [("1.00", "yes"), ("0.50", "yes"), ("4.00", "no")]
    assert made("valu", 500.0).document()["met"] and not made("valu", 499.0).document()["met"]
    wrong, absent = made("attention", 1.0, right=False), made("corpus", None)
    assert wrong.cells()[5] == "WRONG" and not wrong.fine
    assert absent.fine and absent.cells()[3:] == ("", "", "", "a note") and not absent.document()["met"]


@pytest.mark.slow
def test_the_table_measures_in_processes_of_its_own(capsys: Capture) -> None:
    out = printed(capsys, "--only", "vector add", "--only", "corpus", "--corpus", "/nowhere")
    head, title, rows = out.partition("Goals;")
    assert all(word in head for word in ("simgpu", "cores", "Python", "numpy", "llvmlite", "LLVM", "BLAS", "2 threads"))
    assert title and "/nowhere not found: give --corpus FOLDER" in rows and "<= 0.05 s" in rows and " of 2 met" in rows


def test_the_table_is_a_page_too(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "goals.html"
    out = printed(capsys, "--html", str(file), "--only", "corpus", "--corpus", "/nowhere")
    document = read_document(str(file))
    ((title, columns, (row,)),) = document["tables"]
    assert title == "0 of 1 goals met" and len(columns) == len(row) and row[0] == "corpus" and "/nowhere" in row[-1]
    assert all(note in out for note in document["notes"]) and document["command"].startswith("simgpu bench --html")
    assert "--force to overwrite it" in failing(capsys, "--html", str(file))

def test_the_head_says_where_blas_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PIN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    free = host.host_lines(host.host_document(2))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    lines = host.host_lines(host.host_document(2))
    assert lines[-1] == "BLAS is not free to choose: OPENBLAS_CORETYPE=Haswell is set, so that ratios to numpy may flatter simgpu"
    assert len(lines) == len(free) + 1 and "free" not in free[-1]


def test_the_head_names_the_kernels_that_openblas_runs() -> None:
    program = "from simgpu.tools.benchmarks.blas import blas_kernels; import json; print(json.dumps(blas_kernels()))"
    if not blas.blas_kernels():
        pytest.skip("numpy is not a wheel with OpenBLAS")
    core = "Nehalem" if platform.machine() == "x86_64" else "ARMV8"
    assert json.loads(output_of(["-c", program], {"OPENBLAS_CORETYPE": core})).upper() == core.upper()


@pytest.mark.slow
def test_json_has_host_rows_and_detail(capsys: Capture) -> None:
    found = json.loads(printed(capsys, "--only", "scalar", "--threads", "1", "--json"))
    assert found["host"]["threads"] == found["host"]["blas_threads"] == 1
    (row,) = found["rows"]
    assert row["name"] == "scalar" and row["right"] and row["measured"] == row["detail"]["millions_per_second"] > 0
    assert row["met"] == (row["over_goal"] <= 1) and found["met"] == row["met"]


def test_a_row_that_fails_says_why_and_the_status_is_1(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"cases": []}')
    found = json.loads(printed(capsys, "--only", "corpus", "--corpus", str(tmp_path), "--json", status=1))
    assert "no kernels" in found["rows"][0]["note"] and not found["rows"][0]["right"]


@pytest.mark.slow
def test_what_cannot_be_asked_is_told(capsys: Capture) -> None:
    assert "no such row; there are gemm f32" in failing(capsys, "--only", "nothing")
    assert "--threads 0" in failing(capsys, "--threads", "0")
    gemm = ("gemm", "-m", "8", "-n", "8", "-k", "8")
    assert "leave gemm out" in failing(capsys, "--only", "valu", *gemm)
    assert "--profile samples the simulator" in failing(capsys, *gemm, "--profile", "--device", "hip")
    assert "no single kernel's row" in failing(capsys, "--profile", "--only", "memory")


@pytest.mark.parametrize(("target", "dtype"), [("mi100", "f32"), ("mi300x", "f16")])
def test_gemm_figures_come_from_whole_and_right_products(target: str, dtype: str) -> None:
    """At this size K is split: the kernel that adds the parts belongs to the launch."""
    gemm = bench_gemm.prepare(96, target, 2, dtype)
    figures = bench_gemm.measure(gemm)
    assert figures["pass"] and figures["ratio"] == figures["simulated_seconds"] / figures["numpy_seconds"]
    assert figures["wave_instructions"] == sum(run.instructions for run in gemm.launch())


def test_attention_figures_come_from_right_results() -> None:
    figures = attention.measure(attention.prepare(128, 64, "mi100", 1))
    assert figures["pass"] and figures["compared_rows"] == 128 and figures["threads"] == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_the_scalar_loop_has_one_wave_for_each_thread(threads: int) -> None:
    (scalar,) = [row for row in engine.benches(0.001, threads) if row.name == "scalar"]
    found = engine.prepare(scalar, Device("gfx908", threads=threads))
    assert found.launch().counters["instructions_other"] == threads  # s_endpgm
    assert engine.measure(found)["right"]


def test_a_wrong_result_of_a_loop_is_seen() -> None:
    (right,) = [row for row in engine.benches() if row.name == "vector add"]
    wrong = replace(right, body=right.body.replace("v_add_f32 v2, v2, v3", "v_sub_f32 v2, v2, v3"))
    gpu = Device("gfx908", threads=1)
    assert [engine.measure(engine.prepare(row, gpu))["right"] for row in (right, wrong)] == [True, False]


def test_turns_take_the_best_of_each() -> None:
    order: list[str] = []
    best = best_seconds(lambda: order.append("a"), lambda: order.append("b"), repeats=2)
    assert order == ["a", "b", "a", "b"] and len(best) == 2 and all(0 <= value < 1 for value in best)
    ticks = iter((0.0, 3.0, 5.0, 6.0, 7.0, 9.0, 9.0, 13.0))
    assert best_seconds(int, int, repeats=2, clock=lambda: next(ticks)) == [2.0, 1.0]


@pytest.mark.slow
def test_start_counts_a_right_result_only() -> None:
    assert 0 < float(output_of(["-c", start.EXAMPLE.format(check=False)])) < 600
    with pytest.raises(KernelFailed, match="wrong result"):
        output_of(["-c", start.EXAMPLE.format(check=False).replace("a @ b,", "a @ b + 1,")])


def test_cold_starts_find_empty_caches_and_warm_ones_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[str, bool]] = []

    def output(arguments: list[str], caches: dict[str, str]) -> str:
        folder = Path(caches["SIMGPU_CACHE_DIR"])
        met.append((str(folder), folder.exists()))
        folder.mkdir(parents=True, exist_ok=True)
        return str(len(met))

    monkeypatch.setattr(start, "output_of", output)
    assert start.cold(2) == {"seconds": 2.5, "all": [2.0, 3.0]}, "the first one leaves Python's bytecode"
    assert [filled for _, filled in met] == [False] * 3 and len({folder for folder, _ in met}) == 3
    assert start.warm(3)["all"] == [5.0, 6.0, 7.0]
    assert [filled for _, filled in met[3:]] == [False, True, True, True] and len({folder for folder, _ in met[3:]}) == 1


@pytest.mark.corpus
@pytest.mark.skipif(not (CORPUS / "manifest.json").exists(), reason="../shared/corpus is not here")
def test_the_corpus_is_timed_in_forked_processes() -> None:
    found = corpus.measure(str(CORPUS), 1, ["cl_saxpy_O0.gfx908", "cl_mfma_i8.gfx908"])
    assert found["kernels"] == 2 and {row["name"] for row in found["all"]} == {"cl_saxpy_O0.gfx908", "cl_mfma_i8.gfx908"}
    assert all(0 < row["launch_seconds"] < row["seconds"] and row["instructions"] > 0 for row in found["all"])
    seconds = [row["seconds"] for row in found["all"]]
    assert seconds == sorted(seconds, reverse=True) and min(seconds) <= found["median_seconds"] <= max(seconds)


@pytest.mark.slow
@LINUX
def test_profiles_by_opcode_of_operators_files_and_rows(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    briefly = partial(profile.profile_launches, enough=0.1)
    monkeypatch.setattr(operator, "profile_launches", briefly)
    monkeypatch.setattr(exec, "profile_launches", briefly)
    gemm = json.loads(printed(capsys, "--profile", "gemm", "-m", "40", "-n", "33", "-k", "21", "--threads", "1", "--json"))
    assert gemm["pass"] and any(row["mnemonic"].startswith("v_mfma") for row in gemm["profile"]["opcodes"])
    file = tmp_path / "k.co"
    body = ["s_movk_i32 s20, 20000", "loop:", *["v_add_f32 v2, v3, v4"] * 9]
    body += ["s_sub_u32 s20, s20, 1", "s_cmp_lg_u32 s20, 0", "s_cbranch_scc1 loop"]
    file.write_bytes(assemble(kernel("gfx90a", body), "gfx90a"))
    text = printed(capsys, "exec", str(file), "--arg", "zeros:f32:64", "--arg", "zeros:f32:64", "--grid", "2", "--profile")
    assert f"{NAME} of {file} on gfx90a" in text and "not validated" in text
    first = text.partition("Time by opcode")[2].splitlines()[3].split()
    assert first[0] == "v_add_f32" and float(first[2]) > 50


@pytest.mark.slow
@LINUX
def test_rows_that_are_one_kernel_have_profiles(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    (goal,) = [goal for goal in GOALS if goal.name == "lds"]
    assert goal.subject is not None
    document = profile.profile_document(profile.profile_launches(*goal.subject(GoalSetting(1)), enough=0.1))
    assert {row["mnemonic"] for row in document["opcodes"][:2]} == {"ds_read_b128", "ds_write_b128"}
    monkeypatch.setattr(table, "_child", lambda goal, options, threads, *more: document)
    assert list(json.loads(printed(capsys, "--profile", "--json"))["profiles"]) == [goal.name for goal in GOALS if goal.subject]
    assert "ds_read_b128" in printed(capsys, "--profile", "--only", "lds", "--only", "corpus")
    short = profile.profile_document(replace(SHORT, launches=1000))
    profile.show_profile(short, "one")
    assert "too short for even samples" in capsys.readouterr().out


SHORT = Profile((Opcode("v_add_f32", 1000, 10, 0.1),), {}, 0.1, 10, 1)


def test_rates_are_of_instructions_that_some_target_has() -> None:
    known = {spec.mnemonic for spec in REGISTRY.specs}
    lines = [line for of_class in rates.CLASSES.values() for line in of_class]
    assert len(set(lines)) == len(lines)
    unknown = [line for line in lines if re.sub(r"_(dpp|sdwa)$", "", line.split()[0]) not in known]
    assert not unknown


def test_rates_leave_out_what_a_target_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "LOOPS", 50)
    found = rates.rates("mi100", "v_p")  # v_prng_b32 and the swaps of lanes are gfx950's
    assert set(found) == {"VALU, 32 bits", "VALU, 16 bits and packed"}
    assert all(rate.ns >= 0 for of_class in found.values() for rate in of_class)


def test_pages(tmp_path: Path, capsys: Capture) -> None:
    from simgpu.tools.page.page import read_document

    file = tmp_path / "bench.html"
    printed(capsys, "gemm", "-m", "40", "-n", "36", "-k", "20", "--html", str(file))
    document = read_document(str(file))
    assert "median" in document["verdict"] and document["verdict"].endswith("PASS")
    assert document["kernels"][0]["instructions"] > 0 and document["roofline"]["points"][0]["name"] == "planned"
    assert "exists" in failing(capsys, "gemm", "-m", "40", "-n", "36", "-k", "20", "--html", str(file))


@pytest.mark.slow
def test_a_first_launch_compiles_what_is_asked_for() -> None:
    """Instructions are the target's and differ; with the prolog's and the loop's there are more functions than lines."""
    lines = first_launch.choose_instructions("mi100", 5)
    assert len(set(lines)) == 5
    assert len({name for line in lines for name, of_class in rates.CLASSES.items() if line in of_class}) > 3
    found = first_launch.measure("mi100", 5, check=False)
    assert found["compiled"] > 5 and found["seconds"] > 0 < found["processor_seconds"]


def test_measured_processes_find_pythons_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements find bytecode as users do, even if the environment forbids writing it: compiling modules takes half of an
    import."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    where = output_of(["-c", "import simgpu, sys; print(sys.pycache_prefix, sys.dont_write_bytecode)"]).split()
    assert where == [environment()["PYTHONPYCACHEPREFIX"], "False"]
    assert list(Path(where[0]).rglob("simgpu/__init__.*.pyc"))
