"""60 GEMM shapes of language models, and our kernels' modelled time on them: `python -m simgpu.tools.benchmarks.llm_gemm`.

The list was committed before any kernel was improved for it. Weights are stored (n,k), as in the models' files, so B is
transposed. A mixture of experts is a batch: its experts' weights, each with its tokens by uniform routing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.hardware import target as board
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators import GemmProblem, TiledComputation
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.tables.schedule_report import loop_of, predictions

# Projections by model, (n, k) of one GPU. [vllm]: vLLM's benchmarks/kernels/weight_shapes.py (commit 1c1184f5), divided by the GPUs
# as its TP_SPLIT_DIM says; [aiter]: AITER's aiter/configs/model_configs/dsv3_bf16_untuned_gemm.csv (commit e4048607a5).
PROJECTIONS = {
    "Llama-3.1-8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),  # [vllm]
    "Llama-3.3-70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),  # [vllm]
    "Llama-3.3-70B / 8": ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)),  # [vllm]
    "Llama-3.1-405B / 8": ((2304, 16384), (16384, 2048), (13312, 16384), (16384, 6656)),  # [vllm]
    "Qwen2.5-7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),  # [vllm]
    "DeepSeek-V3 / 8": ((2112, 7168), (3072, 1536), (7168, 2048), (16160, 7168)),  # [aiter]
}
# Experts: (experts on this GPU, experts of a layer, experts of a token), then (n, k) of gate with up and of down.
EXPERTS = {
    "Mixtral-8x7B": ((8, 8, 2), ((28672, 4096), (4096, 14336))),  # arXiv 2401.04088, table 1
    "DeepSeek-V3 / 8": ((32, 256, 8), ((4096, 7168), (7168, 2048))),  # arXiv 2412.19437, section 4.2
    "Qwen3-235B-A22B / 8": ((16, 128, 8), ((3072, 4096), (4096, 1536))),  # AITER's a8w8_blockscale_untuned_fmoe_qwen3_235b.csv
}
PREFILL = (
    ("Llama-3.1-8B", 2048), ("Llama-3.1-8B", 8192), ("Llama-3.3-70B", 4096), ("Llama-3.3-70B / 8", 8192),
    ("Llama-3.1-405B / 8", 16384), ("Qwen2.5-7B", 1024),
)  # fmt: skip
DECODE = (
    ("Llama-3.1-8B", 1), ("Llama-3.1-8B", 16), ("Llama-3.1-8B", 64), ("Llama-3.3-70B / 8", 32), ("Llama-3.3-70B / 8", 128),
    ("DeepSeek-V3 / 8", 256),
)  # fmt: skip
MIXTURE = (
    ("Mixtral-8x7B", 4096), ("Mixtral-8x7B", 64), ("DeepSeek-V3 / 8", 16384), ("DeepSeek-V3 / 8", 1024),
    ("Qwen3-235B-A22B / 8", 8192), ("Qwen3-235B-A22B / 8", 512),
)  # fmt: skip
COLUMNS = ("model", "m x n x k", "tile", "us", "loop", "whole")
PHASES = ("prefill", "decode", "mixture")


@dataclass(frozen=True)
class LayerProduct:
    """A product of a model's layer."""

    phase: str  # of PHASES
    model: str
    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def shape(self) -> str:
        """Shape for tables."""
        return f"{f'{self.batch}x' * (self.batch > 1)}{self.m}x{self.n}x{self.k}"

    def problem(self, dtype: str, scales: str = "none") -> GemmProblem:
        """Returns the product with weights as they are stored, (n,k)."""
        return GemmProblem(self.m, self.n, self.k, dtype, trans_b=True, batch=self.batch, scales=scales)


def cases() -> Iterator[LayerProduct]:
    """Yields the 60 cases, in a fixed order."""
    for phase, steps in (("prefill", PREFILL), ("decode", DECODE)):
        for model, tokens in steps:
            yield from (LayerProduct(phase, model, tokens, n, k) for n, k in PROJECTIONS[model])
    for model, tokens in MIXTURE:
        (here, experts, chosen), projections = EXPERTS[model]
        yield from (LayerProduct("mixture", model, tokens * chosen // experts, n, k, here) for n, k in projections)


@dataclass(frozen=True)
class CaseTime:
    """Modelled time of one case."""

    case: LayerProduct
    tile: str
    seconds: float  # of all kernels
    loop: float | None  # fraction of the main loop's clocks in which the matrix units work, None without a loop
    whole: float  # the same for the whole first kernel
    limit: str


def modelled_time(case: LayerProduct, dtype: str, target: str | HardwareDescriptor, scales: str = "none") -> CaseTime:
    """Models a case. Raises TargetError and LaunchError for impossible types and scales."""
    tree = TiledComputation.of(case.problem(dtype, scales), target if isinstance(target, HardwareDescriptor) else board(target))
    found = list(predictions(tree).values())
    plan, first = tree.plan, found[0]
    loop = loop_of(first)
    tile = f"{plan.tile_m}x{plan.tile_n}x{plan.tile_k}" + f"/{plan.split_k}" * (plan.split_k > 1)
    seconds, share = sum(one.seconds for one in found), None if loop is None else loop.utilisation
    return CaseTime(case, tile, seconds, share, first.shares["matrix"], first.limit)


def main() -> None:
    """Prints one line per case: tile and split of K, microseconds, fractions of main loop and kernel in which matrix units work."""
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.benchmarks.llm_gemm", description=main.__doc__)
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--dtype", default="bf16", help="type of A and B (default: bf16)")
    parser.add_argument("--scales", default="none", help="of `simgpu derive gemm` (default: none); mx for fp4 and its kin")
    parser.add_argument("--phase", choices=PHASES, help="these alone (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    options = parser.parse_args()
    chosen = (case for case in cases() if options.phase in (None, case.phase))
    rows = [modelled_time(case, options.dtype, options.target, options.scales) for case in chosen]
    if options.json:
        found = [{**vars(row.case), **{name: value for name, value in vars(row).items() if name != "case"}} for row in rows]
        print_json({"target": options.target, "dtype": options.dtype, "rows": found})
        return
    for phase in PHASES:
        if cells := [_cells(row) for row in rows if row.case.phase == phase]:
            show(table(f"{phase}, {options.dtype} on {options.target}, modelled", COLUMNS, cells, left=3))
    show("Matrix clocks over clocks of the main loop, and of the whole kernel.")


def _cells(row: CaseTime) -> tuple[object, ...]:
    loop = "" if row.loop is None else f"{row.loop:.1%}"
    return row.case.model, row.case.shape, row.tile, f"{1e6 * row.seconds:,.1f}", loop, f"{row.whole:.1%}"


if __name__ == "__main__":
    main()
