"""simgpu.triton's host side: driver, sessions, reports, host calls; skipped without Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.places import PYTHON_PATH, ROOT

pytest.importorskip("triton", reason="Triton is an optional extra")

import triton

import simgpu.triton
from tests.support import triton_kernels as kernels


def line_with(text: str) -> int:
    """Returns the number of the kernels' file's first line that holds a text."""
    return next(number for number, row in enumerate(Path(kernels.__file__).read_text().splitlines(), 1) if text in row)


def test_device_properties_are_hip_s() -> None:
    """An MI300X has 2,048 work-items a CU (ISA manual: 8 waves on each of 4 SIMDs), and more registers than a wave has lanes."""
    with simgpu.triton.device("mi300x"):
        found = triton.runtime.driver.active.utils.get_device_properties(0)
    assert found["max_threads_per_sm"] == 2048 and found["max_num_regs"] == 65536 and found["multiprocessor_count"] == 304
    assert found["cooperativeLaunch"] == 1


@pytest.mark.parametrize(("extent", "error"), [(4 / 2, TypeError), (1 << 31, OverflowError)])
def test_extents_of_a_grid_are_c_s_integers(extent: Any, error: type[Exception]) -> None:
    """Triton's launcher reads them by PyArg_ParseTuple's "i", which refuses a float: `n / BLOCK` instead of `n // BLOCK`."""
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with simgpu.triton.device("mi300x"):
        with pytest.raises(error):
            kernels.vector_add[(extent,)](x, x, out, 8, BLOCK=16)
        kernels.vector_add[(np.int64(1),)](x, x, out, 8, BLOCK=16)
    assert (out == 2).all()


def test_a_cooperative_grid_has_room_on_the_gpu() -> None:
    """A CU of an MI300X has 32 waves, so eight workgroups of four: 2,432 on 304 CUs."""
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with simgpu.triton.device("mi300x"):
        with pytest.raises(simgpu.LaunchError, match="cooperative launch of 2433 workgroups; 2432 reside at once"):
            kernels.vector_add[(2433,)](x, x, out, 8, BLOCK=16, launch_cooperative_grid=True)
        kernels.vector_add[(2432,)](x, x, out, 8, BLOCK=16, launch_cooperative_grid=True)
    assert (out == 2).all()


@pytest.mark.parametrize(("target", "gigabytes"), [("mi100", 1228.8), ("mi210", 1638.4), ("mi300x", 5324.8), ("mi355x", 8000)])
def test_triton_tells_the_bandwidth_of_the_data_sheet(target: str, gigabytes: float) -> None:
    with simgpu.triton.device(target):
        assert triton.testing.get_dram_gbps() == triton.testing.get_dram_gbps(0) == pytest.approx(gigabytes, rel=1e-5)


def test_compiled_kernels_are_kept_by_device_and_target() -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    function, before = kernels.vector_add, kernels.vector_add.device_caches
    for target in ("mi210", "mi300x", "mi210"):
        with simgpu.triton.device(target):
            kept = function.device_caches[triton.runtime.driver.active.get_current_device()][0]
            kept.clear()
            for _ in range(2):
                kernel = function[(1,)](x, x, out, 8, BLOCK=16)
            assert list(kept.values()) == [kernel]
            assert kernel.metadata.target.arch == {"mi210": "gfx90a", "mi300x": "gfx942"}[target]
    assert function.device_caches is before


@pytest.mark.slow
def test_a_kernel_that_outlives_its_session_dies_in_silence() -> None:
    """Such a kernel has no driver that could unload it; Python would print the error of a destructor."""
    text = """if True:
        import numpy as np, simgpu.triton
        from tests.support import triton_kernels as kernels
        x = np.ones(8, np.float32)
        with simgpu.triton.device("mi300x"):
            kernel = kernels.vector_add[(1,)](x, x, x.copy(), 8, BLOCK=16)
        kernels.vector_add.__dict__.clear()
        del kernel
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], env={**os.environ, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True
    )
    assert done.stdout == "done\n" and not done.stderr


def test_the_driver_s_default_is_the_session_s() -> None:
    with simgpu.triton.device("mi210") as session:
        triton.runtime.driver.reset_active()
        assert triton.runtime.driver.active.session is session


@pytest.mark.slow
def test_a_driver_module_that_is_loaded_anew_finds_the_session() -> None:
    """A process of its own runs it, since the module stays another one."""
    text = """if True:
        import importlib, sys
        import numpy as np, triton, simgpu.triton
        from simgpu.triton.driver import active_driver
        from tests.support import triton_kernels as kernels
        before = dict(triton.backends.backends)
        with simgpu.triton.device("mi210") as session:
            importlib.reload(sys.modules["triton.runtime.driver"])
            importlib.reload(sys.modules["triton.runtime"])
            assert triton.runtime.driver._active is None
            assert triton.runtime.driver.active.session is session
        assert triton.backends.backends == before
        x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
        with simgpu.triton.device("mi300x") as session:
            assert triton.runtime.driver.active is active_driver() and active_driver().session is session
            kernels.vector_add[(1,)](x, x, out, 8, BLOCK=16)
            assert session.launches == 1
        print(out.sum())
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], env={**os.environ, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True
    )
    assert done.stdout == "16.0\n", done.stderr


@pytest.mark.slow
def test_pytorch_is_imported_by_those_alone_who_use_it(tmp_path: Path) -> None:
    """Triton would import it for a kernel's first argument; after an import by others, it asks again if arguments are its
    tensors."""
    (tmp_path / "torch.py").write_text("class Tensor: ...")
    text = """if True:
        import sys
        import numpy as np, simgpu.triton
        from triton.backends.amd.compiler import HIPBackend
        from tests.support import triton_kernels as kernels
        x, out, before = np.ones(8, np.float32), np.zeros(8, np.float32), HIPBackend._torch_available
        with simgpu.triton.device("mi300x"):
            kernels.vector_add[(1,)](x, x, out, 8, BLOCK=16)
            assert "torch" not in sys.modules
            import torch
            kernels.vector_add[(1,)](out, x, out, 8, BLOCK=16)
            assert HIPBackend._torch_available
        assert HIPBackend._torch_available is before
        print(out.sum())
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "24.0\n", done.stderr


def test_a_caller_that_binds_arguments_may_leave_out_constants_at_the_end() -> None:
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    with simgpu.triton.device("mi300x"):
        compiled = kernels.vector_add.warmup(x, x, out, 32, BLOCK=32, grid=(1,))
        compiled[(1, 1, 1)](x, x, out, 32)
        with pytest.raises(simgpu.LaunchError, match="takes 5 arguments, 3 were given"):
            compiled[(1, 1, 1)](x, x, out)
    assert np.array_equal(out, 2 * x)


def test_a_nan_is_told_with_its_lines_and_where_it_went() -> None:
    x, y, out = (np.ones((10, 100), np.float32) for _ in range(3))
    x[7, 77] = y[7, 77] = 0
    with simgpu.triton.device("mi300x", check="numerics"), pytest.raises(simgpu.triton.KernelFinding) as caught:
        kernels.ratio[(8,)](x, y, out, 1000, BLOCK=128)
    divided = line_with("quotient =")
    assert f"triton_kernels.py:{divided + 1}), into out[7, 77]" in str(caught.value), caught.value
    assert f"(triton_kernels.py:{divided})" in str(caught.value), caught.value


def test_nothing_runs_on_an_empty_grid() -> None:
    with simgpu.triton.device("mi300x"):
        kernels.vector_add[(0,)](*(np.zeros(0, np.float32) for _ in range(3)), 0, BLOCK=128)


@pytest.mark.parametrize("n", [128, 130])
def test_heuristics(n: int) -> None:
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.heuristic_double[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    assert np.array_equal(out, 2 * x)


def test_sessions_nest_and_end() -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    before = triton.runtime.driver._active
    with simgpu.triton.device("mi210") as outer:
        with simgpu.triton.device("mi300x"):
            assert triton.runtime.driver.active.get_current_target().arch == "gfx942"
            kernels.vector_add[(1,)](x, x, out, 8, BLOCK=16)
        assert triton.runtime.driver.active.session is outer
        kernels.vector_add[(1,)](x, out, out, 8, BLOCK=16)
    assert triton.runtime.driver._active is before
    assert np.array_equal(out, [3] * 8)


def test_report_adds_up() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    with simgpu.triton.device("mi300x", check="performance"):
        compiled = kernels.matmul[(2,)](a, b, c, 64, 64, 64, 64, 1, 64, 1, 64, 1, BM=32, BN=64, BK=32, GROUP=1)
    found = simgpu.triton.report(kernels.matmul)
    assert found == simgpu.triton.report(compiled)
    assert (found.target, found.grid, found.warps) == ("gfx942", (2, 1, 1), 4)
    counters = found.counters
    assert sum(row.instructions for row in found.lines) == counters["instructions"]
    assert sum(row.matrix for row in found.lines) == sum(found.matrix.values()) == counters["instructions_mfma"] > 0
    assert sum(row.write_bytes for row in found.lines) == counters["global_write_bytes"]
    assert counters["unique_write_bytes"] == c.nbytes
    assert found.bank_conflicts == sum(row.bank_conflicts or 0 for row in found.lines)
    assert found.lds_bytes == compiled.metadata.shared
    (dot,) = (row for row in found.lines if row.matrix)
    number = line_with("tl.dot(a_tile")
    assert dot.source == f"triton_kernels.py:{number}"
    assert dot.source in str(found) and next(iter(found.matrix)) in str(found)


def test_report_of_what_was_not_launched() -> None:
    with pytest.raises(simgpu.LaunchError, match="was not launched"):
        simgpu.triton.report(kernels.descriptor_copy)


def test_device_assert() -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.checked_load[(1,)](x, out, 100.0, BLOCK=64, debug=True)
        assert np.array_equal(out, x)
        number = line_with("tl.device_assert(")
        said = rf"at triton_kernels\.py:{number}: the kernel trapped .*\n.*failed: 'a value past the limit'.*py:{number}"
        with pytest.raises(RuntimeError, match=said) as raised:  # as programs catch it that also run on a GPU
            kernels.checked_load[(1,)](x, out, 10.0, BLOCK=64, debug=True)
        assert isinstance(raised.value, simgpu.KernelTrap)


@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_device_print(target: str, capsys: Any) -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    with simgpu.triton.device(target, check=True):
        kernels.talkative[(2,)](x, BLOCK=32, num_warps=1)
    # If a program has more threads than elements, two lanes hold an element, and each prints.
    printed = capsys.readouterr().out.splitlines()
    wanted = [f"pid ({at // 32}, 0, 0) idx ({at % 32:2}) value: {value:.6f}" for at, value in enumerate(x)]
    assert sorted(set(printed)) == sorted(wanted)
    assert [line for line in printed if "pid (0" in line] == printed[: len(printed) // 2]


@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_tensor_descriptors(target: str) -> None:
    x, out = np.arange(20 * 24, dtype=np.float32).reshape(20, 24), np.zeros((20, 24), np.float32)
    with simgpu.triton.device(target, check=True):
        kernels.descriptor_copy[(3, 2)](x, out, 20, 24, BM=8, BN=16)
    assert np.array_equal(out, x)
