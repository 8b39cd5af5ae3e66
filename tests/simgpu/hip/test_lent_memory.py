"""HIP's kernels reach memory of another runtime of the program during a launch: PyTorch's tensors on the simulated GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kernels import KernelText, assemble
from tests.support.places import PYTHON_PATH

# Adds 1 to each of 64 floats, at the address that the first word of a table holds.
THROUGH_A_TABLE = KernelText(
    "k",
    """
    s_load_dwordx2 s[2:3], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    s_load_dwordx2 s[4:5], s[2:3], 0x0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
    v_add_f32 v2, 1.0, v2
    global_store_dword v1, v2, s[4:5]
    """,
    ("buffer", "i32"),
)
LAUNCH = """
import ctypes, sys
hip = ctypes.CDLL("libamdhip64.so")
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert not hip.hipModuleLoad(ctypes.byref(module), sys.argv[1].encode())
assert not hip.hipModuleGetFunction(ctypes.byref(function), module, b"k")
def launch(address, stream=None):
    words = ctypes.c_uint64(address), ctypes.c_int32(5)
    arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(word) for word in words))
    stream = ctypes.c_void_p(stream)
    return hip.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, None)
"""
NUMPY = LAUNCH + """
import numpy as np
data, table = np.arange(64, dtype=np.float32), np.zeros(1, np.uint64)
table[0] = data.ctypes.data
told = []
@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32)
def before(numbers, count):
    told.append([number == table.ctypes.data for number in numbers[:count]])
    for array in (data, table):
        assert not hip.simgpuRegisterNamed(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), b"array")
@ctypes.CFUNCTYPE(None)
def after():
    told.append(bool((data == np.arange(1, 65)).all()))
    for array in (data, table):
        assert not hip.hipHostUnregister(ctypes.c_void_p(array.ctypes.data))
hip.simgpuLendMemory(before, after)
print(launch(table.ctypes.data), told)
"""
TORCH = LAUNCH + """
import torch
data = torch.arange(64.0, device="cuda")
table = torch.tensor([data.data_ptr()], device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    status = launch(table.data_ptr(), torch.cuda.current_stream().cuda_stream)
print(status, bool((data == torch.arange(1.0, 65.0, device="cuda")).all()))
table = torch.tensor([data.data_ptr()])
print(launch(table.data_ptr()))
"""
SHORT = LAUNCH + """
import torch
data = torch.zeros(60, device="cuda")
table = torch.tensor([data.data_ptr()], device="cuda")
print(launch(table.data_ptr()))
"""


def run(script: str, tmp_path: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program with the code object of THROUGH_A_TABLE under `simgpu hip`."""
    code = tmp_path / "k.co"
    code.write_bytes(assemble("gfx942", THROUGH_A_TABLE))
    words = (sys.executable, "-m", "simgpu.tools.cli", "hip", *options, sys.executable, "-c", script, str(code))
    return subprocess.run(
        words, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": PYTHON_PATH, **more}
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_memory_is_lent_until_the_launch_is_over(options: tuple[str, ...], tmp_path: Path) -> None:
    """A pointer is named, a number is not. Results are there when `after` runs."""
    done = run(NUMPY, tmp_path, *options)
    assert (done.stdout, done.stderr) == ("0 [[True], True]\n", "")


def test_pytorch_s_tensors_are_lent(tmp_path: Path) -> None:
    """Tables of pointers name tensors, too. A tensor on the host is out of reach, as on a GPU."""
    pytest.importorskip("triton", reason="Triton is an optional extra")
    pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")
    done = run(TORCH, tmp_path, SIMGPU="mi300x")
    assert done.stdout == "0 True\n700\n", done.stdout + done.stderr
    assert "must be pinned, registered or managed" in done.stderr


def test_findings_name_the_tensors(tmp_path: Path) -> None:
    """Tensor 1 is the table. The kernel accesses 64 elements of the other."""
    pytest.importorskip("triton", reason="Triton is an optional extra")
    pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")
    done = run(SHORT, tmp_path, "--check", SIMGPU="mi300x")
    assert done.stdout == "700\n" and done.returncode == 1
    said = r"out-of-bounds: access to \S+, 0 bytes past the end of tensor 2 \(60 torch.float32\)"
    assert re.search(said, done.stderr), done.stderr
