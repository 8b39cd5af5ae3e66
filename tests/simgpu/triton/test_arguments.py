"""Arguments of Triton kernels on the simulated device: views, pointers, types, indices; skipped without Triton."""

from __future__ import annotations

import mmap
import re
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is an optional extra")

import triton

import simgpu.triton
from simgpu.triton.tensors import HostSpan, element_at, merge_spans, outside_of, pointees
from tests.support import triton_kernels as kernels


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
    """`triton.reinterpret` wraps a tensor to read its bytes as another type; the wrapper may be wrapped again."""
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


class OnHost(Tensor):
    """A tensor off the pretended GPU; an empty one's pointer is null, as in PyTorch."""

    simgpu_place = "host"

    def data_ptr(self) -> int:
        return self.array.ctypes.data if self.array.size else 0


def test_an_empty_tensor_on_the_host_is_a_null_pointer() -> None:
    """A GPU does so: Triton asks the driver only about pointers that are not null; SageAttention passes `torch.empty([0])`."""
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with simgpu.triton.device("mi300x", check=True):
        with pytest.raises(ValueError, match="cpu tensor"):
            kernels.vector_add[(1,)](OnHost(x), x, out, 64, BLOCK=64)
        kernels.vector_add[(1,)](OnHost(np.empty(0, np.float32)), x, out, 0, BLOCK=64)
    assert not out.any()


class Stored(Tensor):
    """A tensor that knows the storage that it views, as PyTorch's do."""

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
    """FlagGems' gather does so; the storage has an end."""
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
    """They exchange the dword around it; no argument holds its other half."""
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype, dtype)
    x, total = np.ones(64, kind), np.zeros(2, kind)
    with simgpu.triton.device("mi300x", check=check, guard="view"):
        kernels.add_halves[(1,)](x, total[first : first + 1], BLOCK=64)
    assert total[first] == 64 and total[1 - first] == 0


def test_tensors_behind_a_table_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's tutorial on grouped GEMM, unchanged: kernels get only the addresses of PyTorch's live tensors."""

    class Living(Stored):
        """A class of this test's own: leftovers of other tests in the garbage collector are none of its tensors."""

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
    """Triton's tutorial on grouped GEMM passes an int64 tensor of `data_ptr()`s."""
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


@pytest.mark.parametrize("apart", [1 << 12, 1 << 24])
def test_a_pointer_to_what_was_never_passed_says_what_to_do(apart: int) -> None:
    memory = mmap.mmap(-1, apart + 4096)  # in which an address near `out` was never passed
    out = np.frombuffer(memory, np.float32, 32).reshape(1, 32)
    table = np.array([out.ctypes.data + apart], np.int64)
    with simgpu.triton.device("mi300x"), pytest.raises(simgpu.MemoryFault, match=r"session\.register\(tensor\)"):
        kernels.copy_by_table[(1,)](table, out, out, out, out, BLOCK=32)


def test_tensors_of_tracers_which_have_no_memory_are_passed_over() -> None:
    torch = pytest.importorskip("torch")
    traced = torch._to_functional_tensor(torch.ones(4))
    row, out = torch.arange(32, dtype=torch.float32), np.zeros((1, 32), np.float32)

    def mapped(batched: Any) -> Any:  # a tensor of `vmap` is alive, too
        kernels.copy_by_table[(1,)](np.array([row.data_ptr()], np.int64), out, out, out, out, BLOCK=32)
        return batched

    with simgpu.triton.device("mi300x"):
        torch.vmap(mapped)(torch.ones(2, 4))
    assert traced.device.type == "cpu" and np.array_equal(out[0], row.numpy())


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
    spans = [HostSpan(at, at, at + 10, at != 5, f"{at}") for at in (0, 5, 15, 40)]
    found = merge_spans(spans)
    assert [(span.start, span.stop, span.writable) for span in found] == [(0, 25, True), (40, 50, True)]
    read_only = [HostSpan(at, at, at + 8, False, "x") for at in (0, 4, 16)]
    assert [(span.start, span.stop, span.writable) for span in merge_spans(read_only)] == [(0, 12, False), (16, 24, False)]


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


def test_tensors_are_looked_for_only_if_a_kernel_may_follow_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    sought: list[Any] = []
    monkeypatch.setattr("simgpu.triton.session.pointees", lambda *given: sought.append(given) or [])
    rows = [np.arange(32, dtype=np.float32) + n for n in range(3)]
    table, out = np.array([row.ctypes.data for row in rows], np.int64), np.zeros((3, 32), np.float32)
    with simgpu.triton.device("mi300x"):
        kernels.vector_add[(1,)](table, table, np.zeros(3, np.int64), 3, BLOCK=64)
        assert not sought
        kernels.copy_by_table[(3,)](table, out, *rows, BLOCK=32)
    assert len(sought) == 1 and np.array_equal(out, rows)


def test_integers_are_narrowed_as_by_triton_s_launcher() -> None:
    """Programs pass a seed of 64 bits for a parameter of 32; more than 64 bits are refused, as Python does on a GPU."""
    out, seed = np.zeros(1, np.int32), (5 << 40) + 7
    with simgpu.triton.device("mi300x"):
        with pytest.warns(UserWarning, match=r"seed \(i32\) got \d+, which does not fit 32 bits: the kernel gets its lowest"):
            kernels.store_seed[(1,)](out, seed)
        assert out[0] == 7
        with pytest.raises(simgpu.LaunchError, match="does not fit 32 bits"):
            kernels.store_seed[(1,)](out, 1 << 63)


def test_a_float_beyond_f32_is_infinite_in_silence() -> None:
    """Triton's launcher converts as C does."""
    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with simgpu.triton.device("mi300x"):
            kernels.affine[(1,)]((x, 1.0), 1e300, 0.0, out, BLOCK=16)
    assert np.isinf(out).all()
