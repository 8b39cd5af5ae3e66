"""Arguments of a convolution's kernels: pointers, and those of the epilogue's factors that are not 1."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem


def load_arguments(k: KernelBuilder, problem: Conv2dProblem, pointers: tuple[str, ...], epilogue: bool) -> dict[str, Reg]:
    """Declares and loads the arguments. Returns their SGPRs by name.

    epilogue: True if the kernel also has the epilogue's arguments: bias (a pointer), alpha and scale_c, if the problem has them.
    """
    k.declare("pointer", *pointers, *(["bias"] if problem.bias and epilogue else []))
    if epilogue and problem.alpha != 1:
        k.declare(problem.gemm.epilogue_type, "alpha")
    if epilogue and problem.scale_c != 1:
        k.declare("f32", "scale_c")
    return k.load_arguments()


def scalars(problem: Conv2dProblem) -> tuple[int | float, ...]:
    """Returns the arguments that are not pointers, for a kernel with the epilogue."""
    alpha = int(problem.alpha) if problem.gemm.epilogue_type == "i32" else problem.alpha
    return (*([alpha] if problem.alpha != 1 else []), *([problem.scale_c] if problem.scale_c != 1 else []))
