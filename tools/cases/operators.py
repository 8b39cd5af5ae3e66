"""The table of operators for the command. An operator is a row of OPERATORS, which every verb reads."""

from __future__ import annotations

import math
import struct
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.operators import (
    AttentionProblem,
    Band,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    GemmProblem,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
    microscale,
    packed_filter,
    preshuffle,
    reference,
)
from simgpu.operators.attention.cache import Cache
from simgpu.operators.error_model import TypicalError
from simgpu.operators.gemm.epilogue import rows_of_preshuffled
from simgpu.operators.tree import Extent, Root
from simgpu.tools.cases.workload import ExpectedOperand, PackedRows, StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import Inputs

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel

BLOCK_SCORES = 1 << 24  # scores that float64 attention holds at once: some arrays of 128 MiB
Matrices = dict[str, np.ndarray]


def emit(tree: Root) -> EmittedKernel:
    """Emits the tree's kernels. Raises as `simgpu.asm.emit`, which is imported only here."""
    from simgpu import asm

    return asm.emit(tree)


def _host_bytes(problem: Any) -> int:
    return int(10 * problem.bytes_once * 64 // dtype(problem.dtype).bits)


@dataclass(frozen=True)
class Kernels:
    """Kernels of an operator, and how to make their operands."""

    workload: Callable[[Any, str, Inputs], Workload]  # random operands of a tree on an architecture
    emit: Callable[[Any], EmittedKernel] = emit  # from a tree; raises as `simgpu.asm.emit`
    whole: bool = True  # they compute all of the operator, so its FLOPs are theirs
    summary: str = ""  # of kernels that --kernel names, for --help


@dataclass(frozen=True)
class Operator:
    """An operator, as the command sees it."""

    summary: str  # for --help: the formula that it computes
    root: type[Root]  # class of its trees
    configure: Callable[[ArgumentParser], None]  # adds its own options
    tree: Callable[[Namespace], Root]  # the tree that the options describe; LaunchError and TargetError as its constructor
    kernels: Kernels  # kernels of the tree
    others: Mapping[str, Kernels] = field(default_factory=dict)  # kernels that --kernel may name instead
    figures: Callable[[Any], dict[str, Any]] = lambda plan: {}  # a derivation's figures in addition to its sizes
    matrices: Callable[[Any, Workload], Matrices] = lambda tree, work: {}  # matrices that a fragment may hold, in float64
    host_bytes: Callable[[Any], int] = _host_bytes  # upper bound on the host bytes that a run of a problem uses
    operand_bytes: Callable[[Any], int] = lambda problem: int(problem.bytes_once)  # bytes of its operands in memory

    def choose_kernels(self, options: Namespace) -> Kernels:
        """Returns the kernels that --kernel names; without it, the tree's."""
        return self.others.get(getattr(options, "kernel", ""), self.kernels)


def finite_number(text: str) -> float:
    """Parses a finite number and rounds it to f32, as a kernel takes it."""
    try:
        (value,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is past the largest f32") from None
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not finite")
    return float(value)


def _strides(sub: ArgumentParser, names: tuple[str, ...]) -> None:
    """Adds row strides, as --lda for A."""
    for name in names:
        sub.add_argument(f"--{name}", type=int, help=f"row stride of {name[2].upper()} in elements (default: its row)")


# -- gemm ----------------------------------------------------------------------------------------


def _gemm_options(sub: ArgumentParser) -> None:
    for name in "mnk":
        sub.add_argument(f"-{name}", type=int, required=True, metavar=name.upper(), help=f"extent {name}")
    sub.add_argument("--trans-a", action="store_true", help="A is stored transposed, (k,m)")
    sub.add_argument("--trans-b", action="store_true", help="B is stored transposed, (n,k)")
    sub.add_argument("--preshuffle-b", action="store_true", help="B, stored (n,k), was permuted by operators.preshuffle")
    sub.add_argument("--alpha", type=finite_number, default=1.0, help="factor of the product (default: 1)")
    sub.add_argument("--beta", type=finite_number, default=0.0, help="factor of C; 0 (default): C is not read")
    _strides(sub, ("lda", "ldb", "ldc"))
    sub.add_argument("--batch", type=int, default=1, help="products, whose matrices are consecutive in memory (default: 1)")
    sub.add_argument("--bias", action="store_true", help="add a row of n elements to each row of C")
    gates = "of column pairs, gate and up, which leave n/2 columns: reglu, geglu or swiglu"
    sub.add_argument("--activation", default="none", help=f"none (default), relu, gelu or silu; {gates}")
    sub.add_argument("--residual", action="store_true", help="add a matrix of C's type and strides after the activation")
    scales = (
        "tensor (one of A, one of B), row (one a row of A, one a column of op(B)), block (fp8, bf8: one for 128 k of a row of A, "
        "one for 128 columns by 128 k of op(B)) or mx (MXFP8, MXFP6, MXFP4: E8M0, one for 32 k of a row of A and of a column of B; "
        "with --trans-b and --dtype fp8, bf8, fp6, bf6 or fp4)"
    )
    sub.add_argument("--scales", default="none", help=f"factors of the product: none (default), {scales}")
    sub.add_argument("--dtype-b", default="", help="type of B, if it differs from A's (--scales mx)")
    sub.add_argument("--groups", type=int, default=0, help="grouped: the m rows belong to GROUPS groups, each with its own B")
    _output_options(sub, "C")


def _output_options(sub: ArgumentParser, name: str) -> None:
    """Adds the result's type, and the scale of 8-bit ones."""
    sub.add_argument("--dtype-c", default="", help=f"type of {name}: the accumulator's (default), f32, f16, bf16, fp8 or bf8")
    sub.add_argument("--scale-c", type=finite_number, default=1.0, help=f"factor of {name} before it is rounded to fp8 or bf8")


def _gemm(o: Namespace) -> TiledComputation:
    names = ("policy", "dtype", "trans_a", "trans_b", "alpha", "beta", "lda", "ldb", "ldc", "batch", "bias", "activation",
             "dtype_c", "scale_c", "residual", "scales", "groups", "dtype_b", "preshuffle_b")  # fmt: skip
    return TiledComputation(o.m, o.n, o.k, target=o.target, **{name: getattr(o, name) for name in names})


def _gemm_workload(tree: TiledComputation, arch: str, inputs: Inputs) -> Workload:
    """Draws A, B, C and the epilogue's operands. C is NaN if beta = 0, since it must not be read. Arrays of strided operands end
    at their last element, so that reads beyond it are found.

    Scales are uniform in [1/4, 2). MX operands and their scales come from f32 by `microscale`. In a grouped product, some
    groups are far likelier than others to get rows.
    """
    p = tree.problem
    reads_c = p.beta != 0
    kinds = array_type(p.dtype, arch), array_type(p.dtype_b, arch), array_type(p.dtype_c, arch)
    outer, groups = () if p.batch == 1 else (p.batch,), (p.groups,) * bool(p.groups)
    operands = []
    outers, strides = (outer, outer + groups, outer), (p.lda, p.ldb, p.ldc)
    for kind, around, (rows, columns), stride in zip(kinds, outers, p.stored_shapes, strides, strict=True):
        assert stride
        apart = (*((rows * stride,) if around else ()), stride, 1)
        operands.append(StridedArray.empty(kind, (*around, rows, columns), apart, guard=0))
    c = operands[2].draw(inputs) if reads_c else operands[2]
    more: dict[str, StridedArray] = {}
    if p.scales == "mx":
        a, b, *factors = _mx_operands(p, arch, inputs)
    else:
        a, b = operands[0].draw(inputs), operands[1].draw(inputs)
        wholes = ((*around, *shape) for around, shape in zip(outers, p.scale_shapes or (), strict=False))
        factors = [StridedArray.row_major(inputs.rng.uniform(0.25, 2, whole).astype(np.float32)) for whole in wholes]
    if p.bias:
        whole = (*groups, p.n)
        more["bias"] = StridedArray.empty(array_type(p.dtype_addend, arch), whole, contiguous(whole), guard=0).draw(inputs)
    if p.residual:
        more["residual"] = operands[2].draw(inputs)
    more |= zip(("scale_a", "scale_b"), factors, strict=False)
    if p.groups:
        rows_of = inputs.rng.multinomial(p.m, inputs.rng.dirichlet(np.ones(p.groups)))
        more["group_rows"] = StridedArray.empty(np.dtype(np.int32), groups, (1,), guard=0).fill(rows_of.astype(np.int32))
    given = a.view, b.view, c.view if reads_c else None
    read = {name: operand.view for name, operand in more.items()}
    return Workload(
        (a, b, c, *more.values()), 2, lambda: reference.gemm(p, *given, **read, arch=arch),
        lambda: reference.gemm_error_bound(p, *given, arch, **read),
        lambda: reference.gemm_typical_error(p, *given, arch, **read), reads_c,
    )  # fmt: skip


def _mx_operands(p: GemmProblem, arch: str, inputs: Inputs) -> list[StridedArray]:
    """Makes A, B and their scales from matrices in f32."""
    outer, groups = () if p.batch == 1 else (p.batch,), (p.groups,) * bool(p.groups)
    elements: list[StridedArray] = []
    scales: list[StridedArray] = []
    places = zip((p.dtype, p.dtype_b), (outer, outer + groups), p.stored_shapes, (p.lda, p.ldb), strict=False)
    for (kind, around, shape, stride), pitch in zip(places, p.mx_rows, strict=True):
        assert stride
        values, factors = microscale(inputs.array(np.dtype(np.float32), (*around, *shape)), kind, pitch)
        shuffled = p.preshuffle_b and len(elements) == 1
        elements.append(PackedRows.rows(preshuffle(values, kind) if shuffled else values, kind, stride))
        scales.append(StridedArray.row_major(factors))
    return elements + scales


def _gemm_figures(plan: Any) -> dict[str, Any]:
    return {"grid": list(plan.grid), "workgroup_size": plan.threads, "k_steps": plan.k_steps, "eta": plan.eta, "fill": plan.fill,
            "atom": plan.atom.mnemonic, **({"best_for": plan.tiling.aim} if plan.tiling.aim else {})}  # fmt: skip


def _gemm_matrices(tree: TiledComputation, work: Workload) -> Matrices:
    """Returns op(A), op(B), and as C their product, which the accumulators hold before alpha and beta; of a batch, the first.

    If K is split, each workgroup has the product of its part: C.0, C.1, ... Grouped products and MX formats return nothing,
    since their registers hold parts of elements.
    """
    p = tree.problem
    if p.groups or p.scales == "mx":
        return {}
    a, b = (operand.view.astype(np.float64).reshape(-1, *operand.shape[-2:])[0] for operand in work.operands[:2])
    b = rows_of_preshuffled(b, p.dtype_b) if p.preshuffle_b else b
    a, b = a.T if p.trans_a else a, b.T if p.trans_b else b
    plan = tree.plan
    if plan.split_k == 1:
        return {"A": a, "B": b, "C": a @ b}
    size = plan.k_steps_per_block * plan.tile_k
    parts = {f"C.{part}": a[:, low : low + size] @ b[low : low + size] for part, low in enumerate(range(0, p.k, size))}
    return {"A": a, "B": b, **parts}


def _gemm_host_bytes(p: GemmProblem) -> int:
    """Bytes of the operands on host and device, of float64 copies, the reference and the bound."""
    return 2 * _gemm_operand_bytes(p) + 8 * p.batch * (2 * (p.m + max(1, p.groups) * p.n) * p.k + 6 * p.m * p.n)


def _gemm_operand_bytes(p: GemmProblem) -> int:
    """Bytes of A, B and C with their strides."""
    sizes = p.element.bits / 8, p.element_b.bits / 8, dtype(p.dtype_c).bytes
    strides = p.lda or 0, p.ldb or 0, p.ldc or 0
    times = 1, max(1, p.groups), 1
    stored = sum(
        count * rows * stride * size for count, (rows, _), stride, size in zip(times, p.stored_shapes, strides, sizes, strict=True)
    )
    return int(p.batch * stored)


# -- conv2d --------------------------------------------------------------------------------------


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
    _output_options(sub, "Y")


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
    y = StridedArray.empty(array_type(p.dtype_c, arch), p.shapes[2], contiguous(p.shapes[2]))
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


# -- softmax -------------------------------------------------------------------------------------


def _softmax_options(sub: ArgumentParser) -> None:
    sub.add_argument("--rows", type=int, required=True, help="rows")
    sub.add_argument("-n", type=int, required=True, metavar="N", help="elements of a row")
    sub.add_argument("--scale", type=finite_number, default=1.0, help="factor before the exponential (default: 1)")
    _strides(sub, ("ldx", "ldy"))
    sub.add_argument("--mask", action="store_true", help="with a mask of bytes, (rows,n)")
    sub.add_argument("--causal", action="store_true", help="row r keeps the columns up to r")


def _softmax(o: Namespace) -> Softmax:
    band = Band(o.rows, -o.rows, 1) if o.causal else None
    return Softmax(SoftmaxProblem(o.rows, o.n, o.dtype, o.scale, o.ldx, o.ldy, o.mask, band), o.target, o.policy)


def _softmax_workload(tree: Softmax, arch: str, inputs: Inputs) -> Workload:
    p = tree.problem
    assert p.ldx and p.ldy
    kind, shape = array_type(p.dtype, arch), (p.rows, p.n)
    x = StridedArray.empty(kind, shape, (p.ldx, 1)).draw(inputs)
    keep = inputs.rng.random(shape) < 0.5 if p.mask else None
    mask = () if keep is None else (StridedArray.row_major(keep.astype(np.uint8)),)
    y = StridedArray.empty(kind, shape, (p.ldy, 1))
    return Workload(
        (x, y, *mask), 1, lambda: reference.softmax(p, x.view, keep), lambda: reference.softmax_error_bound(p, x.view, keep),
        lambda: reference.softmax_typical_error(p, x.view, keep),
    )  # fmt: skip


# -- attention -----------------------------------------------------------------------------------


def _attention_options(sub: ArgumentParser) -> None:
    sub.add_argument("-L", "--lq", type=int, required=True, help="queries, and keys unless --lk")
    sub.add_argument("--lk", type=int, help="keys (default: as many as queries)")
    sub.add_argument("-d", type=int, required=True, metavar="D", help="head dimension of Q and K")
    sub.add_argument("--dv", type=int, default=0, help="head dimension of V and of the result (default: as -d)")
    sub.add_argument("--scale", type=finite_number, help="factor of the scores (default: 1 / sqrt(d))")
    sub.add_argument("--batch", type=int, default=1, help="batch (default: 1)")
    sub.add_argument("--heads", type=int, default=1, help="query heads (default: 1)")
    sub.add_argument("--kv-heads", type=int, default=0, help="heads of K and V (default: as many as query heads)")
    sub.add_argument("--causal", action="store_true", help="no query sees a later key")
    sub.add_argument("--window", type=int, help="a query sees fewer than this many keys before its own")


def _fused_options(sub: ArgumentParser) -> None:
    _attention_options(sub)
    sub.add_argument("--softcap", type=finite_number, help="a score s becomes SOFTCAP * tanh(s / SOFTCAP)")
    sub.add_argument("--alibi", action="store_true", help="subtract slope times distance of query and key from a score")
    sub.add_argument("--lse", action="store_true", help="also store log(sum(exp(score))) of every query")
    sub.add_argument("--page", type=int, default=0, help="K and V are pools of pages of PAGE keys, found by a table of blocks")
    sub.add_argument("--dtype-kv", default="", help="type of K and V: fp8 or bf8, with scales (default: Q's, without)")
    sub.add_argument("--values", default="mfma", help="under policy published: compute P V by mfma (default) or fma")


def _attention_problem(o: Namespace, **more: Any) -> AttentionProblem:
    masks = (o.causal, o.window)
    lk = o.lq if o.lk is None else o.lk
    return AttentionProblem(o.lq, lk, o.d, o.heads, o.kv_heads, o.batch, *masks, o.scale, o.dtype, o.dv, **more)


def _attention(o: Namespace) -> FusedAttention:
    problem = _attention_problem(o, softcap=o.softcap, alibi=o.alibi, lse=o.lse, page=o.page, dtype_kv=o.dtype_kv)
    return FusedAttention(problem, o.target, o.policy, o.values)


def _unfused_tree(o: Namespace) -> UnfusedAttention:
    return UnfusedAttention(_attention_problem(o), o.target, o.policy)


def _attention_workload(tree: FusedAttention | UnfusedAttention, arch: str, inputs: Inputs) -> Workload:
    """Draws Q, K, V, ALiBi's slopes and a cache's arrays; adds the result and its logarithms. Float64 computes blocks of rows,
    since S may not fit."""
    p = tree.problem
    kind, of_cache = array_type(p.dtype, arch), array_type(p.dtype_kv, arch)
    cache, taken = _cache(p, inputs)
    given = [StridedArray.row_major(inputs.array(kind, p.q_shape))]
    for shape in (p.k_shape, p.v_shape):
        if not p.page:
            given.append(StridedArray.row_major(inputs.array(of_cache, shape)))
            continue
        pool = inputs.array(of_cache, (len(taken), p.page, p.kv_heads, shape[-1]))
        given.append(StridedArray.row_major(np.where(taken[..., None, None], pool, np.nan).astype(of_cache)))
    q, k, v = (operand.view for operand in given)
    slopes = None
    if p.alibi:
        slopes = np.broadcast_to(2.0 ** (-8 * (np.arange(p.heads) + 1) / p.heads), p.slopes_shape).astype(np.float32)
        given.append(StridedArray.row_major(slopes))
    given += [StridedArray.row_major(np.asarray(array)) for array in vars(cache).values() if array is not None]
    kinds = array_type(p.dtype_c, arch), np.dtype(np.float32)
    written = [
        StridedArray.empty(kind, shape, contiguous(shape)) for kind, shape in zip(kinds, (p.r_shape, p.lse_shape), strict=True)
    ]
    rows = max(1, BLOCK_SCORES // (p.batch * p.heads * p.lk))
    blocks = tuple(Extent.whole(p.lq).split(rows))

    def by_blocks(make: Callable[..., np.ndarray], *arguments: Any) -> Callable[[], np.ndarray]:
        return lambda: np.concatenate([make(p, *arguments, queries=block, slopes=slopes, cache=cache) for block in blocks], axis=2)

    place = len(given)
    logarithms = ExpectedOperand(
        place + 1, by_blocks(reference.attention_lse, q, k), by_blocks(reference.attention_lse_error_bound, q, k, arch)
    )
    return Workload(
        (*given, *written[: 1 + p.lse]), place,
        by_blocks(reference.attention, q, k, v), by_blocks(reference.attention_error_bound, q, k, v, arch),
        lambda: TypicalError.concatenate(
            [reference.attention_typical_error(p, q, k, v, arch, block, slopes, cache) for block in blocks], axis=2
        ),
        beside=(logarithms,) if p.lse else (),
    )  # fmt: skip


def _cache(p: AttentionProblem, inputs: Inputs) -> tuple[Cache, np.ndarray]:
    """Draws a cache's arrays other than K and V, and which rows of the pools' pages, (pages, page), hold keys.

    The first sequence is full. Pages are in random order, one of them belongs to no sequence, and table entries that no key
    needs are -1.
    """
    scale_k, scale_v = (inputs.rng.uniform(0.25, 2, p.kv_heads).astype(np.float32) if p.narrow_kv else None for _ in "KV")
    if not p.page:
        return Cache(None, None, scale_k, scale_v), np.empty(0)
    lengths = inputs.rng.integers(p.lk // 2, p.lk, p.batch, endpoint=True).astype(np.int32)
    lengths[0] = p.lk
    numbers = inputs.rng.permutation(p.batch * p.pages + 1)
    blocks = numbers[: p.batch * p.pages].reshape(p.batch, p.pages).astype(np.int32)
    taken = np.zeros((len(numbers), p.page), bool)
    for row, length in zip(blocks, lengths, strict=True):
        taken[row] = np.arange(p.pages * p.page).reshape(-1, p.page) < length
    blocks[np.arange(p.pages) * p.page >= lengths[:, None]] = -1
    return Cache(blocks, lengths, scale_k, scale_v), taken


# -- the table -----------------------------------------------------------------------------------

OPERATORS: dict[str, Operator] = {
    "gemm": Operator(
        "C (m,n) = alpha * op(A) (m,k) @ op(B) (k,n) + beta * C, row-major", TiledComputation, _gemm_options, _gemm,
        Kernels(_gemm_workload), figures=_gemm_figures, matrices=_gemm_matrices, host_bytes=_gemm_host_bytes,
        operand_bytes=_gemm_operand_bytes,
    ),
    "conv2d": Operator(
        "Y (n,oc,oh,ow) = X (n,ic,ih,iw) convolved with W (oc,ic/groups,kh,kw), and its epilogue", Conv2d, _conv2d_options, _conv2d,
        Kernels(partial(_conv2d_workload, True)),
        {
            "naive": Kernels(partial(_conv2d_workload, False), _naive, summary="the untiled one of the paper's comparison"),
            "pack": Kernels(_pack_workload, _pack, whole=False, summary="the filter's packing"),
        },
    ),
    "softmax": Operator("softmax of the rows of X (rows,n)", Softmax, _softmax_options, _softmax, Kernels(_softmax_workload)),
    "attention": Operator(
        "fused attention: softmax(scale * Q K^T) V", FusedAttention, _fused_options, _attention, Kernels(_attention_workload)
    ),
    "unfused": Operator(
        "attention as three kernels, the paper's baseline", UnfusedAttention, _attention_options, _unfused_tree,
        Kernels(_attention_workload),
    ),
}  # fmt: skip


def workload(tree: Root, arch: str, seed: int, distribution: str = "uniform") -> Workload:
    """Draws the operands of a tree's problem, distributed as one of INPUTS. Raises UsageError for a root that is not in the
    table."""
    for row in OPERATORS.values():
        if type(tree) is row.root:
            return row.kernels.workload(tree, arch, Inputs(np.random.default_rng(seed), distribution))
    known = ", ".join(row.root.__name__ for row in OPERATORS.values())
    raise UsageError(f"no inputs for a {type(tree).__name__}: there are some for {known}")
