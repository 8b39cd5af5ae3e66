"""Kernels of Triton's tutorials (python/tutorials) at all their configurations, and at some more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from simgpu.tools.cases.same import Side
from simgpu.tools.validation.ring.groups import Group
from simgpu.tools.validation.ring.launches import Addresses, TritonLaunch
from simgpu.tools.validation.ring.reference import as_type, product, reference
from simgpu.tools.validation.ring.sources import kernels_of

Options = Mapping[str, Any]
M, N, K = 200, 264, 160  # no multiples of the tiles
ROWS, COLUMNS = 5, 781
HEAD, LENGTH, HEADS = 64, 256, 2
GROUPED = ((256, 128, 192), (128, 256, 128))  # m, n, k: multiples of the largest tile, which the kernel assumes
GROUPED_TILES = (
    (128, 128, 32, 84), (128, 128, 32, 128), (64, 64, 32, 84), (64, 64, 32, 128), (128, 128, 64, 148), (64, 128, 64, 3),
)  # fmt: skip
MASKED = ("tl.where(mask, 0, -1.0e6)", 'tl.where(mask, 0, float("-inf"))')  # a large number is no -inf in the ring


@dataclass(frozen=True)
class Tutorials:
    """Triton's tutorials in a folder. target: the simulated GPU; scratch: a folder for the text of their kernels.
    seed: of the numbers."""

    folder: Path
    target: str
    scratch: Path
    seed: int = 0

    def groups(self) -> Iterator[Group]:
        """Yields the kernels of all tutorials that have more than one configuration."""
        yield from self.softmax()
        yield from self.matmul()
        yield from self.dropout()
        yield from self.layer_norm()
        yield from self.attention()
        yield from self.grouped_gemm()
        yield from self.persistent()

    def softmax(self) -> Iterator[Group]:
        module = self._module("02-fused-softmax.py")
        x = self._random((ROWS, COLUMNS), np.float32)
        values = {"out": np.zeros_like(x), "x": x, "x_stride": COLUMNS, "out_stride": COLUMNS, "rows": ROWS, "columns": COLUMNS}
        yield self._group("02 softmax_kernel", module.softmax_kernel, lambda options: (2,), values, options_of(
            BLOCK_SIZE=(1024, 2048, 4096), num_stages=(1, 2, 4), num_warps=(1, 2, 8)))  # fmt: skip

    def matmul(self) -> Iterator[Group]:
        module = self._module("03-matrix-multiplication.py", helpers=("get_hip_autotune_config", "get_cuda_autotune_config"))
        configs = [*module.get_hip_autotune_config(), *module.get_cuda_autotune_config()]
        found = [{**config.all_kwargs(), "ACTIVATION": ""} for config in configs]
        yield self._product("03 matmul_kernel", module.matmul_kernel, found)
        active = [{**options, "ACTIVATION": "leaky_relu"} for options in found]
        yield self._group("03 matmul_kernel, leaky_relu", module.matmul_kernel, tiles, self._product_values(), active)

    def dropout(self) -> Iterator[Group]:
        module = self._module("04-low-memory-dropout.py")
        x = self._random((COLUMNS,), np.float32)
        out = np.ones_like(x)
        blocks = options_of(BLOCK_SIZE=(64, 128, 256, 1024), num_warps=(1, 4))

        def grid(options: Options) -> tuple[int, ...]:
            return (-(-COLUMNS // options["BLOCK_SIZE"]),)

        kept = np.random.default_rng(1).integers(0, 2, COLUMNS, np.int32)
        masked = {"x": x, "keep": kept, "out": out, "n": COLUMNS, "p": 0.5}
        yield self._group("04 _dropout", module._dropout, grid, masked, blocks)
        seeded = {"x": x, "out": out, "n": COLUMNS, "p": 0.5, "seed": 123}
        yield self._group("04 _seeded_dropout", module._seeded_dropout, grid, seeded, blocks)

    def layer_norm(self) -> Iterator[Group]:
        module = self._module("05-layer-norm.py")
        x, dy = (self._random((ROWS, COLUMNS), np.float16, seed) for seed in (0, 1))
        w, b = (self._random((COLUMNS,), np.float16, seed) for seed in (2, 3))
        mean, rstd = (self._random((ROWS,), np.float32, seed) for seed in (4, 5))
        values = {"x": x, "y": np.zeros_like(x), "w": w, "b": b, "mean": np.zeros_like(mean), "rstd": np.zeros_like(rstd)}
        yield self._group(
            "05 _layer_norm_fwd_fused", module._layer_norm_fwd_fused, lambda options: (ROWS,),
            {**values, "stride": COLUMNS, "n": COLUMNS, "eps": 1e-5}, options_of(BLOCK_SIZE=(128, 256, 1024), num_warps=(1, 4, 8)),
        )  # fmt: skip
        groups, rows = 1, 64
        values = {
            "dx": np.zeros_like(x), "dy": dy, "dw": np.zeros((groups, COLUMNS), np.float16),
            "db": np.zeros((groups, COLUMNS), np.float16), "x": x, "w": w, "mean": mean, "rstd": rstd,
            "lock": np.zeros(2 * groups, np.int32),
        }  # fmt: skip
        yield self._group(
            "05 _layer_norm_bwd_dx_fused", module._layer_norm_bwd_dx_fused, lambda options: (ROWS,),
            {**values, "stride": COLUMNS, "n": COLUMNS}, options_of(GROUP_SIZE_M=(groups,), BLOCK_SIZE_N=(1024, 2048),
                                                                  num_warps=(1, 4, 8)),
        )  # fmt: skip
        partial = [self._random((rows, COLUMNS), np.float16, seed) for seed in (6, 7)]
        sums = np.zeros(COLUMNS, np.float32)
        values = {"dw": partial[0], "db": partial[1], "sum_dw": sums, "sum_db": sums}
        yield self._group(
            "05 _layer_norm_bwd_dwdb", module._layer_norm_bwd_dwdb, lambda options: (-(-COLUMNS // options["BLOCK_SIZE_N"]),),
            {**values, "m": rows, "n": COLUMNS}, options_of(BLOCK_SIZE_M=(16, 32, 64), BLOCK_SIZE_N=(64, 128), num_warps=(1, 4)),
        )  # fmt: skip

    def attention(self) -> Iterator[Group]:
        name = "06-fused-attention.py"
        blocks = options_of(BLOCK_M=(64, 128), BLOCK_N=(32, 64), num_warps=(4, 8), num_stages=(1, 2))
        for title, stage, module in (
            ("06 _attn_fwd", 1, self._module(name)),
            ("06 _attn_fwd, causal", 3, self._module(name)),
            ("06 _attn_fwd, causal, masked by -inf", 3, self._module(name, replaced=MASKED)),
        ):
            values = {"scale": 0.125, "sums": np.zeros((HEADS, LENGTH), np.float32), "z": 1, "h": HEADS}
            shape = HEADS * LENGTH, HEAD
            values |= {letter: self._random(shape, np.float16, seed) for seed, letter in enumerate("qkv")}
            values |= {"o": np.zeros(shape, np.float16), "length": LENGTH}
            fixed = {"HEAD_DIM": HEAD, "FP8_OUTPUT": False, "STAGE": stage, "warp_specialize": False, "IS_HOPPER": False}
            yield self._group(
                title, module._attn_fwd, lambda options: (LENGTH // options["BLOCK_M"], HEADS), values,
                [{**each, **fixed} for each in blocks],
            )  # fmt: skip
        yield from self._attention_backward(self._module(name))

    def _attention_backward(self, module: ModuleType) -> Iterator[Group]:
        shape = HEADS, LENGTH, HEAD
        values: dict[str, Any] = {letter: self._random(shape, np.float16, seed) for seed, letter in enumerate("qkv")}
        values |= {"scale": 0.125, "do": self._random(shape, np.float16, 4)}
        values |= {name: np.zeros(shape, np.float16) for name in ("dq", "dk", "dv")}
        values |= {name: self._random(shape[:2], np.float32, 5 + seed) for seed, name in enumerate(("m", "delta"))}
        strides = {"z": HEADS * LENGTH * HEAD, "h": LENGTH * HEAD, "token": HEAD, "d": 1}
        tiles = ((32, 128, 128, 32), (64, 128, 128, 64), (32, 64, 64, 32), (64, 64, 64, 64))
        for causal in (False, True):
            options = [
                {"BLOCK_M1": m1, "BLOCK_N1": n1, "BLOCK_M2": m2, "BLOCK_N2": n2, "BLK_SLICE_FACTOR": 2, "HEAD_DIM": HEAD,
                 "CAUSAL": causal, "num_warps": warps, "num_stages": stages}
                for (m1, n1, m2, n2), warps, stages in combinations(tiles, (4, 8), (1, 2))
            ]  # fmt: skip
            yield self._group(
                f"06 _attn_bwd{', causal' * causal}", module._attn_bwd, lambda options: (LENGTH // options["BLOCK_N1"], 1, HEADS),
                {**values, **strides, "heads": HEADS, "length": LENGTH}, options,
            )  # fmt: skip

    def grouped_gemm(self) -> Iterator[Group]:
        kernel = self._module("08-grouped-gemm.py").grouped_matmul_kernel
        arrays: dict[str, np.ndarray] = {}
        sums: dict[str, np.ndarray] = {}
        for at, (m, n, k) in enumerate(GROUPED):
            arrays |= {f"a{at}": self._random((m, k), np.float16, 2 * at), f"b{at}": self._random((k, n), np.float16, 2 * at + 1)}
            arrays[f"c{at}"] = np.zeros((m, n), np.float16)
            sums[f"c{at}"] = as_type(product(arrays[f"a{at}"], arrays[f"b{at}"]), np.dtype(np.float16))
        sizes = np.array(GROUPED, np.int32)
        leading = np.array([(k, n, n) for m, n, k in GROUPED], np.int32)
        values = {letter: Addresses([f"{letter}{at}" for at in range(len(GROUPED))]) for letter in "abc"}
        arguments = {**values, "sizes": sizes, "leading": leading, "groups": len(GROUPED)}
        names = "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "NUM_SM"
        variants = []
        for tile, warps in combinations(GROUPED_TILES, (4, 8)):
            options = {**dict(zip(names, tile, strict=True)), "num_warps": warps}
            launch = TritonLaunch(kernel, (tile[3],), arguments, options, arrays)
            variants.append(launch.variant(label_of(options), self.target))
        yield Group("08 grouped_matmul_kernel", variants, reference({**arrays, "sizes": sizes, "leading": leading}, sums))

    def persistent(self) -> Iterator[Group]:
        module = self._module("09-persistent-matmul.py", helpers=("matmul_get_configs",))
        shared = [config.all_kwargs() for config in module.matmul_get_configs()]
        shared += [{**each, "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32} for each in shared[:2]]
        yield self._product("09 matmul_kernel", module.matmul_kernel, shared)
        few = [{**options, "NUM_SMS": 3} for options in shared]
        yield self._product("09 matmul_kernel_persistent", module.matmul_kernel_persistent, few, 3)
        fixed = {"NUM_SMS": 3, "WARP_SPECIALIZE": False, "FLATTEN": True}
        cut = [{**options, **fixed, "EPILOGUE_SUBTILE": part} for options, part in combinations(shared, (False, True))]
        a, b = self._random((M, K), np.float16), self._random((N, K), np.float16, 1)
        values = {"a": a, "b": b, "c": np.zeros((M, N), np.float16)}
        title, kernel = "09 matmul_kernel_descriptor_persistent", module.matmul_kernel_descriptor_persistent
        sums = reference(values, {"c": as_type(product(a, b.T), np.dtype(np.float16))})
        yield self._group(title, kernel, lambda options: (3,), {**values, "M": M, "N": N, "K": K}, cut, sums)

    def _product(self, title: str, kernel: Any, options: Iterable[Options], workgroups: int = 0) -> Group:
        values = self._product_values()
        grid = (lambda options: (workgroups,)) if workgroups else tiles
        sums = as_type(product(values["a"], values["b"]), np.dtype(np.float16))
        arrays = {name: values[name] for name in "abc"}
        return self._group(title, kernel, grid, values, options, reference(arrays, {"c": sums}))

    def _group(
        self, title: str, kernel: Any, grid: Any, values: Mapping[str, Any], options: Iterable[Options], wanted: Side | None = None
    ) -> Group:
        launches = [(each, TritonLaunch(kernel, grid(each), values, each)) for each in options]
        return Group(title, [launch.variant(label_of(each), self.target) for each, launch in launches], wanted)

    def _product_values(self) -> dict[str, Any]:
        """Returns the arguments of a kernel that multiplies two f16 matrices of rows without gaps."""
        a, b = self._random((M, K), np.float16), self._random((K, N), np.float16, 1)
        arrays = {"a": a, "b": b, "c": np.zeros((M, N), np.float16)}
        return {**arrays, "M": M, "N": N, "K": K, "am": K, "ak": 1, "bk": N, "bn": 1, "cm": N, "cn": 1}

    def _random(self, shape: tuple[int, ...], dtype: Any, number: int = 0) -> np.ndarray:
        """Returns normally distributed numbers, others for each number."""
        return np.random.default_rng((self.seed, number)).standard_normal(shape).astype(dtype)

    def _module(self, name: str, **rest: Any) -> ModuleType:
        return kernels_of(self.folder / name, self.scratch, **rest)


def tiles(options: Options) -> tuple[int, ...]:
    """Returns a grid with a workgroup for each tile of the result."""
    return (-(-M // options["BLOCK_SIZE_M"]) * -(-N // options["BLOCK_SIZE_N"]),)


def options_of(**choices: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns all combinations of values.

    >>> options_of(a=(1, 2), b=(3,))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(choices, each, strict=True)) for each in combinations(*choices.values())]


def label_of(options: Options) -> str:
    """Names a configuration."""
    return " ".join(f"{name}={value}" for name, value in options.items() if value is not None)
