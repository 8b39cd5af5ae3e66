"""Options and trees of every operator, for derive, tree and report: `simgpu derive OP …`, a sub-parser an operator."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simgpu.tools.shared.console import add_json_option
from simgpu.tools.shared.gemm_options import add_gemm_options, finite_number, tree_of

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.operators.tree import Root

Pair = tuple[int, int]


EMITTED = ("gemm", "conv2d", "softmax", "attention", "unfused")  # operators that have kernels


def add_operator_options(
    parser: ArgumentParser,
    compare: bool = False,
    only: tuple[str, ...] | None = None,
    more: Callable[[ArgumentParser], None] | None = None,
    kernels: bool = False,
    required: bool = True,
) -> Any:
    """OP (one of `only`), then the operator's own options, --target, --policy and --json; `compare` adds --compare-targets, `more`
    what a verb has besides. With `kernels`, the verb takes others than the tree's: `emitted` makes them. required: whether an OP
    must be named. Returns argparse's action, to which a verb may add others."""
    add_json_option(parser)
    operators = parser.add_subparsers(dest="op", metavar="OP", required=required, parser_class=type(parser))
    for name, (text, configure, _) in OPERATORS.items():
        if only is not None and name not in only:
            continue
        sub = operators.add_parser(name, help=text, description=text)
        sub.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
        sub.add_argument("--policy", default="corrected", help="tile policy: corrected (default) or published")
        sub.add_argument("--dtype", default="f32", help="type of the operands (default: f32)")
        if compare:
            sub.add_argument("--compare-targets", metavar="A,B,…", help="derive for these targets instead, side by side")
        configure(sub)
        if kernels and name == "conv2d":
            text = "the tree's, the untiled one of the paper's comparison, or the filter's packing (default: tree)"
            sub.add_argument("--kernel", choices=("tree", *OTHER_KERNELS), default="tree", help=text)
        if more is not None:
            more(sub)
        sub.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document instead of text")
    return operators


OTHER_KERNELS = ("naive", "pack")


def emitted(tree: Root, options: Namespace) -> EmittedKernel:
    """The kernel that the options ask for; raises as `simgpu.asm.emit`."""
    from simgpu import asm
    from simgpu.asm.conv2d.naive import emit_naive
    from simgpu.asm.conv2d.pack import emit_pack

    other: dict[str, Callable[[Any], EmittedKernel]] = dict(zip(OTHER_KERNELS, (emit_naive, emit_pack), strict=True))
    return other.get(getattr(options, "kernel", ""), asm.emit)(tree)


def operator_tree(options: Namespace) -> Root:
    """The root node of the operator that the options describe; raises LaunchError and TargetError as its constructor."""
    build = OPERATORS[options.op][2]
    return build(options)


def operator_document(tree: Root, op: str) -> dict[str, Any]:
    """Operator, target, policy and sizes, for JSON."""
    p, d = tree.problem, tree.descriptor
    sizes = {name: getattr(p, name) for name in p.__dataclass_fields__}
    return {"operator": op, "target": d.name or d.arch, "arch": d.arch, "policy": tree.derivation.policy, "problem": sizes}


def _conv2d_options(sub: ArgumentParser) -> None:
    for name, text in (("ic", "input channels"), ("ih", "input rows"), ("iw", "input columns"), ("oc", "output channels"),
                       ("kh", "filter rows"), ("kw", "filter columns")):  # fmt: skip
        sub.add_argument(f"--{name}", type=int, required=True, help=text)
    sub.add_argument("--batch", type=int, default=1, help="images (default: 1)")
    sub.add_argument("--groups", type=int, default=1, help="groups of channels (default: 1)")
    for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)):
        sub.add_argument(
            f"--{name}",
            type=int,
            nargs="+",
            default=[default],
            metavar="N",
            help=f"one number, or rows and columns (default: {default})",
        )


def _conv2d(o: Namespace) -> Root:
    from simgpu.operators import Conv2d, Conv2dProblem

    stride, padding, dilation = (_pair(name, getattr(o, name)) for name in ("stride", "padding", "dilation"))
    problem = Conv2dProblem(o.batch, o.ic, o.ih, o.iw, o.oc, o.kh, o.kw, stride, padding, dilation, o.groups, o.dtype)
    return Conv2d(problem, o.target, o.policy)


def _pair(name: str, given: list[int]) -> Pair:
    from simgpu.tools.shared.errors import UsageError

    if len(given) > 2:
        raise UsageError(f"--{name} has {len(given)} numbers: give one, or rows and columns")
    return given[0], given[-1]


def _softmax_options(sub: ArgumentParser) -> None:
    sub.add_argument("--rows", type=int, required=True, help="rows")
    sub.add_argument("-n", type=int, required=True, metavar="N", help="elements of a row")
    sub.add_argument("--scale", type=finite_number, default=1.0, help="factor before the exponential (default: 1)")
    for name in ("ldx", "ldy"):
        sub.add_argument(f"--{name}", type=int, help=f"row stride of {name[2].upper()} in elements (default: its row)")
    sub.add_argument("--mask", action="store_true", help="with a mask of bytes, (rows,n)")
    sub.add_argument("--causal", action="store_true", help="row r keeps the columns up to r")


def _softmax(o: Namespace) -> Root:
    from simgpu.operators import Band, Softmax, SoftmaxProblem

    band = Band(o.rows, -o.rows, 1) if o.causal else None
    return Softmax(SoftmaxProblem(o.rows, o.n, o.dtype, o.scale, o.ldx, o.ldy, o.mask, band), o.target, o.policy)


def _attention_options(sub: ArgumentParser) -> None:
    sub.add_argument("-L", "--lq", type=int, required=True, help="queries, and keys unless --lk")
    sub.add_argument("--lk", type=int, help="keys (default: as many as queries)")
    sub.add_argument("-d", type=int, required=True, metavar="D", help="head dimension, a multiple of 16")
    sub.add_argument("--batch", type=int, default=1, help="batch (default: 1)")
    sub.add_argument("--heads", type=int, default=1, help="query heads (default: 1)")
    sub.add_argument("--kv-heads", type=int, default=0, help="heads of K and V (default: as many as query heads)")
    sub.add_argument("--causal", action="store_true", help="no query sees a later key")
    sub.add_argument("--window", type=int, help="a query sees fewer than this many keys before its own")


def _fused_options(sub: ArgumentParser) -> None:
    _attention_options(sub)
    sub.add_argument("--values", default="mfma", help="under policy published, what computes P V: mfma (default) or fma")


def _attention_problem(o: Namespace) -> Any:
    from simgpu.operators import AttentionProblem

    return AttentionProblem(o.lq, o.lk or o.lq, o.d, o.heads, o.kv_heads, o.batch, o.causal, o.window, dtype=o.dtype)


def _attention(o: Namespace) -> Root:
    from simgpu.operators import FusedAttention

    return FusedAttention(_attention_problem(o), o.target, o.policy, o.values)


def _unfused(o: Namespace) -> Root:
    from simgpu.operators import UnfusedAttention

    return UnfusedAttention(_attention_problem(o), o.target, o.policy)


OPERATORS: dict[str, tuple[str, Callable[[ArgumentParser], None], Callable[[Namespace], Any]]] = {
    "gemm": ("C (m,n) = alpha * op(A) (m,k) @ op(B) (k,n) + beta * C, row-major", add_gemm_options, tree_of),
    "conv2d": ("Y (n,oc,oh,ow) = X (n,ic,ih,iw) convolved with W (oc,ic/groups,kh,kw)", _conv2d_options, _conv2d),
    "softmax": ("softmax of the rows of X (rows,n)", _softmax_options, _softmax),
    "attention": ("fused attention: softmax(Q K^T / sqrt(d)) V", _fused_options, _attention),
    "unfused": ("attention as three kernels, the paper's baseline", _attention_options, _unfused),
}
