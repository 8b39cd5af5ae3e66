"""simgpu.triton's host side: what arguments may be, tuning, timing, reports; skipped where Triton is not installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.places import ROOT

pytest.importorskip("triton", reason="Triton is an optional extra")

import triton
from triton.runtime.errors import OutOfResources

import simgpu.triton
from simgpu.triton.tensors import Span, element_at, merged, outside_of, pointees
from simgpu.triton.tuning import limited
from tests.support import triton_kernels as kernels


def line_with(text: str) -> int:
    """Number of the first line of the kernels' file that holds a text."""
    return next(number for number, row in enumerate(Path(kernels.__file__).read_text().splitlines(), 1) if text in row)


class Tensor:
    """A CPU tensor with PyTorch's interface, over a numpy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.device = array, array.shape, "cpu"
        self.dtype = f"torch.{array.dtype}"

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def element_size(self) -> int:
        return self.array.itemsize

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)


@pytest.mark.parametrize("view", ["plain", "transposed", "every second", "reversed", "broadcast"])
@pytest.mark.parametrize("wrap", [np.asarray, Tensor])
def test_views_are_read_in_place(view: str, wrap: Any) -> None:
    whole = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    given = {
        "plain": whole[3:19, 5:21],
        "transposed": whole.T[:16, :16],
        "every second": whole[::4, 1::3][:16, :16],
        "reversed": whole[::-1, ::-1][:16, :16],
        "broadcast": np.broadcast_to(whole[7, :16], (16, 16)),
    }[view]
    out = np.zeros((16, 16), np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.strided_copy[(1,)](wrap(given), wrap(out), *(s // 4 for s in given.strides), ROWS=16, COLS=16)
    assert np.array_equal(out, given)


def test_the_tensor_behind_another_type() -> None:
    """`triton.reinterpret` wraps a tensor, to have its bytes taken for another type; the wrapper may be wrapped in turn."""
    given, out = np.arange(64, dtype=np.int32), np.zeros(64, np.uint32)
    wrapped = []
    for array in (given, out):
        tensor = Tensor(array)
        tensor.data = array  # type: ignore[attr-defined]
        wrapped.append(triton.reinterpret(triton.reinterpret(tensor, triton.language.float32), triton.language.uint32))
    with simgpu.triton.device("mi300x", check=True):
        kernels.copy_past_the_end[(1,)](*wrapped, 64, BLOCK=64)
        with pytest.raises(simgpu.triton.KernelFinding, match="past the end of argument x"):
            kernels.copy_past_the_end[(1,)](wrapped[0], np.zeros(128, np.uint32), 128, BLOCK=128)
    assert np.array_equal(out, given)


def test_device_properties_are_hip_s() -> None:
    """Of an MI300X: 2,048 work-items a CU (ISA manual: 8 waves on each of 4 SIMDs), and more registers than a wave has lanes."""
    with simgpu.triton.device("mi300x"):
        found = triton.runtime.driver.active.utils.get_device_properties(0)
    assert found["max_threads_per_sm"] == 2048 and found["max_num_regs"] == 65536 and found["multiprocessor_count"] == 304


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


def test_a_kernel_that_outlives_its_session_dies_in_silence() -> None:
    """It has no driver to be unloaded by; Python would print the error of a destructor."""
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
        [sys.executable, "-W", "ignore", "-c", text], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout == "done\n" and not done.stderr


def test_the_driver_s_default_is_the_session_s() -> None:
    with simgpu.triton.device("mi210") as session:
        triton.runtime.driver.reset_active()
        assert triton.runtime.driver.active.session is session


def test_a_driver_module_that_is_loaded_anew_finds_the_session() -> None:
    """In a process of its own: the module stays another one."""
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
        [sys.executable, "-W", "ignore", "-c", text], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout == "16.0\n", done.stderr


class Stored(Tensor):
    """A tensor that knows the storage that it is a view of, as PyTorch's do."""

    def __init__(self, array: np.ndarray, storage: np.ndarray) -> None:
        super().__init__(array)
        self.storage = storage

    def untyped_storage(self) -> Any:
        storage = self.storage
        return SimpleNamespace(device="cpu", data_ptr=lambda: storage.ctypes.data, nbytes=lambda: storage.nbytes)


VIEWS = {
    "array": lambda whole: whole[:32],
    "array of strides": lambda whole: np.lib.stride_tricks.as_strided(whole[8:], (32,), (4,)),
    "tensor": lambda whole: Stored(whole[:32], whole),
}


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_kernel_may_walk_the_storage_of_a_view(view: str) -> None:
    """FlagGems' gather does; the storage has an end."""
    whole, out = np.arange(72, dtype=np.float32), np.zeros(64, np.float32)
    given = VIEWS[view](whole)
    with simgpu.triton.device("mi300x", check=True):
        kernels.copy_past_the_end[(1,)](given, out, 64, BLOCK=64)
        assert np.array_equal(out, whole[8:] if view == "array of strides" else whole[:64])
        with pytest.raises(simgpu.triton.KernelFinding, match=r"argument x .*a view"):
            kernels.copy_past_the_end[(1,)](given, np.zeros(128, np.float32), 128, BLOCK=128)


@pytest.mark.parametrize("view", list(VIEWS))
def test_a_view_is_guarded_by_its_own_end_on_request(view: str) -> None:
    whole, said = np.arange(72, dtype=np.float32), r"argument x \(32 (torch\.)?float32\)"
    with simgpu.triton.device("mi300x", guard="view"), pytest.raises(simgpu.MemoryFault, match=said):
        kernels.copy_past_the_end[(1,)](VIEWS[view](whole), np.zeros(64, np.float32), 64, BLOCK=64)


def test_guards_have_names() -> None:
    with pytest.raises(simgpu.LaunchError, match="storage, view"), simgpu.triton.device("mi300x", guard="tensor"):
        pass


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_atomics_on_one_half(dtype: str, check: bool, first: int) -> None:
    """They exchange the dword that holds it, whose other half no argument has."""
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype, dtype)
    x, total = np.ones(64, kind), np.zeros(2, kind)
    with simgpu.triton.device("mi300x", check=check, guard="view"):
        kernels.add_halves[(1,)](x, total[first : first + 1], BLOCK=64)
    assert total[first] == 64 and total[1 - first] == 0


def test_tensors_behind_a_table_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's tutorial on grouped GEMM, as it is: PyTorch's tensors that live, and whose addresses alone are passed."""

    class Living(Stored):
        """A class of this test's own: what other tests left for the garbage collector is none of its tensors."""

        layout = "strided"
        device = property(lambda self: SimpleNamespace(type="cpu"), lambda self, _: None)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Living, strided="strided"))
    arrays = [np.arange(32, dtype=np.float32) + 32 * n for n in range(3)]
    group = [Living(array, array) for array in arrays]
    out, table = np.zeros((3, 32), np.float32), np.array([held.data_ptr() for held in group], np.int64)
    named = [(name, x) for name, x in (("argument table", table), ("argument out", out))]
    assert sorted(held.data_ptr() for _, held in pointees(named)) == sorted(table)
    assert not pointees([*named, *(("argument", held) for held in group)])
    monkeypatch.delitem(sys.modules, "torch")
    assert not pointees(named)


@pytest.mark.parametrize("how", ["arguments", "registered", "views of one"])
@pytest.mark.parametrize("wrap", [np.asarray, Tensor])
def test_tables_of_pointers(how: str, wrap: Any) -> None:
    """As Triton's tutorial on grouped GEMM passes them: an int64 tensor of `data_ptr()`s."""
    whole = np.arange(96, dtype=np.float32)
    sources = [whole[:32], whole[32:64], whole[64:]]
    if how != "views of one":
        sources = [source.copy() for source in sources]
    out = np.zeros((3, 32), np.float32)
    table = np.array([source.ctypes.data for source in sources], np.int64)
    with simgpu.triton.device("mi300x", check=True) as session:
        if how == "registered":
            session.register(*map(wrap, sources))
            sources = [out] * 3
        kernels.copy_by_table[(3,)](wrap(table), wrap(out), *map(wrap, sources), BLOCK=32)
    assert np.array_equal(out, whole.reshape(3, 32))


def test_a_pointer_to_what_was_never_passed_says_what_to_do() -> None:
    unknown, out = np.arange(1 << 16, dtype=np.float32), np.zeros((1, 32), np.float32)
    table = np.array([unknown.ctypes.data], np.int64)
    with simgpu.triton.device("mi300x"), pytest.raises(simgpu.MemoryFault, match=r"session\.register\(tensor\)"):
        kernels.copy_by_table[(1,)](table, out, out, out, out, BLOCK=32)


def test_what_cannot_be_registered() -> None:
    tensor = Tensor(np.ones(64, np.float32))
    tensor.device = "cuda:0"
    with simgpu.triton.device("mi300x") as session:
        for wrong, words in ((tensor, "on cuda:0"), (7, "int was to be registered")):
            with pytest.raises(simgpu.LaunchError, match=words):
                session.register(wrong)


def test_one_tensor_in_two_arguments_is_one_memory() -> None:
    x = np.arange(300, dtype=np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.vector_add[(1,)](x[:256], x[40:], x[:256], 40, BLOCK=256)
    assert np.array_equal(x, [*(2 * i + 40 for i in range(40)), *range(40, 300)])


def test_waves_that_read_what_others_overwrite_race() -> None:
    x = np.arange(100, dtype=np.float32)
    with simgpu.triton.device("mi300x", check=True), pytest.raises(simgpu.triton.KernelFinding, match="race"):
        kernels.vector_add[(1,)](x, x[1:], x[:99], 99, BLOCK=128)


def test_spans_that_overlap_are_merged() -> None:
    spans = [Span(at, at, at + 10, at != 5, f"{at}") for at in (0, 5, 15, 40)]
    found = merged(spans)
    assert [(span.start, span.stop, span.writable) for span in found] == [(0, 25, True), (40, 50, True)]
    read_only = [Span(at, at, at + 8, False, "x") for at in (0, 4, 16)]
    assert [(span.start, span.stop, span.writable) for span in merged(read_only)] == [(0, 12, False), (16, 24, False)]


def test_read_only_arrays_are_read_only() -> None:
    out = np.zeros(64, np.float32)
    out.flags.writeable = False
    with simgpu.triton.device("mi300x"), pytest.raises(simgpu.MemoryFault, match="read-only"):
        kernels.copy_past_the_end[(1,)](np.ones(64, np.float32), out, 64, BLOCK=64)


def test_a_tensor_elsewhere_is_refused() -> None:
    tensor = Tensor(np.ones(64, np.float32))
    tensor.device = "cuda:0"
    with simgpu.triton.device("mi300x"), pytest.raises(simgpu.LaunchError, match="argument x is a tensor on cuda:0"):
        kernels.copy_past_the_end[(1,)](tensor, np.zeros(64, np.float32), 64, BLOCK=64)


@pytest.mark.parametrize("scale", [3, 2.5, np.float32(0.5), np.int32(7), True])
def test_tuples_and_scalars(scale: Any) -> None:
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.affine[(1,)]((x, 4), scale, -1, out, BLOCK=32)
    assert np.array_equal(out, (x + 4) * np.float32(scale) - 1)


def test_a_caller_that_binds_arguments_may_leave_out_constants_at_the_end() -> None:
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    with simgpu.triton.device("mi300x"):
        compiled = kernels.vector_add.warmup(x, x, out, 32, BLOCK=32, grid=(1,))
        compiled[(1, 1, 1)](x, x, out, 32)
        with pytest.raises(simgpu.LaunchError, match="takes 5 arguments, 3 were given"):
            compiled[(1, 1, 1)](x, x, out)
    assert np.array_equal(out, 2 * x)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float64", "bfloat16", "uint32"])
def test_dtypes(dtype: str) -> None:
    import ml_dtypes

    x = np.arange(50).astype(getattr(ml_dtypes, dtype, dtype))
    out = np.zeros_like(x)
    with simgpu.triton.device("gfx950", check=True):
        kernels.copy_past_the_end[(1,)](np.pad(x, (0, 14)), out, 50, BLOCK=64)
    assert np.array_equal(out, x)


@pytest.mark.parametrize("shape,axes", [((40,), (0,)), ((5, 9), (1, 0)), ((3, 4, 5), (2, 0, 1)), ((4, 1, 6), (0, 1, 2)), ((), ())])
def test_elements_are_named_by_their_index(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32).transpose(axes)[..., ::2] if shape else np.zeros((), np.float32)
    for index in np.ndindex(array.shape):
        address = array.ctypes.data + sum(at * stride for at, stride in zip(index, array.strides, strict=True))
        assert element_at("argument x", array, address) == f"x[{', '.join(map(str, index))}]"
        assert element_at("argument x", array, address + 3) == f"x[{', '.join(map(str, index))}], byte 3"
    assert element_at("x", array, array.ctypes.data - 4) == "" and element_at("x", np.zeros((0, 3)), address) == ""


@pytest.mark.parametrize("check", [False, True])
def test_an_access_outside_is_told_with_the_index_that_it_would_have(check: bool) -> None:
    x, y, out = (np.ones((20, 50), np.float32) for _ in range(3))
    with simgpu.triton.device("mi300x", check=check), pytest.raises(simgpu.SimError) as caught:
        kernels.vector_add[(8,)](x[:10], y, out, 1007, BLOCK=128)
    assert re.search(r"access to 0x[0-9a-f]+, which would be \w+\[20, 0\], 0 bytes past the end of argument", str(caught.value))


@pytest.mark.parametrize(
    ("cut", "offset", "told"),
    [
        ((), 96, "x[4, 0]"), ((), 103, "x[4, 1], byte 3"), ((), -4, "x[-1, 5]"), ((slice(None), 2), 8 + 96, "x[4]"),
        ((), 4, "x[0, 1]"),
    ],
)  # fmt: skip
def test_indices_outside_of_a_tensor(cut: tuple[Any, ...], offset: int, told: str) -> None:
    array = np.zeros((4, 6), np.float32)
    assert outside_of("argument x", array[cut], array.ctypes.data + offset) == told


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


def test_autotune_chooses_by_the_model_and_says_so() -> None:
    x, out = np.arange(3000, dtype=np.float32), np.zeros(3000, np.float32)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime, match="no GPU was timed"):
        kernels.tuned_double[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, out, 3000)
    assert np.array_equal(out, 2 * x)
    times = {config.kwargs["BLOCK"]: time[0] for config, time in kernels.tuned_double.configs_timings.items()}
    assert 0 < times[kernels.tuned_double.best_config.kwargs["BLOCK"]] == min(times.values())


def test_autotuning_tries_as_many_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.arange(700, dtype=np.float32), np.zeros(700, np.float32)
    monkeypatch.setenv("SIMGPU_AUTOTUNE", "1")
    with simgpu.triton.device("mi300x"):  # one candidate is not timed
        kernels.tuned_double[lambda meta: (triton.cdiv(700, meta["BLOCK"]),)](x, out, 700)
        assert np.array_equal(out, 2 * x) and kernels.tuned_double.best_config.kwargs["BLOCK"] == 16
        monkeypatch.setenv("SIMGPU_AUTOTUNE", "few")
        with pytest.raises(simgpu.LaunchError, match="SIMGPU_AUTOTUNE='few'"):
            kernels.tuned_double[lambda meta: (triton.cdiv(701, meta["BLOCK"]),)](x, out, 699)


def test_candidates_that_no_device_can_run_are_not_among_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler:  # of candidates by their bytes of LDS; None: refused
        def run(self, **given: Any) -> Any:
            if given["lds"] is None:
                raise OutOfResources(1, 0, "threads")
            return SimpleNamespace(metadata=SimpleNamespace(shared=given["lds"]))

    def first(count: str, *sizes: int | None) -> list[int | None]:
        monkeypatch.setenv("SIMGPU_AUTOTUNE", count)
        tuner = SimpleNamespace(nargs={}, fn=Compiler())
        configs = [triton.Config({"lds": size}) for size in sizes]
        return [config.kwargs["lds"] for config in limited(lambda _tuner, _kwargs: configs)(tuner, {})]

    with simgpu.triton.device("mi300x"):
        assert first("1", 98304, None, 65536, 1024) == [65536]
        assert first("2", 98304, 65537, 4096, 65536, 0) == [4096, 65536]
        assert first("1", 98304, None) == [98304]  # which is told when it is launched
    with simgpu.triton.device("mi355x"):
        assert first("1", 98304, 65536) == [98304]


def test_candidates_run_as_far_as_their_time_needs_it() -> None:
    x, grid = np.arange(90_000, dtype=np.float32), lambda meta: (triton.cdiv(90_000, meta["BLOCK"]),)
    executed = {}
    for check in (False, True):
        kernels.tuned_double.__dict__.pop("chosen_by_target", None)
        out = np.zeros_like(x)
        with simgpu.triton.device("mi300x", check=check) as session, pytest.warns(simgpu.triton.ModelledTime):
            kernels.tuned_double[grid](x, out, 90_000)
            tuned = session.used["tuned_double"].instructions
            kernels.tuned_double[grid](x, out, 90_000)
            executed[check] = tuned / (session.used["tuned_double"].instructions - tuned)
        assert np.array_equal(out, 2 * x)
    assert executed[False] == 1 < executed[True], "in checked mode each candidate is checked"


@pytest.mark.parametrize("how", ["whole", "sample", "some"])
def test_a_benchmark_s_launches_may_end_with_their_samples(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
    monkeypatch.setenv("SIMGPU_BENCH", how)
    with simgpu.triton.device("mi300x") as session:
        if how == "some":
            with pytest.raises(simgpu.LaunchError, match="SIMGPU_BENCH='some': give whole or sample"):
                triton.testing.do_bench(lambda: None)
            return
        with pytest.warns(simgpu.triton.ModelledTime):
            spent = triton.testing.do_bench(lambda: kernels.vector_add[(40,)](x, x, out, 5000, BLOCK=128))
        assert spent > 0 and session.launches == 1 and np.array_equal(out, 2 * x if how == "whole" else 0 * x)
        kernels.vector_add[(40,)](x, x, out, 5000, BLOCK=128)
    assert np.array_equal(out, 2 * x)


@pytest.mark.parametrize("how", ["whole", "sample"])
def test_in_a_sweep_of_shapes_nothing_runs_but_samples(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="Triton's tables are pandas'")
    pytest.importorskip("matplotlib", reason="and its figures matplotlib's")
    x, out, seen = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32), []
    monkeypatch.setenv("SIMGPU_BENCH", how)
    line = {"line_arg": "which", "line_vals": ["ours"], "line_names": ["Ours"], "plot_name": "times", "args": {}}

    def double(grid: int) -> None:
        kernels.vector_add[(grid,)](x, x, out, 5000, BLOCK=128)

    @triton.testing.perf_report(triton.testing.Benchmark(x_names=["grid"], x_vals=[20, 40], **line))
    def times(grid: int, which: str) -> float:
        double(grid)  # as a forward pass ahead of the backward one that is timed
        seen.append(bool(out.any()))
        return float(triton.testing.do_bench(lambda: double(grid)))

    with simgpu.triton.device("mi300x") as session:
        with pytest.warns(simgpu.triton.ModelledTime):
            table = times.run(return_df=True)
        assert session.launches == 4 and seen == [how == "whole"] * 2 and (table.iloc[:, -1] > 0).all()
        double(40)
    assert np.array_equal(out, 2 * x)


def test_what_tuning_changed_is_put_back() -> None:
    x, out, count = np.arange(3000, dtype=np.float32), np.zeros(3000, np.float32), np.zeros(1, np.float32)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        kernels.tuned_count[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, out, count=count, n=3000)
    assert np.array_equal(x, np.arange(1, 3001)) and np.array_equal(out, x) and count[0] == 3000


def test_each_target_is_tuned_for_itself() -> None:
    x, out = np.arange(500, dtype=np.float32), np.zeros(500, np.float32)
    for target in ("mi210", "mi355x"):
        with simgpu.triton.device(target), pytest.warns(simgpu.triton.ModelledTime):
            kernels.pruned_double[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, out, 500)
        assert np.array_equal(out, 2 * x)
        times = kernels.pruned_double.configs_timings
        assert [config.kwargs["BLOCK"] for config in times] == [64, 32]  # by the performance model
        assert all(time[0] > 0 for time in times.values()), "timed on the session in use"
        out[:] = 0


def test_triton_s_own_do_bench_is_refused_in_words() -> None:
    own = triton.testing.do_bench
    with simgpu.triton.device("mi300x"):
        assert triton.testing.do_bench is not own
        with pytest.raises(simgpu.LaunchError, match="was imported before simgpu"):
            own(lambda: None)


def test_do_bench_gives_the_time_of_what_was_launched() -> None:
    def add(n: int) -> Any:
        x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
        return lambda: kernels.vector_add[(triton.cdiv(n, 128),)](x, x, out, n, BLOCK=128)

    before = triton.testing.do_bench
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        small, large = (triton.testing.do_bench(add(n)) for n in (1 << 12, 1 << 16))
        quantiles = triton.testing.do_bench(add(1 << 12), quantiles=[0.2, 0.8])
    assert triton.testing.do_bench is before
    assert 0 < small < large
    assert quantiles == [small, small]


def test_a_benchmark_is_not_charged_for_what_it_tunes() -> None:
    x, out = np.arange(900, dtype=np.float32), np.zeros(900, np.float32)
    with simgpu.triton.device("mi300x"), pytest.warns(simgpu.triton.ModelledTime):
        run = lambda: kernels.tuned_double[lambda meta: (triton.cdiv(900, meta["BLOCK"]),)](x, out, 900)  # noqa: E731
        first, then = (triton.testing.do_bench(run) for _ in range(2))
        assert first == then > 0
        assert np.isnan(triton.testing.do_bench(lambda: x + 1)), "nothing was launched"


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


def test_the_page_s_bug_is_found_and_put_right(tmp_path: Path) -> None:
    root = ROOT
    page = (root / "docs" / "triton.md").read_text()
    (program,) = re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S)
    repaired = program.replace("tl.load(x + at)", "tl.load(x + at, mask=at < n)")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    runs = []
    for text in (program, repaired):
        (tmp_path / "demo.py").write_text(text)
        command = [sys.executable, "demo.py"]
        runs.append(subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True))
    assert "`buffer_load_dword v2, v1, s[8:11], 0 offen` (demo.py:11)" in runs[0].stderr and "lanes 40" in runs[0].stderr
    assert (runs[1].returncode, runs[1].stdout) == (0, "fine: True\n"), runs[1].stderr


def test_device_assert() -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        kernels.checked_load[(1,)](x, out, 100.0, BLOCK=64, debug=True)
        assert np.array_equal(out, x)
        number = line_with("tl.device_assert(")
        said = rf"at triton_kernels\.py:{number}: the kernel trapped .*\n.*failed: 'a value past the limit'.*py:{number}"
        with pytest.raises(simgpu.KernelTrap, match=said):
            kernels.checked_load[(1,)](x, out, 10.0, BLOCK=64, debug=True)


@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
def test_device_print(target: str, capsys: Any) -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    with simgpu.triton.device(target, check=True):
        kernels.talkative[(2,)](x, BLOCK=32, num_warps=1)
    # One element is held by two lanes where a program has more threads than elements: each prints.
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
