"""Arguments of a convolution's kernels: pointers, and those of the epilogue's factors that are not 1."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem


@dataclass(frozen=True)
class Arguments:
    """SGPRs of a kernel's arguments; None for arguments that it does not have."""

    pointers: dict[str, Reg]  # SGPR pairs by name
    output: Reg  # pointer to Y, or to the parts of its sums
    bias: Reg | None  # pointer
    alpha: Reg | None  # factor of the sums
    scale_c: Reg | None  # factor of Y

    @classmethod
    def load(cls, k: KernelBuilder, problem: Conv2dProblem, pointers: tuple[str, ...], epilogue: bool) -> Arguments:
        """Declares and loads the arguments.

        pointers: names; the kernel writes the last one. epilogue: True if the kernel also needs the epilogue's arguments.
        """
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
    """Returns the arguments that are not pointers, for a kernel with the epilogue."""
    alpha = int(problem.alpha) if problem.gemm.epilogue_type == "i32" else problem.alpha
    return (*([alpha] if problem.alpha != 1 else []), *([problem.scale_c] if problem.scale_c != 1 else []))
