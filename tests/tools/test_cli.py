"""Verbs for gemm, called as functions: their output, return value and files."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import types
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgpu import asm
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa import decode_all
from simgpu.operators import TiledComputation
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.tools.cases.operators import workload
from simgpu.tools.cli import FIRST, GROUPS, VERBS, main
from simgpu.tools.shared.parser import EXAMPLES
from simgpu.tools.tables.kernel_use import kernel_use
from simgpu.tools.tables.resources import resource_rows
from simgpu.version import VERSION

SMALL = ["gemm", "-m", "40", "-n", "33", "-k", "21"]
Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert main(arguments) == status
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def document(capsys: Capture, *arguments: str, status: int = 0) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json", status=status))
    return loaded


def test_version_and_help(capsys: Capture) -> None:
    versions = printed(capsys, "--version").splitlines()
    assert versions[0] == f"simgpu {VERSION}" and "clang version" in versions[1]
    assert platform.machine() in versions[2] and platform.python_version() in versions[2]
    text = printed(capsys, "--help")
    listed = [line.split()[0] for line in text.splitlines() if line[:2] == "  " and line[2] not in " -"]
    assert sorted(listed) == sorted(VERBS) and set(listed[: len(FIRST)]) == set(FIRST) and len(FIRST) == 12
    assert [line[:-1] for line in text.splitlines() if line[:-1] in GROUPS][-len(GROUPS) :] == list(GROUPS)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("verb", "given", "threads"), [("hip", {}, 1), ("hip", {"OPENBLAS_NUM_THREADS": "2"}, 2), ("run", {}, 2)])
def test_verbs_without_products_start_no_thread_of_blas(verb: str, given: dict[str, str], threads: int) -> None:
    """Counts threads of a process; afterwards the variable is as the user set it, for programs that the verb starts."""
    program = "\n".join((
        "import os, json", "from simgpu.tools.cli import _module", f"_module({verb!r})",
        "print(json.dumps([len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS')]))",
    ))  # fmt: skip
    own = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", program], env={**own, **given}, capture_output=True, text=True, check=True)
    found, left = json.loads(done.stdout)
    assert found == 1 if threads == 1 else found > 1 or os.cpu_count() == 1
    assert left == given.get("OPENBLAS_NUM_THREADS")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(capsys: Capture, verb: str) -> None:
    """`dap` speaks only JSON."""
    assert ("--json" in printed(capsys, verb, "--help")) == (verb != "dap")


@pytest.mark.parametrize("verb", EXAMPLES)
def test_examples_are_command_lines(capsys: Capture, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Examples of the help parse, and each runs its verb."""
    shown = printed(capsys, verb, "--help")
    module = importlib.import_module(f"simgpu.tools.verbs.{verb}")
    ran: list[object] = []
    monkeypatch.setattr(module, "run", lambda options: ran.append(options) or 0)
    for example in EXAMPLES[verb]:
        assert f"  simgpu {example}\n" in shown and example.split()[0] == verb
        assert main([word for word in example.split() if word not in ("--device", "hip")]) == 0
    assert len(ran) == len(EXAMPLES[verb])
    assert max(map(len, shown.splitlines())) <= 132


def test_a_verb_is_a_row_and_a_module(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("simgpu.tools.verbs.hello")
    module.configure = lambda parser: parser.add_argument("--name", default="you")  # type: ignore[attr-defined]
    module.run = lambda options: print(f"hello, {options.name}") or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(VERBS, "hello", "greet")
    monkeypatch.setitem(GROUPS, "greetings", {"hello": "greet"})
    assert main(["hello", "--name", "wave"]) == 0
    assert capsys.readouterr().out == "hello, wave\n"
    assert main(["--help"]) == 0 and "greet" in capsys.readouterr().out


@pytest.mark.parametrize("sizes", [
    "gemm -m 4096 -n 4096 -k 4096 --target mi300x --dtype f16", "attention_backward -L 1000 -d 128 --target mi355x --dtype bf16",
    "conv2d --batch 9 --ic 64 --ih 56 --iw 56 --oc 64 --kh 3 --kw 3", "softmax --rows 4096 -n 4097", "attention -L 4096 -d 128",
])  # fmt: skip
def test_in_80_columns_a_limit_has_a_line(sizes: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of the tile may need several lines, broken between them; only the limit that binds has its note."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed(capsys, "derive", *sizes.split()).splitlines()
    rows = document(capsys, "derive", *sizes.split())["constraints"]
    assert max(map(len, lines)) <= 80
    table = lines[lines.index("Constraints") + 3 :]
    assert [line.split()[0] for line in table[2 : 1 + len(rows)]] == [str(row["node"]) for row in sorted(
        (row for row in rows if not row["binding"]), key=lambda row: ("device", "block", "warp", "atom").index(row["node"]))]
    assert table[1].startswith("    binds: ") and table[1 + len(rows)].startswith(f"{len(rows) - 1} rows have notes: ")


@pytest.mark.parametrize("sizes", [
    "gemm -m 1905 -n 1933 -k 1725 --dtype i8 --trans-a --trans-b --target mi355x",
    "attention --lq 1537 --lk 2049 -d 96 --heads 12 --kv-heads 3 --dtype bf16 --target mi325x",
])  # fmt: skip
def test_in_80_columns_a_reports_tables_are_whole(sizes: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter has its value and unit in one line, a resource that is read back its granule; names of kernels are in titles."""
    monkeypatch.setenv("COLUMNS", "80")
    lines, made = printed(capsys, "report", *sizes.split()).splitlines(), document(capsys, "report", *sizes.split())
    assert max(map(len, lines)) <= 80
    counters = lines[lines.index("Counters") + 3 :]
    for line, counter in zip(counters, made["counters"], strict=False):
        assert line.startswith(counter["level"]) and counter["counter"] in line and counter["unit"] in line
    [title] = [line for line in lines if line.startswith("Read back")]
    assert title == f"Read back from the code object of {made['kernels'][0]['kernel']}"
    assert lines[lines.index(title) + 1].split() == ["resource", "planned", "read", "back", "granule"]


def test_derive_prints_tiles_and_every_constraint(capsys: Capture) -> None:
    sizes = ["-m", "4096", "-n", "4096", "-k", "4096"]
    plan = TiledComputation(4096, 4096, 4096).plan
    text = printed(capsys, "derive", "gemm", *sizes)
    assert f"tile_m {plan.tile_m}, tile_n {plan.tile_n}, tile_k {plan.tile_k}" in text
    assert f"k_steps {plan.k_steps}" in text and plan.atom.mnemonic in text
    assert f"Bound by {plan.binding.name}" in text
    made = document(capsys, "derive", "gemm", *sizes)
    assert made["tiles"]["tile_m"] == plan.tile_m and made["binding"] == plan.binding.name
    assert [row["name"] for row in made["constraints"]] == [row.name for row in plan.constraints]
    assert all(row["slack"] == row["limit"] - row["use"] for row in made["constraints"])


def test_tree_is_the_tree(capsys: Capture) -> None:
    arguments = [
        "gemm",
        "-m",
        "4096",
        "-n",
        "4096",
        "-k",
        "4096",
        "--target",
        "gpu_a",
        "--policy",
        "published",
    ]
    tree = TiledComputation(4096, 4096, 4096, target="gpu_a", policy="published").tree()
    assert printed(capsys, "tree", *arguments) == tree + "\n"
    made = document(capsys, "tree", *arguments)
    assert made["text"] == tree
    assert [node["level"] for node in made["nodes"]] == ["device", "block", "warp", "atom"]


@pytest.mark.parametrize("target", ["mi100", "mi210", "mi300x", "mi355x"])
def test_report_has_derived_figures_and_the_linked_kernels(capsys: Capture, target: str) -> None:
    made = document(capsys, "report", *SMALL, "--target", target)
    tree = TiledComputation(40, 33, 21, target=target)
    kernel = asm.emit(tree)
    linked = made["kernels"][0]
    rows = {(row["node"], row["name"]): row for row in linked["resources"]}
    assert made["assembled"]
    assert (
        rows["block", "LDS"]["derived"] == tree.plan.resources.lds_bytes
        or rows["block", "LDS"]["derived"] > 0
    )
    assert rows["block", "LDS"]["actual"] == kernel.resources.lds
    assert rows["warp", "ArchVGPR"]["actual"] == kernel.resources.vgprs
    assert rows["warp", "AccVGPR"]["actual"] == kernel.resources.agprs
    assert rows["warp", "SGPR"]["actual"] >= kernel.resources.sgprs
    for node in ("device", "block", "warp"):
        assert rows[node, "arithmetic intensity"]["derived"] > 0
    assert linked["instructions"] == kernel.resources.instructions


def test_report_without_clang_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_CLANG", "/nonexistent/clang")
    text = printed(capsys, "report", *SMALL)
    assert "Derived figures only" in text and "/nonexistent/clang" in text
    made = document(capsys, "report", *SMALL)
    assert not made["assembled"] and all(row["actual"] is None for row in made["kernels"][0]["resources"])


def test_a_kernel_that_takes_more_than_its_limit_is_marked() -> None:
    plan: GemmPlan = TiledComputation(40, 33, 21).plan
    kernel = asm.emit(TiledComputation(40, 33, 21))
    code = CodeObject.parse(kernel.assemble())
    use = kernel_use(code, code.kernels[kernel.name])
    greedy = type(use)(**{**use.__dict__, "lds_bytes": 1 << 20})
    marks = {row.name: row.mark for row in resource_rows(plan, plan.threads, greedy)}
    assert marks["LDS"] == "violated" and marks["ArchVGPR"] != "violated"


def test_emit_writes_what_assembles_to_the_object(capsys: Capture, tmp_path: Path) -> None:
    text, linked = tmp_path / "k.s", tmp_path / "k.co"
    printed(capsys, "emit", *SMALL, "-o", str(text), "--object", str(linked))
    assert asm.assemble(text.read_text(), "gfx908") == linked.read_bytes()
    assert CodeObject.parse(linked.read_bytes()).target == "gfx908"
    assert printed(capsys, "emit", *SMALL).strip() == text.read_text().strip()
    made = document(capsys, "emit", *SMALL)
    assert made["text"] == text.read_text() and made["block"] == [256, 1, 1]


def test_emit_overwrites_only_when_forced(capsys: Capture, tmp_path: Path) -> None:
    kept, fresh = tmp_path / "kept.co", tmp_path / "fresh.s"
    kept.write_bytes(b"mine")
    assert main(["emit", *SMALL, "-o", str(fresh), "--object", str(kept)]) == 2
    assert "--force" in capsys.readouterr().err
    assert kept.read_bytes() == b"mine" and not fresh.exists()
    printed(capsys, "emit", *SMALL, "-o", str(fresh), "--object", str(kept), "--force")
    assert CodeObject.parse(kept.read_bytes()).kernels and fresh.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh.s", "kept.co"]


RUNS = [
    [],
    ["--trans-a", "--trans-b"],
    ["--alpha", "-0.3", "--beta", "1.7"],
    ["--lda", "29", "--ldb", "35", "--ldc", "37", "--beta", "0.5"],
    ["--trans-a", "--lda", "43", "--ldc", "34", "--threads", "1", "--seed", "7"],
    ["--target", "mi300x", "--trans-b"],
]


@pytest.mark.parametrize("options", RUNS, ids=" ".join)
def test_run_passes_and_reports(capsys: Capture, options: list[str]) -> None:
    made = document(capsys, "run", *SMALL, *options)
    assert made["pass"] and made["error"]["wrong"] == 0 and not made["vouches_for_waits"]
    assert made["error"]["max_error"] < 1e-4
    assert made["counters"]["instructions"] == made["instructions"] > 0
    assert made["counters"]["mfma_flops"] >= 2 * 40 * 33 * 21
    parts = made["tiles"]["split_k"]
    assert made["counters"]["unique_write_bytes"] == 4 * 40 * 33 * (1 + parts if parts > 1 else 1)


def test_run_in_words(capsys: Capture) -> None:
    text = printed(capsys, "run", *SMALL)
    for expected in ("Resources", "Counters", "mfma_flops", "does not vouch", "bound"):
        assert expected in text
    assert text.rstrip().endswith("PASS")


def test_run_fails_when_an_instructions_bytes_change(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of its matrix instructions the result is wrong: the linked bytes run."""
    original = asm.EmittedKernel.assemble

    def broken(kernel: asm.EmittedKernel) -> bytes:
        data = original(kernel)
        code = CodeObject.parse(data)
        info = code.kernels[kernel.name]
        raw = code.read(info.entry, info.code_size)
        run = takewhile(lambda inst: inst.mnemonic != "s_endpgm", decode_all(raw, code.target))
        *_, matrix = (inst for inst in run if "mfma" in inst.mnemonic)  # of the last k tile
        at = data.index(raw) + matrix.offset
        return (
            data[:at] + bytes.fromhex("000080bf") * (matrix.size // 4) + data[at + matrix.size :]
        )  # s_nop 0

    monkeypatch.setattr(asm.EmittedKernel, "assemble", broken)
    made = document(capsys, "run", *SMALL, status=1)
    assert not made["pass"] and made["error"]["wrong"] > 0
    assert printed(capsys, "run", *SMALL, status=1).rstrip().endswith("FAIL")


def test_comparison_sees_one_wrong_element_nan_and_touched_padding() -> None:
    work = workload(TiledComputation(5, 6, 7, ldc=9, beta=0.5), "gfx908", seed=1)
    assert np.isnan(work.arrays[2]).sum() == 4 * 3
    exact = work.arrays[2].copy()
    a, b, c = (operand.view.astype(np.float64) for operand in work.operands)
    replace(work.operands[2], flat=exact).view[...] = a @ b + 0.5 * c
    assert work.compare(exact, "C").passed
    for at, value in ((0, exact[0] + 1e-3), (9 + 2, np.nan)):
        wrong = exact.copy()
        wrong[at] = value
        verdict = work.compare(wrong, "C")
        assert (verdict.wrong, verdict.touched, verdict.worst) == (1, 0, divmod(at, 9)) and not verdict.passed
    wrong = exact.copy()
    wrong[6] = 0.0
    verdict = work.compare(wrong, "C")
    assert (verdict.wrong, verdict.touched) == (0, 1) and not verdict.passed


def test_c_is_not_read_when_beta_is_0() -> None:
    assert np.isnan(workload(TiledComputation(4, 4, 4), "gfx908", seed=0).arrays[2]).all()
