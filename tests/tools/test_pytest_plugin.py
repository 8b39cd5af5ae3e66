"""pytest --simgpu: an existing suite on several simulated targets, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from simgpu.tools.torch import suites
from simgpu.tools.torch.results import ResultWriter, read
from tests.support import forks, transcripts
from tests.support.exhaustive import left_out
from tests.support.places import PYTHON_PATH, ROOT

SUITE = '''
import numpy as np
import pytest
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

@pytest.mark.parametrize("n", [3, 60])
def test_double(n):
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    double[(1,)](x, out, n, BLOCK=64)
    assert (out == 2 * x).all()

def test_past_the_end():
    double[(1,)](np.zeros(60, np.float32), np.zeros(64, np.float32), 64, BLOCK=64)
'''

UNITTEST_SUITE = SUITE + '''
import os
import unittest

class TestDouble(unittest.TestCase):
    def test_double(self):
        test_double(3)
        assert os.environ["SIMGPU"] == "mi300x" and os.environ["SIMGPU_CHECK"] == "yes"

def test_nothing():
    pass
'''

TORCH_SUITE = '''
import pytest
import torch
import triton
import triton.language as tl
from triton.testing import do_bench

DEVICE = triton.runtime.driver.active.get_active_torch_device()
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.load(x + at, mask=live) + tl.load(y + at, mask=live), mask=live)

def add(x, y, out=None):
    assert x.is_cuda and y.device == DEVICE and x.device.type == "cuda" and not x.is_cpu
    out = torch.empty_like(x) if out is None else out
    with torch.cuda.device(x.device.index), torch.cuda.stream(torch.cuda.Stream()):
        add_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK=128)
    return out

@pytest.fixture(scope="module")
def ones():
    return torch.ones(300, device="cuda")

@pytest.mark.parametrize("make", [
    lambda n: torch.randn(n, device="cuda"), lambda n: torch.rand(n, device=torch.device("hip")), lambda n: torch.ones(n).cuda(),
    lambda n: torch.arange(n, device=0, dtype=torch.float32), lambda n: torch.ones(n).to(DEVICE), lambda n: torch.ones(n).to(0),
    lambda n: torch.nn.Linear(n, 1).cuda().weight[0], lambda n: torch.ones(n, pin_memory=True).to("cuda", non_blocking=True),
    lambda n: torch.randn(n, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)),
])
def test_add(make, ones):
    x = make(300)
    torch.testing.assert_close(add(x, ones), x + 1)

def test_default_device():
    with torch.device("cuda"):
        x = torch.randn(20)
    torch.set_default_device("cuda")
    try:
        torch.testing.assert_close(add(x, torch.ones(20)), x + 1)
    finally:
        torch.set_default_device(None)

def test_queries(simgpu_session):
    arch = {"mi300x": "gfx942", "mi210": "gfx90a"}[simgpu_session.name]
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert properties.gcnArchName == arch and properties.multi_processor_count == {"gfx942": 304, "gfx90a": 104}[arch]
    assert torch.cuda.get_device_name() == f"simgpu {simgpu_session.name}" and torch.cuda.device_count() == 1
    assert torch.cuda.get_device_capability("cuda") == {"gfx942": (9, 4), "gfx90a": (9, 0)}[arch]
    assert torch.version.hip and torch.version.cuda is None
    torch.cuda.manual_seed(0), torch.manual_seed(0), torch.cuda.empty_cache(), torch.cuda.synchronize()

def test_times(ones):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    out = torch.empty_like(ones)  # of both launches: memory's channels make the time depend on where tensors lie
    with pytest.warns(UserWarning, match="no GPU was timed"):
        start.record()
        add(ones, ones, out)
        end.record()
        assert do_bench(lambda: add(ones, ones, out)) == pytest.approx(start.elapsed_time(end))
    assert start.elapsed_time(end) > 0

def test_an_optimizer_steps():
    layer = torch.nn.Linear(3, 1, device="cuda")
    before = layer.weight.detach().clone()
    layer(torch.ones(1, 3, device="cuda")).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    torch.testing.assert_close(layer.weight, before - 0.5)

def test_out_of_bounds(ones):
    add_kernel[(1,)](ones[:100].clone(), ones, torch.empty(128, device="cuda"), 128, BLOCK=128)
'''


def suite(folder: Path, *options: str, text: str = SUITE) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the checkout's plugin, not an installed one
    plugins = ["-p", "no:cacheprovider", "-p", "simgpu.tools.torch.pytest_plugin", "-p", "simgpu.tools.pytest_kernels"]
    return forks.pytest([*plugins, "-rA", "-q", *options], folder, environment)


@pytest.mark.slow
def test_every_test_runs_on_every_target(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    done = suite(tmp_path, "--simgpu", "mi300x,gfx90a")
    assert "4 passed" in done.stdout and "2 failed" in done.stdout, done.stdout + done.stderr
    for target in ("mi300x", "gfx90a"):
        assert f"test_double[3-{target}]" in done.stdout or f"test_double[{target}-3]" in done.stdout
    assert "test_suite.py:10" in done.stdout and "past the end of argument x" in done.stdout
    report = done.stdout.partition("= FAILURES =")[2].partition("test_past_the_end[gfx90a]")[0]
    assert len(report.splitlines()) < 30 and "jit.py" not in report and "launch.py" not in report, "nobody's frames but the test's"


SEVERAL = '''
import torch

def test_devices(simgpu_session):
    count = {"mi300x": 1, "mi300x:2": 2}[simgpu_session.name]
    assert torch.cuda.device_count() == count and len(torch.cuda.default_generators) == count
    assert torch.ones(1, device=f"cuda:{count - 1}").get_device() == count - 1 and torch.cuda.get_device_name() == "simgpu mi300x"
'''


def test_a_target_of_several_gpus(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")
    done = suite(tmp_path, "--simgpu", "mi300x,mi300x:2", text=SEVERAL)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "give the number of GPUs" in suite(tmp_path, "--simgpu", "mi300x:none").stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", left_out("1")])
def test_unittest_classes_and_tests_that_launched_nothing(tmp_path: Path, workers: str) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    options = "-p", "xdist", "-n", workers, "-k", "not past"
    done = suite(tmp_path, "--simgpu", "mi300x", *options, text=UNITTEST_SUITE)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    said = "simgpu: 3 launches of kernels in the tests that passed; 1 of 4 passed without one, which --simgpu-strict fails:"
    assert f"{said}\n  test_suite.py::test_nothing[mi300x]\n" in done.stdout, done.stdout
    strict = suite(tmp_path, "--simgpu", "mi300x", "--simgpu-strict", *options, text=UNITTEST_SUITE)
    assert "1 failed, 3 passed" in strict.stdout and "the test launched no kernel" in strict.stdout, strict.stdout


@pytest.mark.slow
def test_the_summary_names_ten_tests_without_a_launch(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    idle = "import pytest\n@pytest.mark.parametrize('n', range(12))\ndef test_nothing(n): pass\n"
    for more, named, last in (((), 10, "and 2 more: -v names all"), (("-vv",), 12, "test_nothing[mi300x-11]")):
        done = suite(tmp_path, "--simgpu", "mi300x", *more, text=idle)
        listed = done.stdout.split("--simgpu-strict fails:\n")[1].split("\n")
        assert len([line for line in listed if line.startswith("  test_suite.py::")]) == named and last in done.stdout, done.stdout


@pytest.mark.exhaustive
def test_processes_of_xdist_share_one_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second suite finds the handlers that the first compiled, in two processes."""
    pytest.importorskip("triton", reason="Triton is an optional extra")
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path / "cache"))
    kept = []
    for workers in ("2", "0"):
        done = suite(tmp_path, "--simgpu", "mi300x", "-p", "xdist", "-n", workers, "-k", "not past", text=SUITE)
        assert "2 passed" in done.stdout, done.stdout + done.stderr
        kept.append({path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()})
    assert kept[0] == kept[1] and kept[0]


@pytest.mark.slow
def test_a_sample_and_known_findings(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    (tmp_path / "known.supp").write_text("{\n known\n simgpu:*\n fun:double\n src:test_suite.py:10\n}\n")
    done = suite(tmp_path, "--simgpu", "mi300x", "--simgpu-suppressions", "known.supp", "-k", "past")
    assert "1 passed" not in done.stdout and "MemoryFault" in done.stdout, "the launch ended there, whatever is told"
    first, again = (suite(tmp_path, "--simgpu", "mi300x", "--simgpu-sample", "2:5", "--collect-only") for _ in range(2))
    assert "2/3 tests collected (1 deselected)" in first.stdout and first.stdout.split(" in ")[0] == again.stdout.split(" in ")[0]
    for words in (("--simgpu-sample", "few"), ("--simgpu-suppressions", "test_suite.py")):
        wrong = suite(tmp_path, "--simgpu", "mi300x", *words)
        assert wrong.returncode == 4 and words[0] in wrong.stderr and "Traceback" not in wrong.stderr


def test_pytorch_finds_its_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")
    early = "import torch\nassert torch.cuda.is_available() and torch.ones(1, device='cuda').is_cuda\n"
    (tmp_path / "conftest.py").write_text(early)
    options = "--simgpu", "mi300x", "--simgpu", "mi210", "--simgpu-operators", "simulated"
    done = suite(tmp_path, *options, text=TORCH_SUITE)
    assert "calls of PyTorch's operators computed on the simulated mi300x, mi210\n" in done.stdout
    assert "  aten::addmm 2: gemm_f32_" in done.stdout, "an optimizer's step, on both"
    assert "26 passed" in done.stdout and "2 failed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("past the end of argument x (100 torch.float32)") >= 2


@pytest.mark.slow
def test_suites_from_checkouts_make_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    (tmp_path / "tests").mkdir()
    skipped = "@pytest.mark.skip(reason='of no use')\ndef test_skipped():\n    pass\n\ndef test_nothing():\n    pass\n"
    (tmp_path / "tests" / "test_suite.py").write_text(SUITE + skipped)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    assert suites.main([f"mine={tmp_path}", "--sample", "9:1"]) == 1
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("mine "))
    assert row[:7] == ["mine", "1.2.3", "mi300x", "4", "3", "75.0%", "1"], out
    assert "mine: tests/test_suite.py::test_past_the_end[mi300x]: simgpu.hardware.errors.MemoryFault" in out


@pytest.mark.slow
def test_a_test_that_ends_its_process_ends_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    (tmp_path / "tests").mkdir()
    tests = "import os\n\ndef test_bad():\n    assert 1 > 2\n\ndef test_killed():\n    os.kill(os.getpid(), 9)\n"
    (tmp_path / "tests" / "test_ended.py").write_text(tests + "\ndef test_fine():\n    pass\n")
    assert suites.main([f"mine={tmp_path}", "--sample", "9:1"]) == 1
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.startswith("mine "))
    assert row[3:6] == ["3", "1", "33.3%"] and "test_bad[mi300x]: assert 1 > 2" in out, out
    assert "mine: tests/test_ended.py::test_killed[mi300x]: pytest ended with it, by SIGKILL\n" in out


def test_a_test_out_of_its_time_says_where_it_was(tmp_path: Path) -> None:
    said = "test_a.py:5: in test_slow\n    wait()\nwaits.py:7: in wait\n    sleep(9)\n"
    said += "E   Failed: Timeout (>1.0s) from pytest-timeout.\n"
    report = pytest.TestReport("test_a.py::test_slow", ("test_a.py", 4, "test_slow"), {}, "failed", said, "call", duration=1.0)
    written = ResultWriter(tmp_path / "results")
    written.pytest_runtest_logstart("test_a.py::test_slow")
    written.pytest_runtest_logreport(report)
    assert read(tmp_path / "results")[1][0].name == "test_a.py::test_slow"
    written.pytest_runtest_logreport(pytest.TestReport(report.nodeid, report.location, {}, "passed", None, "teardown"))
    outcomes, running = read(tmp_path / "results")
    assert outcomes[0].error == "Failed: Timeout (>1.0s) from pytest-timeout., at waits.py:7" and not running


@pytest.mark.slow
def test_scripts_are_given_the_time_that_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / suites.SUITES["triton-tutorials"].folder
    folder.mkdir(parents=True)
    slow = "import time\nprint('soon', flush=True)\ntime.sleep(99)"
    for name, text in (("01-good", "print('fine')"), ("02-bad", "raise SystemExit('broken')")):
        (folder / f"{name}.py").write_text(text)
    assert suites.main([f"triton-tutorials={tmp_path}"]) == 1
    out = capsys.readouterr().out
    assert "50.0%" in out and "02-bad.py: status 1; the last line was 'broken'" in out and "01-good" not in out
    (folder / "01-good.py").unlink()
    (folder / "02-bad.py").write_text(slow)
    assert suites.main([f"triton-tutorials={tmp_path}", "--seconds", "1"]) == 1
    out = capsys.readouterr().out
    assert "0.0%" in out and "02-bad.py: did not end in time; the last line was" in out


def test_a_suite_without_time_ends_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_good.py").write_text("def test_good(): pass")
    assert suites.main([f"mine={tmp_path}", "--seconds", "0"]) == 1
    assert "mine: ended after 0 s" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["mine"], ["mine=/no/such/place"], ["mine=.", "--target", "mi9"], ["mine=.", "--sample", "few"]])
def test_suites_that_cannot_run_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        suites.main(words)
    assert "error: " in capsys.readouterr().err


def test_an_unknown_target_is_told(tmp_path: Path) -> None:
    done = suite(tmp_path, "--simgpu", "mi9")
    assert done.returncode == 4 and "unknown target 'mi9'" in done.stderr and "Traceback" not in done.stderr


def test_a_missing_triton_is_reported(tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')\n")
    done = suite(tmp_path, "--simgpu", "mi300x", "-p", "no:doctest")
    assert done.returncode == 2 and "pip install 'triton>=3.7'" in done.stdout, done.stdout + done.stderr


FILE_SUITE = '''
import numpy as np

TWICE = """
#include <hip/hip_runtime.h>
__global__ void twice(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
"""
UNORDERED = TWICE.replace("y[threadIdx.x] =", "__shared__ float s[128]; s[threadIdx.x] = x[threadIdx.x]; y[threadIdx.x] = s[127] +")

def test_twice(simgpu_load):
    x, y = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    simgpu_load(TWICE)["twice"].launch(grid=1, block=64, args=[x, y])
    assert (y == 2 * x).all()

def test_a_race(simgpu_load):
    simgpu_load(UNORDERED)["twice"].launch(grid=1, block=128, args=[np.ones(128, "f4"), np.zeros(128, "f4")])

def test_a_file(simgpu_load):
    x = np.zeros(64, "f4")
    simgpu_load("one.cl")["one"].launch(grid=1, block=64, args=[x])
    assert x.sum() == 64
'''
ONE = "kernel void one(global float *x) { x[get_global_id(0)] = 1; }\n"


@pytest.mark.slow
def test_kernels_of_files_are_loaded_and_checked(tmp_path: Path) -> None:
    """Without Triton and `--simgpu`; a race fails the test that launched the kernel, and can be suppressed."""
    (tmp_path / "one.cl").write_text(ONE)
    done = suite(tmp_path, text=FILE_SUITE)
    assert "2 passed" in done.stdout and "1 failed" in done.stdout, done.stdout
    assert "KernelFinding: error: race: a read and a write of LDS" in done.stdout and "Traceback" not in done.stderr
    known = tmp_path / "known.supp"
    known.write_text("{\n  unordered\n  simgpu:*\n  fun:twice\n}\n")
    done = suite(tmp_path, "--simgpu", "mi300x,mi210", "--simgpu-suppressions", str(known), text=FILE_SUITE)
    assert "6 passed" in done.stdout and "6 launches of kernels" in done.stdout, done.stdout


@pytest.mark.slow
def test_the_test_of_the_page(tmp_path: Path) -> None:
    """docs/how-to/write-hip.md: its kernel fails its test, the masked one passes."""
    files = dict(transcripts.FILE.findall((ROOT / "docs" / "how-to" / "write-hip.md").read_text()))
    test, kernel = files["test_scale.py"], files["scale.hip"]
    assert len(test.splitlines()) <= 10
    (tmp_path / "scale.hip").write_text(kernel)
    done = suite(tmp_path, text=test)
    assert "1 failed" in done.stdout and "past the end of argument x (float32 200)" in done.stdout, done.stdout
    (tmp_path / "scale.hip").write_text(kernel.replace("    y[", "    if (i < n) y["))
    assert "2 passed" in suite(tmp_path, "--simgpu", "mi300x,mi210", text=test).stdout
