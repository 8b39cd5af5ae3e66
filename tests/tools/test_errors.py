"""Bad input: one line that says what and what to do, exit status 2, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.operators import TiledComputation
from simgpu.tools.cli import BROKEN_PIPE, INTERRUPTED, main
from tests.support.places import ROOT

SIZES = ["-m", "8", "-n", "8", "-k", "8"]
BAD = {
    "no verb": ([], "VERB"),
    "unknown verb": (["fly"], "fly"),
    "unknown operator": (["derive", "fft"], "fft"),
    "no sizes": (["derive", "gemm"], "-m"),
    "m = 0": (["derive", "gemm", "-m", "0", "-n", "8", "-k", "8"], "m = 0"),
    "k < 0": (["run", "gemm", "-m", "8", "-n", "8", "-k", "-3"], "k = -3"),
    "a word for n": (["tree", "gemm", "-m", "8", "-n", "x", "-k", "8"], "'x'"),
    "target": (["run", "gemm", *SIZES, "--target", "mi9000"], "mi300x"),
    "policy": (["report", "gemm", *SIZES, "--policy", "best"], "published"),
    "type": (["emit", "gemm", *SIZES, "--dtype", "f12"], "f16"),
    "type without an atom": (["derive", "gemm", *SIZES, "--dtype", "f64"], "f64"),
    "activation of a type": (["run", "gemm", *SIZES, "--dtype", "i8", "--activation", "gelu"], "C is i32"),
    "fraction of an integer": (["run", "gemm", *SIZES, "--dtype", "i8", "--alpha", "0.5"], "integer"),
    "lda": (["derive", "gemm", *SIZES, "--lda", "7"], "lda >= 8"),
    "alpha": (["run", "gemm", *SIZES, "--alpha", "inf"], "finite"),
    "beta": (["run", "gemm", *SIZES, "--beta", "1e39"], "f32"),
    "threads": (["run", "gemm", *SIZES, "--threads", "0"], "threads"),
    "seed": (["run", "gemm", *SIZES, "--seed", "-1"], "seed"),
    "budget": (["run", "gemm", *SIZES, "--max-instructions", "0"], "max_instructions"),
    "size of memory": (["run", "gemm", "-m", "1000000", "-n", "1000000", "-k", "9"], "GB"),
    "no such file": (["disasm", "/nonexistent/k.co"], "/nonexistent/k.co"),
    "a folder": (["disasm", "/"], "directory"),
    "no folder": (["emit", "gemm", *SIZES, "-o", "/nonexistent/k.s"], "/nonexistent"),
}


def one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int = 2) -> str:
    assert main(arguments) == status
    out = capsys.readouterr()
    assert out.err.startswith("simgpu") and out.err.count("\n") == 1 and "internal error" not in out.err
    return out.err


@pytest.mark.parametrize("name", BAD)
def test_one_line_and_status_2(capsys: pytest.CaptureFixture[str], name: str) -> None:
    arguments, expected = BAD[name]
    assert expected in one_line(capsys, arguments)


@pytest.mark.parametrize("verb", ["run", "emit"])
def test_no_clang(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str
) -> None:
    monkeypatch.setenv("SIMGPU_CLANG", str(tmp_path / "clang"))
    outputs = ["-o", str(tmp_path / "k.s"), "--object", str(tmp_path / "k.co")] if verb == "emit" else []
    assert "SIMGPU_CLANG" in one_line(capsys, [verb, "gemm", *SIZES, *outputs])
    assert not list(tmp_path.iterdir())


def test_tiles_that_cannot_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The published policy's tiles for one-byte types need more registers on gfx950 than 16 waves leave."""
    sizes = [
        "-m",
        "4096",
        "-n",
        "4096",
        "-k",
        "4096",
        "--target",
        "mi355x",
        "--dtype",
        "i8",
        "--policy",
        "published",
    ]
    for verb in ("derive", "tree", "report", "emit", "run"):
        outputs = ["-o", str(tmp_path / "k.s")] if verb == "emit" else []
        assert "the limit is" in one_line(capsys, [verb, "gemm", *sizes, *outputs])
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def linked() -> bytes:
    return asm.emit(TiledComputation(8, 8, 8)).assemble()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.95))
def test_truncated_code_object(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, linked: bytes, share: float
) -> None:
    path = tmp_path / "cut.co"
    path.write_bytes(linked[: int(share * len(linked))])
    for verb in (["disasm", str(path)], ["exec", str(path), "--grid", "1"]):
        one_line(capsys, verb)


def test_interrupted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*unused: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("simgpu.tools.verbs.derive.run", stop)
    assert "interrupted" in one_line(capsys, ["derive", "gemm", *SIZES], INTERRUPTED)


def test_a_bug_is_one_line_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*unused: object) -> int:
        return {}["missing"]  # type: ignore[no-any-return]

    monkeypatch.setattr("simgpu.tools.verbs.derive.run", stumble)
    assert main(["derive", "gemm", *SIZES]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "KeyError" in said and "test_errors.py" in said


def test_process_whose_reader_left() -> None:
    command = [sys.executable, "-m", "simgpu.tools.cli", "emit", "gemm", "-m", "300", "-n", "300", "-k", "64"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == BROKEN_PIPE and said == b""


def test_process_status_and_streams() -> None:
    command = [sys.executable, "-m", "simgpu.tools.cli", "tree", "gemm", "-m", "0", "-n", "1", "-k", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "simgpu tree: m = 0 is not a size: give m >= 1\n"


@pytest.mark.parametrize("words, said", [
    (["exec", "nope.s"], "nope.s: No such file"),
    (["run", "gemm", "-m", "8", "-n", "8", "-k", "8", "--dtype", "fp16"], "did you mean f16?"),
    (["derive", "--target", "mi300x", "gemm", "-m", "8"], "options follow OP"),
], ids=["missing file", "type", "option before OP"])  # fmt: skip
def test_what_is_wrong_first_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
