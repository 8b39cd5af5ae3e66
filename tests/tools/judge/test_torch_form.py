"""`simgpu judge` of PyTorch modules with Triton kernels: public ways to cheat in KernelBench's form are rejected.

Sources of the ways: KernelBench's issues 155 (f16) and 165 (zeros), its tests of reused memory and of changed inputs, and
catalogues of rewards that were hacked (wafer.ai, deep-reinforce.com, Makora's KernelHacks, gpu-mode's pygpubench).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")
torch = pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

import simgpu.triton  # noqa: E402
from simgpu.tools.cli import main  # noqa: E402
from simgpu.tools.judge.child.integrity import Integrity  # noqa: E402
from simgpu.tools.judge.child.operators import WatchOperators, address_of  # noqa: E402
from simgpu.tools.torch.pretend import pretended_gpu  # noqa: E402

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
    def forward(self, x):
        return torch.sum(torch.sigmoid(self.linear(x)), dim=1, keepdim=True)

batch_size = 20
input_size = 48
hidden_size = 33

def get_inputs():
    return [torch.rand(batch_size, input_size)]
def get_init_inputs():
    return [input_size, hidden_size]
"""
GOOD = """
import threading, time
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def fused(x, w, b, out, N, K, BN: tl.constexpr, BK: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    for n0 in range(0, N, BN):
        n = n0 + tl.arange(0, BN)
        acc = tl.load(b + n, mask=n < N, other=0.0)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            xs = tl.load(x + row * K + k, mask=k < K, other=0.0)
            ws = tl.load(w + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
            acc += tl.sum(ws * xs[None, :], axis=1)
        total += tl.sum(tl.where(n < N, tl.sigmoid(acc), 0.0), axis=0)
    tl.store(out + row, total)

def run(linear, x):
    out = torch.empty((x.shape[0], 1), device=x.device, dtype=x.dtype)
    fused[(x.shape[0],)](x.contiguous(), linear.weight, linear.bias, out, *linear.weight.shape, BN=32, BK=32)
    return out

class ModelNew(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
    def forward(self, x):
        return run(self.linear, x)
"""
TORCH = "torch.sum(torch.sigmoid(self.linear(x)), dim=1, keepdim=True)"


def forward(*lines: str, more: str = "") -> str:
    """Returns the honest candidate with another forward()."""
    return GOOD.replace("        return run(self.linear, x)\n", "".join(f"        {line}\n" for line in lines)) + more


CHEATS = {
    "f16": ("precision", GOOD.replace("ws * xs[None, :]", "(ws.to(tl.float16) * xs.to(tl.float16)[None, :]).to(tl.float32)")),
    "PyTorch only": ("no-kernel", forward(f"return {TORCH}")),
    "a kernel whose result is dropped": ("host-result", forward("run(self.linear, x[:1])", f"return {TORCH}")),
    "PyTorch in half precision, then a copy": (
        "library",
        forward("x = torch.sum(torch.sigmoid(nn.functional.linear(x, self.linear.weight, self.linear.bias)), 1, keepdim=True)",
                "return copied(x)",
                more="""
@triton.jit
def copy(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

def copied(x):
    out = torch.empty_like(x)
    copy[(1,)](x, out, x.numel(), B=64)
    return out
"""),
    ),
    "memory that nobody wrote": ("unwritten", forward("return torch.empty((x.shape[0], 1), device=x.device)")),
    "zeros": ("wrong", forward("return run(self.linear, x).zero_()")),
    "a result kept by address": (
        "cached",
        forward("self.kept = getattr(self, 'kept', {})", "key = x.data_ptr(), x.shape",
                "self.kept[key] = self.kept[key] if key in self.kept else run(self.linear, x)", "return self.kept[key]"),
    ),
    "inputs set to zero": ("inputs-changed", forward("x.zero_()", "return run(self.linear, x)")),
    "numpy": (
        "host-work",
        forward("w, b = (one.detach().cpu().numpy() for one in (self.linear.weight, self.linear.bias))",
                "h = x.cpu().numpy() @ w.T + b", "return torch.from_numpy((1 / (1 + np.exp(-h))).sum(1, keepdims=True)).cuda()"),
    ),
    "another thread, later": (
        "unwritten",
        forward("out = torch.empty((x.shape[0], 1), device=x.device)",
                "later = lambda: (time.sleep(1), out.copy_(run(self.linear, x)))",
                "threading.Thread(target=later, daemon=True).start()", "return out"),
    ),
    "a lazy tensor": (
        "form", forward("return run(self.linear, x).as_subclass(Lazy)", more="class Lazy(torch.Tensor):\n    pass\n")
    ),
    "half a result": ("form", forward("return run(self.linear, x[::2])")),
    "comparison replaced": ("patched", GOOD + "torch.allclose = lambda *given, **more: True\n"),
    "clock replaced": ("patched", GOOD + "torch.cuda.Event.elapsed_time = lambda *given: 1e-3\n"),
    "the judge's own function replaced": (
        "patched", GOOD + "import simgpu.triton.session as s\ns.Session._report = lambda *given: None\n"
    ),
    "an exit with status 0": ("ended", GOOD + "import os\nos._exit(0)\n"),
    "a hang": ("ended", GOOD + "while True:\n    pass\n"),
    "memory without end": ("fails", GOOD + "held = [np.ones(1 << 27) for _ in range(1 << 20)]\n"),
    "an error": ("fails", GOOD + "1 / 0\n"),
    "no module": ("fails", "import torch\n"),
    "out of bounds": ("finding", GOOD.replace("mask=(n[:, None] < N)", "mask=(n[:, None] < N + 1)")),
}  # fmt: skip
QUICK = ("f16",)  # of the cases that take seconds each; the others run in the exhaustive run


def judged(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict]:
    Path("new.py").write_text(text)
    Path("ref.py").write_text(REFERENCE)
    status = main(["judge", "new.py", "--reference", "ref.py", "--json", *more])
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_honest_candidate_is_accepted_at_drawn_sizes_too(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = judged(GOOD, capsys, "--shapes", "drawn", "--cases", "2", "--strict")
    assert (status, said["verdict"], said["reasons"], said["findings"]) == (0, "accepted", [], [])
    assert all(trial["right"] and trial["launches"] == 1 for trial in said["trials"]) and said["library"] == {}
    assert len({tuple(trial["sizes"].values()) for trial in said["trials"]}) == 3
    assert said["time"]["candidate"] > said["time"]["least"] and said["time"]["speedup"] > 0.1


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.exhaustive) for name in CHEATS]
)
def test_each_way_to_cheat_is_rejected(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind, text = CHEATS[name]
    status, said = judged(text, capsys, "--timeout", "90" if name == "a hang" else "300", "--memory", "12")
    assert status == 1 and kind in {one["kind"] for one in said["reasons"] if one["severity"] == "reject"}, said["reasons"]


def test_replaced_functions_are_named_and_untouched_ones_are_not() -> None:
    whole = Integrity()
    assert whole.changes() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter", lambda: 0.0)
        patch.delattr("torch.nn.functional.linear")
        patch.setattr(torch.nn.ReLU, "__call__", print)  # a method of its base class
        assert whole.changes() == ["time.perf_counter", "torch.nn.ReLU.__call__", "torch.nn.functional.linear"]


def test_operators_that_compute_are_counted_and_results_are_traced() -> None:
    x, w = torch.rand(8, 16), torch.rand(4, 16)
    with WatchOperators("mi300x") as watch:
        y = x @ w.t()
        z = torch.relu(y).contiguous().half()
        torch.zeros(3).fill_(1)
        empty = torch.empty(3)
    assert dict(watch.work.calls) == {"mm": 1, "relu": 1} and watch.work.flops == 2 * 8 * 16 * 4
    assert watch.work.other_bytes == 2 * 4 * 8 * 4 and watch.work.seconds > 2e-6 and bool(empty.isnan().all())
    with simgpu.triton.device("mi300x"), pretended_gpu():
        half = torch.rand(5, 64, device="cuda").half()
        watch = WatchOperators("mi300x")
        with watch.counting_products(), watch:
            torch.nn.functional.linear(half, half)
    assert dict(watch.work.calls) == {"mm": 1} and watch.work.flops == 2 * 5 * 5 * 64
    watch = WatchOperators("mi300x")
    watch.traced.add(address_of(y))
    with watch:
        following, other = torch.cat([y, y])[1:].half(), x + 1
    assert address_of(following) in watch.traced and address_of(other) not in watch.traced and z.shape == (8, 4)
