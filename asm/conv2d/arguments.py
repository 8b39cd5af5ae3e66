"""The arguments of a convolution's kernels: pointers, and the epilogue's factors where they are not 1."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem


@dataclass(frozen=True)
class Arguments:
    """SGPRs, two a pointer; None for what a kernel does not take."""

    pointers: dict[str, Reg]
    output: Reg  # Y, or the parts of its sums
    bias: Reg | None
    alpha: Reg | None
    scale_c: Reg | None

    @classmethod
    def load(cls, k: KernelBuilder, problem: Conv2dProblem, pointers: tuple[str, ...], epilogue: bool) -> Arguments:
        """Declares and loads them: `pointers`, of which the last is what the kernel writes, and if it has the epilogue its own."""
        for name in (*pointers, *(["bias"] if problem.bias and epilogue else [])):
            k.argument(name, 8, "global_buffer")
        kind = problem.gemm.epilogue_type
        if epilogue and problem.alpha != 1:
            k.argument("alpha", dtype(kind).bytes, value_type=kind)
        if epilogue and problem.scale_c != 1:
            k.argument("scale_c", 4, value_type="f32")
        found = k.load_arguments()
        return cls(found, found[pointers[-1]], *(found.get(name) for name in ("bias", "alpha", "scale_c")))


def scalars(problem: Conv2dProblem) -> tuple[int | float, ...]:
    """The values of those that are no pointers, for a kernel with the epilogue."""
    alpha = int(problem.alpha) if problem.gemm.epilogue_type == "i32" else problem.alpha
    return (*([alpha] if problem.alpha != 1 else []), *([problem.scale_c] if problem.scale_c != 1 else []))
