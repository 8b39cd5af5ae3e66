"""Arrays as arguments of a launch: uploaded before it, and afterwards they hold what the kernel wrote."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.hardware.code_object.demangled import parameter_types

SOURCE = """
#include <hip/hip_runtime.h>
__global__ void scale(const float *x, float *y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
__global__ void cheat(const float *x) { const_cast<float *>(x)[threadIdx.x] = 7; }
extern "C" __global__ void count(int *x) { x[threadIdx.x] += 1; }
__global__ void fault(float *x, float *far) { x[threadIdx.x] = 1; __syncthreads(); far[70] = 1; }
template <typename T, int N> __global__ void fill(T *x, T value) { if (threadIdx.x < N) x[threadIdx.x] = value; }
template __global__ void fill<double, 8>(double *, double);
"""


@pytest.fixture(scope="module")
def kernels() -> simgpu.Module:
    return simgpu.load(SOURCE, "mi300x", check=True)


def scale(kernels: simgpu.Module, *args: object) -> simgpu.Run:
    return kernels["scale"].launch(grid=2, block=64, args=args)


def test_an_array_holds_what_the_kernel_wrote(kernels: simgpu.Module) -> None:
    x, y = np.arange(100, dtype="f4"), np.zeros(100, "f4")
    held = len(kernels.device.memory.allocations)
    run = scale(kernels, x, y, 3.0, 100)
    assert run.findings == [] and (y == 3 * x).all()
    assert len(kernels.device.memory.allocations) == held, "the uploads are freed"
    assert run.time().seconds > 0 and (y == 3 * x).all(), "time leaves arrays as they are"


def test_strides_are_kept(kernels: simgpu.Module) -> None:
    """Passes arrays of other orders; the kernel sees C order."""
    x, whole = np.arange(100, dtype="f4").reshape(20, 5), np.full((20, 10), -1, "f4")
    scale(kernels, x.T, whole[::-1, ::2], 1.0, 100)
    assert (whole[::-1, ::2].ravel() == x.T.ravel()).all() and (whole[:, 1::2] == -1).all()


def test_an_array_that_is_passed_twice_is_one_buffer(kernels: simgpu.Module) -> None:
    x = np.arange(64, dtype="f4")
    scale(kernels, x, x[:], 2.0, 64)
    assert (x == 2 * np.arange(64)).all()


def test_a_const_array_is_not_copied_back(kernels: simgpu.Module) -> None:
    x = np.ones(64, "f4")
    kernels["cheat"].launch(grid=1, block=64, args=[x])
    assert (x == 1).all()
    x.flags.writeable = False
    scale(kernels, x, np.zeros(64, "f4"), 1.0, 64)


def test_a_kernel_of_c_has_no_types(kernels: simgpu.Module) -> None:
    x = np.arange(64, dtype="u4")
    kernels["count"].launch(grid=1, block=64, args=[x])
    assert (x == np.arange(64) + 1).all()
    x.flags.writeable = False
    with pytest.raises(simgpu.LaunchError, match="argument x: the kernel wrote to it, and the array is read-only"):
        kernels["count"].launch(grid=1, block=64, args=[x])


def test_a_launch_that_fails_leaves_what_was_written(kernels: simgpu.Module) -> None:
    x, held = np.zeros(64, "f4"), len(kernels.device.memory.allocations)
    with pytest.raises(simgpu.MemoryFault, match="argument far"):
        kernels["fault"].launch(grid=1, block=64, args=[x, np.zeros(64, "f4")])
    assert (x == 1).all() and len(kernels.device.memory.allocations) == held


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (lambda x, y: [x.astype("f8"), y, 1.0, 64], "argument x is float const*, and the array's elements are float64"),
        (lambda x, y: [x.view("i4"), y, 1.0, 64], "elements are int32"),
        (lambda x, y: [x, y, x, 64], "argument a is float, not a pointer: pass a number"),
        (lambda x, y: [x, x[32:], 1.0, 32], "argument y and x share memory"),
        (lambda x, y: [x[:32], y, 1.0, 64, x], "takes 4 arguments, got an array as number 5"),
        (lambda x, y: [[1.0, 2.0], y, 1.0, 64], "got list: pass a buffer"),
    ],
)
def test_what_cannot_be_meant_is_refused(kernels: simgpu.Module, args, said: str) -> None:  # type: ignore[no-untyped-def]
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    held = len(kernels.device.memory.allocations)
    with pytest.raises(simgpu.LaunchError) as error:
        scale(kernels, *args(x, y))
    assert said in str(error.value)
    assert len(kernels.device.memory.allocations) == held and (y == 0).all()


def test_tensors_of_pytorch(kernels: simgpu.Module) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(100, dtype=torch.float32), torch.zeros(200, requires_grad=True)
    scale(kernels, x, y[::2], 3.0, 100)
    assert (y.detach()[::2] == 3 * x).all() and (y.detach()[1::2] == 0).all()
    bits = torch.zeros(64, dtype=torch.bfloat16)
    ones = "__global__ void ones(unsigned short *x) {\n  x[threadIdx.x] = 0x3f80;\n}"
    simgpu.load(ones, "mi300x")["ones"].launch(grid=1, block=64, args=[bits])
    assert (bits == 1).all()


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("_Z5scalePKfPffi", ("float const*", "float*", "float", "int")), ("_Z3nopv", ()), ("scale", ()),
        ("_Z4fillIdLi8EEvPT_S0_", ("double*", "double")),
        ("_ZN12_GLOBAL__N_14pairESt4pairIfiEPFvfiE", ("std::pair<float, int>", "void (*)(float, int)")),
    ],
)  # fmt: skip
def test_the_types_of_parameters(name: str, types: tuple[str, ...]) -> None:
    assert parameter_types(name) == types


def test_a_template_has_types(kernels: simgpu.Module) -> None:
    x = np.zeros(8)
    kernels["fill"].launch(grid=1, block=64, args=[x, 2.5])
    assert (x == 2.5).all()
    with pytest.raises(simgpu.LaunchError, match="elements are float32"):
        kernels["fill"].launch(grid=1, block=64, args=[x.astype("f4"), 2.5])
