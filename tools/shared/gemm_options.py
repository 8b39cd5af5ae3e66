"""Options that describe a GEMM, the same for every verb."""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgpu.operators.gemm.tree import TiledComputation

OPERATORS = ("gemm",)


def add_gemm_options(parser: ArgumentParser) -> None:
    """gemm's own options, but for the type."""
    gemm = parser.add_argument_group(
        "gemm", "C (m,n) = alpha * op(A) (m,k) @ op(B) (k,n) + beta * C, row-major"
    )
    for name in "mnk":
        gemm.add_argument(f"-{name}", type=int, required=True, metavar=name.upper(), help=f"extent {name}")
    gemm.add_argument("--trans-a", action="store_true", help="A is stored transposed, (k,m)")
    gemm.add_argument("--trans-b", action="store_true", help="B is stored transposed, (n,k)")
    gemm.add_argument("--alpha", type=finite_number, default=1.0, help="factor of the product (default: 1)")
    gemm.add_argument(
        "--beta", type=finite_number, default=0.0, help="factor of C; 0 (default): C is not read"
    )
    for name in ("lda", "ldb", "ldc"):
        gemm.add_argument(
            f"--{name}", type=int, help=f"row stride of {name[2].upper()} in elements (default: its row)"
        )
    gemm.add_argument("--batch", type=int, default=1, help="products, each matrix right behind the one before (default: 1)")
    gemm.add_argument("--bias", action="store_true", help="add a row of n elements to each row of C")
    gemm.add_argument("--activation", default="none", help="applied last: none (default), relu, gelu or silu")


def finite_number(text: str) -> float:
    """A number that f32 holds, as a float rounded to f32, which is how the kernel takes it."""
    import struct

    try:
        (value,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is past the largest f32") from None
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not finite")
    return float(value)


def tree_of(options: Namespace) -> TiledComputation:
    """The computation's root node; raises LaunchError and TargetError as its constructor."""
    from simgpu.operators.gemm.tree import TiledComputation

    return TiledComputation(
        options.m,
        options.n,
        options.k,
        target=options.target,
        policy=options.policy,
        dtype=options.dtype,
        trans_a=options.trans_a,
        trans_b=options.trans_b,
        alpha=options.alpha,
        beta=options.beta,
        lda=options.lda,
        ldb=options.ldb,
        ldc=options.ldc,
        **{name: getattr(options, name) for name in ("batch", "bias", "activation") if hasattr(options, name)},
    )


def problem_document(tree: TiledComputation) -> dict[str, Any]:
    """Operator, target, policy and sizes, for JSON."""
    p, d = tree.problem, tree.descriptor
    return {
        "operator": "gemm",
        "target": d.name or d.arch,
        "arch": d.arch,
        "policy": tree.derivation.policy,
        "problem": {name: getattr(p, name) for name in p.__dataclass_fields__},
    }


def headline(tree: TiledComputation) -> str:
    """One line: what is computed, where, under which policy."""
    p, d = tree.problem, tree.descriptor
    policy = tree.derivation.policy
    times = "" if p.batch == 1 else f"{p.batch} x "
    return f"gemm {times}{p.m} x {p.n} x {p.k} {p.dtype} on {d.name or d.arch} ({d.arch}), {policy} tiles"
