"""Cost of a kernel of gradients from its tiles.

A SIMD has one wave of a block, whose step is a chain: products, reads of LDS that the next products wait for, and arithmetic on P
and dS. So the clocks of a step are the sum of the three, and blocks that share a CU take turns. Rounds of blocks follow from
`operators.cost`. With a causal mask, blocks with most steps come first: the launch takes as long as the longest block, or
as blocks with the mean number of steps.
"""

from __future__ import annotations

from typing import Any

from simgpu.hardware.rates.clocks import element
from simgpu.hardware.rates.sustained import LDS_CLOCKS, sustained_rates
from simgpu.operators.attention_backward.tiles import WAVES, GradientPlan, padded_width
from simgpu.operators.cost import KernelCost

# Fitted to 79 kernels on MI210, MI300X and MI355X in the model of time. Seconds are then 2 % more in the mean, with a standard
# deviation of 12 %; the plan of least cost was the fastest in each of 20 problems.
_LDS_EXPOSED = 1.25  # clocks that a wave waits for each clock in which LDS moves its step
_INSTRUCTIONS = 4  # vector instructions for an element of P and dS that products do not hide
_LDS_BYTES = 128  # a clock and CU: 16-byte reads of rows with pads


def gradient_seconds(plan: GradientPlan) -> dict[str, Any]:
    """Returns seconds by term of a plan's launch (`KernelCost.terms`), of the longer of the two launches that a mask gives.

    >>> from simgpu.operators import AttentionBackward, AttentionBackwardProblem
    >>> tree = AttentionBackward(AttentionBackwardProblem(4096, 4096, 128, 16, dtype="bf16"), "mi300x")
    >>> 1e-4 < gradient_seconds(tree.parts[1].plan)["total"] < 1e-3
    True
    """
    p = plan.problem
    seen = p.pairs / (p.batch * p.heads * p.lq * p.lk)
    mean = gradient_cost(plan, plan.blocks, max(1.0, plan.steps * seen)).terms()
    longest = gradient_cost(plan, min(plan.blocks, plan.descriptor.num_cus), plan.steps).terms()
    return max(mean, longest, key=lambda terms: float(terms["total"]))


def gradient_cost(plan: GradientPlan, blocks: int, steps: float) -> KernelCost:
    """Returns the cost of a launch of `blocks` blocks with this number of steps each."""
    p, d, rates = plan.problem, plan.descriptor, sustained_rates(plan.descriptor)
    clocks, staged = step_clocks(plan), 2.0 * plan.step * (p.d + p.dv)
    written = sum(4 * (p.dv if name == "dV" else p.d) for name in plan.results)
    heads, own = (p.kv_heads, p.lk) if plan.side == "keys" else (p.heads, p.lq)
    read = 2.0 * p.batch * (p.heads * p.lq + p.kv_heads * p.lk) * (p.d + p.dv)
    return KernelCost(
        rates=rates,
        workgroups=blocks,
        resident=1,
        steps=steps,
        element=element(d.atom(p.dtype).mnemonic),
        matrix=clocks["matrix"],
        units=sum(clocks.values()),
        bare=LDS_CLOCKS,
        burst=staged / rates.rates.cache,
        flight=staged,
        asked=staged,
        missed_bytes=read,
        hbm_bytes=read,
        written_bytes=1.0 * p.batch * heads * own * written,
        stored=plan.tile * written,
        waves=WAVES,
    )


def step_clocks(plan: GradientPlan) -> dict[str, float]:
    """Returns clocks of a block's step, by unit, as its waves wait for them."""
    p, d, rates = plan.problem, plan.descriptor, sustained_rates(plan.descriptor)
    widths = [padded_width(p.d), padded_width(p.dv)]
    products = sum(widths) + sum(padded_width(p.dv if name == "dV" else p.d) for name in plan.results)
    lds = WAVES * 2 * plan.step * products / _LDS_BYTES + sum(tile.nbytes for tile in plan.moved) / rates.rates.lds_write
    return {
        "matrix": 2 * plan.tile * plan.step * products / d.matrix_flops_per_clock(p.dtype),
        "LDS": _LDS_EXPOSED * lds,
        "VALU": _INSTRUCTIONS * plan.tile * plan.step / rates.valu_lanes,
    }
