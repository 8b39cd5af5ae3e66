"""AITER's shipped matrix products, D (m, n) = A (m, k) B (n, k)^T, at all tile sizes and splits of k.

Arguments and grids: `simgpu.tools.validation.aiter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from simgpu import Device
from simgpu.hardware import target as find_target
from simgpu.hardware.dtypes import numpy_dtype, unpack
from simgpu.hardware.isa.ring.arrays import elements
from simgpu.tools.cases.same import Side, branches
from simgpu.tools.validation.aiter import FAMILIES, objects, tiles
from simgpu.tools.validation.ring.groups import Group, Variant
from simgpu.tools.validation.ring.reference import as_type, product, reference
from simgpu.tools.validation.shipped.case import ShippedCase, ordered_weight
from simgpu.tools.validation.shipped.gemm import GROUP, SCALES, ordered_scale

M, N, K = 100, 256, 1024  # m: no multiple of the tiles; n: a multiple of all
SPLITS = (2, 3, 4, 8)
BLOCK = 128  # rows of B, and elements along k, that have a scale
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ProductFamily:
    """Kernels of one folder. make: returns the arrays A, B and more, and the elements of D."""

    name: str
    result: str  # its argument
    make: Callable[[np.random.Generator, str], tuple[Arrays, np.ndarray]]
    k_step: int  # elements of k; a part of a split has a multiple
    cuts_tiles: bool = False  # n need not be a multiple of a tile
    always_split: bool = False  # kernels with splits are launched with 2 parts or more
    binary: bool = False  # splits are powers of two, whose logarithms the kernel takes

    def fits(self, tile: Mapping[str, int]) -> bool:
        """True if AITER's host code chooses the tile for N columns: asm_gemm_a4w4.cu leaves a tile of 128 x 512 out if they end
        inside it."""
        return N % tile["tilen"] == 0 or (self.cuts_tiles and (tile["tilem"], tile["tilen"]) != (128, 512))

    def splits(self, tile: Mapping[str, int]) -> list[int]:
        """Returns the splits that AITER's host code accepts for a kernel."""
        parts = [split for split in SPLITS if self._accepts(split)] if tile["splitk"] else []
        return parts if self.always_split and parts else [1, *parts]

    def _accepts(self, split: int) -> bool:
        steps = K // self.k_step
        part = -(-steps // split)  # steps
        return split == -(-steps // part) and steps // part >= split - 1 and (not self.binary or split & split - 1 == 0)


def groups(checkout: Path, target: str, seed: int) -> Iterator[Group]:
    """Yields the families that the target has, those with preshuffled B apart."""
    for family in (BF16, FP8, INT8, FP4):
        folder = checkout / "hsa" / find_target(target).arch / family.name
        names = objects(folder / "any")
        usable = {name: tile for name, tile in tiles(folder / "any").items() if family.fits(tile)}
        given, summed = family.make(np.random.default_rng(seed), find_target(target).arch)
        for shuffled in (0, 1):
            arrays = {**given, "B": ordered_weight(given["B"].view(np.uint8)).view(given["B"].dtype)} if shuffled else given
            results = {family.result: np.zeros((M, N), ml_dtypes.bfloat16)}
            variants = [
                Variant(
                    f"{Path(names[name]).stem} split {split}",
                    partial(_run, family, folder / names[name], target, tile, split, arrays),
                )
                for name, tile in usable.items() if tile["bpreshuffle"] == shuffled for split in family.splits(tile)
            ]  # fmt: skip
            want = reference({**arrays, **results}, {family.result: as_type(summed, np.dtype(ml_dtypes.bfloat16))})
            if variants:
                yield Group(f"{family.name}{', preshuffled' * shuffled}", variants, want)


def _run(family: ProductFamily, path: Path, target: str, tile: Mapping[str, int], split: int, arrays: Arrays) -> Side:
    argument = split.bit_length() - 1 if family.binary else split
    launch = FAMILIES[family.name](path, "", target, M, N, K, argument, tile)
    results = {family.result: np.zeros((launch.buffers[family.result] // (2 * N), N), np.uint16)}
    more = {name: np.zeros(size, np.uint8) for name, size in launch.buffers.items() if name not in (*arrays, *results)}
    case = ShippedCase(launch, {**arrays, **more}, results, lambda got: 0.0, 0.0)
    kernel = case.kernel(Device(target, ring=True))
    _, found = case.run_kernel(kernel)
    before, after = (
        {**arrays, family.result: results_of[family.result][:M].view(ml_dtypes.bfloat16)} for results_of in (results, found)
    )
    return Side(path.stem, before, after, branches(kernel))


def _bf16(rng: np.random.Generator, arch: str) -> tuple[Arrays, np.ndarray]:
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((M, K), (N, K)))
    return {"A": a, "B": b}, product(a, b.T)


def _fp8(rng: np.random.Generator, arch: str) -> tuple[Arrays, np.ndarray]:
    kind = numpy_dtype("fp8", arch)
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((M, K), (N, K)))
    of_a, of_b = (rng.standard_normal(shape).astype(np.float32) for shape in ((K // BLOCK, M), (N // BLOCK, K // BLOCK)))
    total = np.zeros((M, N), np.uint32)
    for at in range(K // BLOCK):
        part = slice(at * BLOCK, (at + 1) * BLOCK)
        scales = elements(of_a)[at][:, None] * elements(of_b)[:, at].repeat(BLOCK)[None]
        total += product(a[:, part], b[:, part].T) * scales
    return {"A": a, "B": b, "sa": of_a, "sb": of_b, "bias": np.zeros(N, np.float32)}, total


def _int8(rng: np.random.Generator, arch: str) -> tuple[Arrays, np.ndarray]:
    a, b = (rng.integers(-9, 9, shape, np.int8) for shape in ((M, K), (N, K)))
    of_a, of_b = (rng.standard_normal(size).astype(np.float32) for size in (M, N))
    summed = elements(product(a, b.T).view(np.int32).astype(np.float32))
    arrays = {"A": a, "B": b, "sa": of_a, "sb": of_b, "bias": np.zeros(N, np.float32)}
    return arrays, summed * elements(of_a)[:, None] * elements(of_b)[None]


def _fp4(rng: np.random.Generator, arch: str) -> tuple[Arrays, np.ndarray]:
    shapes = [(-(-size // PADDED) * PADDED, K) for size in (M, N)]
    codes = [rng.integers(0, 256, (rows, k // 2), np.uint8) for rows, k in shapes]
    scales = [rng.integers(SCALES.start, SCALES.stop, (rows, k // GROUP), np.uint8) for rows, k in shapes]
    a, b = (unpack(raw, "fp4").astype(np.float32) for raw in codes)
    of_a, of_b = (unpack(raw, "e8m0").astype(np.float32) for raw in scales)
    total = np.zeros((M, N), np.uint32)
    for at in range(K // GROUP):
        part = slice(at * GROUP, (at + 1) * GROUP)
        factors = elements(of_a[:M, at])[:, None] * elements(of_b[:N, at])[None]
        total += product(a[:M, part], b[:N, part].T) * factors
    arrays = {"A": codes[0], "B": codes[1], "scaleA": ordered_scale(scales[0]), "scaleB": ordered_scale(scales[1])}
    return arrays, total


PADDED = 256  # rows of fp4 operands are a multiple
BF16 = ProductFamily("bf16gemm", "D", _bf16, 64, always_split=True)
FP8 = ProductFamily("fp8gemm_blockscale", "C", _fp8, BLOCK)
INT8 = ProductFamily("i8gemm", "C", _int8, 128)
FP4 = ProductFamily("f4gemm", "D", _fp4, 256, cuts_tiles=True, binary=True)
