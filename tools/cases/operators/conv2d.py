"""Convolution of the command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from simgpu.operators import Conv2d, Conv2dProblem, packed_filter, reference
from simgpu.tools.cases.operators.operator import Kernels, Operator, add_output_options, finite_number
from simgpu.tools.cases.workload import StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import Inputs

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel


def _conv2d_options(sub: ArgumentParser) -> None:
    for name, text in (("ic", "input channels"), ("ih", "input rows"), ("iw", "input columns"), ("oc", "output channels"),
                       ("kh", "filter rows"), ("kw", "filter columns")):  # fmt: skip
        sub.add_argument(f"--{name}", type=int, required=True, help=text)
    sub.add_argument("--batch", type=int, default=1, help="images (default: 1)")
    sub.add_argument("--groups", type=int, default=1, help="groups of channels (default: 1)")
    for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)):
        text = f"one number, or rows and columns (default: {default})"
        sub.add_argument(f"--{name}", type=int, nargs="+", default=[default], metavar="N", help=text)
    sub.add_argument("--layout", default="nchw", help="of X and Y: nchw (default) or nhwc, the channels of a pixel side by side")
    sub.add_argument("--alpha", type=finite_number, default=1.0, help="factor of the sums (default: 1)")
    sub.add_argument("--bias", action="store_true", help="add one number an output channel")
    sub.add_argument("--activation", default="none", help="none (default), relu, gelu or silu")
    add_output_options(sub, "Y")


def _conv2d(o: Namespace) -> Conv2d:
    stride, padding, dilation = (_pair(name, getattr(o, name)) for name in ("stride", "padding", "dilation"))
    more = {name: getattr(o, name) for name in ("layout", "alpha", "bias", "activation", "dtype_c", "scale_c")}
    problem = Conv2dProblem(o.batch, o.ic, o.ih, o.iw, o.oc, o.kh, o.kw, stride, padding, dilation, o.groups, o.dtype, **more)
    return Conv2d(problem, o.target, o.policy)


def _pair(name: str, given: list[int]) -> tuple[int, int]:
    if len(given) > 2:
        raise UsageError(f"--{name} has {len(given)} numbers: give one, or rows and columns")
    return given[0], given[-1]


def _conv2d_workload(packed: bool, tree: Conv2d, arch: str, inputs: Inputs) -> Workload:
    """Draws X, W, Y and the bias. packed: the filter is packed by `operators.packed_filter`, for matrix instructions."""
    p = tree.problem
    x, w = (inputs.array(array_type(p.dtype, arch), shape) for shape in p.shapes[:2])
    y = StridedArray.for_results(inputs, array_type(p.dtype_c, arch), p.shapes[2], contiguous(p.shapes[2]))
    operands = [StridedArray.row_major(x), StridedArray.row_major(packed_filter(tree.plan, w) if packed else w), y]
    bias = None
    if p.bias:
        bias = inputs.array(array_type(p.gemm.dtype_addend, arch), (p.oc,))
        operands.append(StridedArray.row_major(bias))
    return Workload(
        tuple(operands), 2, lambda: reference.conv2d(p, x, w, bias, arch),
        lambda: reference.conv2d_error_bound(p, x, w, arch, bias),
        lambda: reference.conv2d_typical_error(p, x, w, arch, matrix=packed, bias=bias),
    )  # fmt: skip


def _pack_workload(tree: Conv2d, arch: str, inputs: Inputs) -> Workload:
    """Draws the filter; the kernel must write its packed form exactly as `packed_filter` does."""
    w = inputs.array(array_type(tree.problem.dtype, arch), tree.problem.shapes[1])
    want = packed_filter(tree.plan, w)
    packed = StridedArray.empty(want.dtype, want.shape, contiguous(want.shape))
    return Workload((StridedArray.row_major(w), packed), 1, lambda: want.astype(np.float64), lambda: np.zeros(want.shape),
                    lambda: None)  # fmt: skip


def _naive(tree: Conv2d) -> EmittedKernel:
    from simgpu.asm.conv2d.naive import emit_naive

    return emit_naive(tree)


def _pack(tree: Conv2d) -> EmittedKernel:
    from simgpu.asm.conv2d.pack import emit_pack

    return emit_pack(tree)


OPERATORS = (
    Operator(
        "conv2d", "Y (n,oc,oh,ow) = X (n,ic,ih,iw) convolved with W (oc,ic/groups,kh,kw), and its epilogue", Conv2d,
        _conv2d_options, _conv2d, Kernels(partial(_conv2d_workload, True)),
        {
            "naive": Kernels(partial(_conv2d_workload, False), _naive, summary="the untiled one of the paper's comparison"),
            "pack": Kernels(_pack_workload, _pack, whole=False, summary="the filter's packing"),
        },
    ),
)  # fmt: skip
