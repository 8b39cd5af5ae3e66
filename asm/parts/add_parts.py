"""Sum of parts that the workgroups of a first kernel stored one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import add_wide
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.cost import TOGETHER

THREADS = 64  # of a workgroup: small ones spread evenly over the CUs
_LOADED = 64  # most registers of loaded parts: a SIMD then has room for four waves or more


def add_parts(
    k: KernelBuilder, kind: str, parts: int, resource: Reg, step: tuple[Operand, Operand], offsets: Sequence[Reg], words: int
) -> list[Reg]:
    """Emits the sum of `parts` parts in order. Returns `words` registers of sums for each offset.

    Up to TOGETHER parts are loaded before they are added, so that their latencies overlap.

    kind: f32, f64 or i32. resource: raw buffer of part 0; it is moved on. step: bytes from part to part (low, high words).
    offsets: VGPRs with bytes in a part.
    """
    totals = [k.v.alloc("sum", words) for _ in offsets]
    for total in totals:
        k.move(total, 0)
    together = min(parts, TOGETHER, _LOADED // (words * len(totals)))
    loaded = [[k.v.alloc("part", words) for _ in offsets] for _ in range(together)]
    epilogue, each = Epilogue(k, kind, None, None), dtype(kind).registers

    def add(count: int) -> None:
        for part in loaded[:count]:
            for target, offset in zip(part, offsets, strict=True):
                k.buffer_load(target, offset, resource, 0)
            add_wide(k, resource, *step, note="next part")
        for part in loaded[:count]:
            for total, addend in zip(totals, part, strict=True):
                for start in range(0, words, each):
                    epilogue.add(total[start : start + each], addend[start : start + each])

    in_batches(k, parts, together, add)
    k.v.free(*(register for part in loaded for register in part))
    return totals


def in_batches(k: KernelBuilder, parts: int, together: int, add: Callable[[int], None]) -> None:
    """Emits add(together) in a loop, and add(n) for the last n parts if they are fewer."""
    with k.loop("parts", parts // together):
        add(together)
    if parts % together:
        add(parts % together)
