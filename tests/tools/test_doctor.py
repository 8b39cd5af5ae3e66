"""`simgpu doctor` lists present and missing software; `--completion` completes the parsers' words."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from simgpu.tools.cli import VERBS, main
from simgpu.tools.shared.completion import SHELLS


def items(capsys: pytest.CaptureFixture[str], status: int = 0) -> dict[str, dict]:
    assert main(["doctor", "--json"]) == status
    return {item["name"]: item for item in json.loads(capsys.readouterr().out)}


def test_what_is_there_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    found = items(capsys)
    assert found["numpy"]["found"] == importlib.metadata.version("numpy")
    assert "clang version" in found["clang for amdgcn"]["found"] and str(tmp_path) in found["cache"]["found"]
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in found)


def test_what_is_missing_is_told_with_its_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMGPU_CLANG", str(tmp_path / "none"))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))  # the files of the user's may be many, and each is counted
    found = items(capsys, status=1)
    for name in ("clang for amdgcn", "ROCm", "browser"):
        assert found[name]["found"] is None and found[name]["remedy"]
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and "missing, needed: for assembling kernels" in " ".join(lines)


def test_a_cache_that_cannot_be_used(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path / "file"))
    assert items(capsys)["cache"]["found"] is None


COMPLETE = """source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _simgpu; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_operators_and_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--completion", "bash"]) == 0
    (tmp_path / "simgpu.bash").write_text(capsys.readouterr().out)

    def completed(*words: str) -> set[str]:
        command = ["bash", "-c", COMPLETE, "bash", str(tmp_path / "simgpu.bash"), "simgpu", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0 and done.stderr == ""
        return set(done.stdout.split())

    assert completed("") >= set(VERBS)
    assert completed("la") == {"layout"}
    assert completed("run", "atte") == {"attention", "attention_backward"}
    assert completed("run", "gemm", "--trans") == {"--trans-a", "--trans-b"}
    assert completed("layout", "--ht") == {"--html"}
    assert completed("--qu") == completed("exec", "--qu") == completed("--quiet", "run", "gemm", "--qu") == {"--quiet"}
    assert completed("--completion", "") == set(SHELLS)
    assert completed("run", "gemm", "--target", "mi30") == {"mi300a", "mi300x"}
    assert completed("time", "gemm", "--dtype", "bf") >= {"bf16"} and completed("run", "gemm", "--device", "h") == {"hip"}
    assert "softmax" in completed("regret", "s")
    (tmp_path / "kernel.co").write_text("")
    assert completed("exec", "ker") == {"kernel.co"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_knows_every_verb(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.startswith("# ") and all(verb in script for verb in VERBS) and "html" in script
    if shutil.which(shell) is not None:  # its own syntax check
        (tmp_path / "script").write_text(script)
        done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_every_verb_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Options are those of the parsers, as `--help` prints them."""
    assert main(["--completion", shell]) == 0
    script = capsys.readouterr().out
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        said = capsys.readouterr().out
        mine = [line for line in script.splitlines() if line.lstrip().startswith(f"{verb})") or f"from {verb}'" in line]
        words = set(re.split(r"[\s\"'();]+", " ".join(mine)))
        for option in re.findall(r"^  (--[a-z][a-z0-9-]*)", said, re.MULTILINE):
            assert (option if shell != "fish" else option.removeprefix("--")) in words, (verb, option)


def test_a_shell_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
