"""`simgpu profile`: its output, another run beside it, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.cli import main
from simgpu.tools.page.page import Page
from simgpu.tools.tables.profile_tables import comparison
from tests.support.slow_kernels import KERNELS

Capture = pytest.CaptureFixture[str]
STRIDE = KERNELS["stride"]
LAUNCH = "--target mi300x --grid 256 --block 256 --arg zeros:f32:4194304 --arg zeros:f32:65536 --arg i32:8".split()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("weigh.hip").write_text(STRIDE.text)
    return "weigh.hip"


@pytest.mark.slow
def test_the_first_line_and_the_run_after_the_change(kernel: str, capsys: Capture) -> None:
    assert main(["profile", "--html", "before.html", kernel, *LAUNCH]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    first = lines[1 + next(at for at, line in enumerate(lines) if "without it" in line)]
    assert "uncoalesced at weigh.hip:" in first and "32: 4" in "".join(lines)
    Path(kernel).write_text(STRIDE.changed)
    assert main(["profile", "--json", "--against", "before.html", kernel, *LAUNCH]) == 0
    document = json.loads(capsys.readouterr().out)
    (now,), (before,) = document["kernels"], document["against"]
    assert before["advice"][0]["seconds"] == pytest.approx(now["seconds"], rel=0.05) and now["seconds"] < before["seconds"]
    assert now["counters"]["SQ_WAVES"] == 1024 and now["lines"][0]["source"]
    said = comparison(now, before, "before.html", 3)
    assert any("less" in line for line in said) and any("[k * 65536 + i]" in line for line in said) and max(map(len, said)) <= 80


def test_an_operator_and_a_fixed_clock(capsys: Capture) -> None:
    command = "profile --json --clock 1000 gemm -m 100 -n 90 -k 70 --target mi300x"
    assert main(command.split()) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["clock_mhz"] == 1000 and any(line["place"].startswith("gemm/") for line in kernel["lines"])
    assert all(0.01 <= one["gain"] < 1 and one["seconds"] < kernel["seconds"] for one in kernel["advice"])


@pytest.mark.slow
def test_pages_without_a_profile_are_refused_in_a_line(kernel: str, capsys: Capture) -> None:
    Path("other.html").write_text(Page("other", {"kernels": [{"name": "weigh"}]}).html())
    Path("text.html").write_text("nothing")
    for against, said in (("other.html", "without a profile"), ("text.html", "no page of simgpu"), ("none.html", "none.html")):
        assert main(["profile", "--against", against, kernel, *LAUNCH]) == 2
        heard = capsys.readouterr().err
        assert said in heard and heard.count("\n") == 1
    assert main(["profile", "--clock", "0", kernel, *LAUNCH]) == 2


def test_a_launch_of_a_triton_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    script = tmp_path / "add.py"
    script.write_text("""import sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def add(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, at < n) + 1, at < n)

n = int(sys.argv[1])
for _ in range(2):
    add[(n // 256,)](np.ones(n, np.float32), np.zeros(n, np.float32), n, B=256)
""")
    for verb in ("time", "profile"):
        assert main([verb, "--json", "--board", "mi210", "--launch", "add:2", str(script), "1024"]) == 0
        (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
        assert kernel["seconds"] > 0
    assert any("add.py:9" in line["place"] for line in kernel["lines"])
    assert main(["time", "--launch", "add:3", str(script), "1024"]) == 2 and "no launch add:3" in capsys.readouterr().err
