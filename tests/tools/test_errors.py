"""Bad input: one line with the error and the remedy, exit status 2, never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.operators import TiledComputation
from simgpu.tools.cli import BROKEN_PIPE, INTERRUPTED, main
from tests.support.exhaustive import examples, left_out
from tests.support.places import PYTHON_PATH, ROOT

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
    "no folder": (["emit", "gemm", *SIZES, "-o", "/proc/nonexistent/k.s"], "/proc/nonexistent"),
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
    """Published tiles for one-byte types need more registers on gfx950 than 16 waves leave."""
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


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.slow
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
    (["derive", "softmax", "--rows", "9" * 30, "-n", "8"], "give rows <= 281474976710656"),
    (["emit", "gemm", "-m", "40000000000", "-n", "8", "-k", "8"], "so m < 2147483648"),
    (["derive", "attention", "-L", "8", "-d", "2000000"], "<= 304 fits"),
], ids=["missing file", "type", "option before OP", "size", "size of a kernel", "head"])  # fmt: skip
def test_what_is_wrong_first_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_at_any_moment(tmp_path: Path) -> None:
    """Ctrl-C leaves no traceback, no process and no half-written file; 200 moments were tried by hand."""
    rng = random.Random(5)
    command = [sys.executable, "-m", "simgpu", "run", "gemm", "-m", "70", "-n", "60", "-k", "50"]
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "TMPDIR": str(tmp_path)}

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # it is ignored in the background
        )  # fmt: skip

    with begun() as whole:
        before = time.monotonic()
        assert whole.communicate()[1] == "" and whole.returncode == 0
        lasts = time.monotonic() - before
    for _ in range(examples(10)):
        with begun() as process:
            time.sleep(rng.random() * lasts)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=300)
        assert said in ("", "simgpu run: interrupted\n") and process.returncode in (0, INTERRUPTED, -signal.SIGINT), said
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("most", [left_out(0), 3000])
def test_a_full_disk(tmp_path: Path, most: int) -> None:
    """Files may have at most `most` bytes: there is a message, and nothing half written; commands without a file run."""
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "SIMGPU_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python 3.11 keeps the beginning of a module's bytecode
    for words, status in ((["tree", "gemm", *SIZES], 0), (["emit", "gemm", *SIZES, "-o", "k.s"], 2), (["run", "gemm", *SIZES], 2)):
        command = [sys.executable, "-m", "simgpu", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )  # fmt: skip
        assert done.returncode == status and done.stderr.count("\n") == (status != 0), done.stderr
        kept = tmp_path / "cache" / "hosts"  # a small file, which fits
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != kept]


@pytest.mark.parametrize("home", [None, "/proc/nothing", left_out("/proc")])
def test_no_home(tmp_path: Path, home: str | None) -> None:
    lacking = ("HOME", "SIMGPU_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in lacking} | {"PYTHONPATH": PYTHON_PATH}
    environment |= {"HOME": home} if home else {}
    command = [sys.executable, "-m", "simgpu", "run", "softmax", "--rows", "1", "-n", "8"]  # few handlers to compile
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_room_is_said_as_such(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*unused: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "k.s")

    monkeypatch.setattr("simgpu.tools.verbs.derive.run", stop)
    assert "k.s: No space left on device; make room" in one_line(capsys, ["derive", "gemm", *SIZES])


def test_the_output_that_has_no_room_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(scratch: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), scratch)

    monkeypatch.setattr("os.link", stop)
    said = one_line(capsys, ["emit", "gemm", *SIZES, "-o", str(tmp_path / "k.s")])
    assert f"emit: {tmp_path / 'k.s'}: No space left on device; make room" in said
    assert not list(tmp_path.iterdir())
