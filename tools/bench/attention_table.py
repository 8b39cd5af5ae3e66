"""`simgpu bench attention --table`: whole problems on the simulator with their counters, next to the paper's figures."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.errors import LaunchError
from simgpu.tools.shared.console import print_json, progress, show, table
from simgpu.tools.shared.launching import launch_work

if TYPE_CHECKING:
    from simgpu import Run
    from simgpu.operators import AttentionProblem
    from simgpu.operators.tree import Root

D = 128  # the paper's head dimension
LENGTHS = (4096, 8192, 16384, 32768)  # Table 3's
# Table 3: milliseconds of the fused (MFMA+MFMA) and the unfused kernels; section Results, HBM traffic: decimal MB.
PAPER_MS = {4096: (27.9, 26.6), 8192: (83.5, 104.6), 16384: (279.3, 418.1), 32768: (991.1, 1666.6)}
PAPER_MB = {16384: (34, 4329), 32768: (None, 17000)}
MEMORY_PER_BYTE = 1.5  # host bytes for a byte of the device: the byte, and two bitmaps of bytes touched
SLOTS = ("mfma", "valu", "salu", "vmem", "lds", "branch", "wait")


class TableAction(Action):
    """Sets `--table`. The sizes of a single computation are then not required, since the table has its own."""

    def __call__(self, parser: ArgumentParser, options: Namespace, values: Any, name: str | None = None) -> None:
        options.table = True
        for action in parser._actions:
            action.required = False


def configure(parser: ArgumentParser) -> None:
    """Adds the table's options to `simgpu bench attention`."""
    parser.add_argument(
        "--table", action=TableAction, nargs=0, default=False, help="whole problems on the simulator, next to the paper's figures"
    )
    parser.add_argument(
        "--lengths",
        default=",".join(map(str, LENGTHS)),
        metavar="L,…",
        help=f"the table's (default: {','.join(map(str, LENGTHS))})",
    )


@dataclass(frozen=True)
class ComputationRow:
    """Counters of one computation."""

    length: int
    kernel: str
    launches: int
    hbm_bytes: int  # each byte once per launch and direction
    past_l2_bytes: int  # bytes that the time model's L2 passes on
    lds_read_bytes: int
    lds_write_bytes: int
    mfma: int  # issue slots of each class: wave-instructions
    valu: int
    salu: int
    vmem: int
    lds: int
    branch: int
    wait: int
    compared_rows: int
    wrong: int  # elements outside their bound
    max_error: float


def run(options: Namespace) -> int:
    """Runs every length and kernel; status 1 if a compared element is wrong."""
    lengths, d = _lengths(options.lengths), options.d or D
    rows = [measure(kernel, length, d, options.target, options.threads) for length in lengths for kernel in TREES]
    if options.json:
        print_json({
            "target": options.target, "d": d, "rows": [_document(row) for row in rows],
            "paper": {str(n): {"fused_ms": ms[0], "unfused_ms": ms[1]} for n, ms in PAPER_MS.items()},
        })  # fmt: skip
    else:
        show(f"Attention, f32, one head, d = {d} on {options.target}: whole problems, every instruction executed")
        show(_traffic(rows), _slots(rows))
        show(
            f"\n{rows[0].compared_rows:,} rows of each result compared with float64: "
            + ("all in their bound" if _right(rows) else "WRONG")
        )
    return 0 if _right(rows) else 1


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(word) for word in text.split(",")]
    except ValueError:
        raise LaunchError(f"--lengths {text}: give whole numbers with commas between them") from None
    if any(length < 1 for length in lengths):
        raise LaunchError(f"--lengths {text}: give 1 or more")
    return lengths


def _fused_tree(problem: AttentionProblem, target: str) -> Root:
    from simgpu.operators import FusedAttention

    return FusedAttention(problem, target)


def _matrix(problem: AttentionProblem, target: str) -> Root:
    from simgpu.operators import FusedAttention

    return FusedAttention(problem, target, "published")


def _vector(problem: AttentionProblem, target: str) -> Root:
    from simgpu.operators import FusedAttention

    return FusedAttention(problem, target, "published", "fma")


def _unfused_tree(problem: AttentionProblem, target: str) -> Root:
    from simgpu.operators import UnfusedAttention

    return UnfusedAttention(problem, target)


TREES: dict[str, Callable[[AttentionProblem, str], Root]] = {
    "register-chained": _fused_tree, "MFMA+MFMA": _matrix, "MFMA+FMA": _vector, "unfused": _unfused_tree,
}  # fmt: skip


def measure(kernel: str, length: int, d: int, target: str, threads: int | None) -> ComputationRow:
    """Runs one computation whole. Raises LaunchError and TargetError as its tree."""
    from simgpu import Device, asm
    from simgpu.operators import AttentionProblem
    from simgpu.tools.cases.attention_rows import compare_rows
    from simgpu.tools.shared.arrays import require_memory

    problem = AttentionProblem(length, length, d)
    tree = TREES[kernel](problem, target)
    emitted = asm.emit(tree)
    scratch = sum(size for _, size in emitted.scratch)
    needed = int(MEMORY_PER_BYTE * (2 * problem.bytes_once + scratch)) + (1 << 30)
    require_memory(needed, f"{kernel} attention of {length} x {length}")
    source = np.random.default_rng(0)
    q, k, v = (source.standard_normal((length, d), dtype=np.float32) for _ in range(3))
    device = Device(target, threads=threads)
    buffers = [device.upload(array) for array in (q, k, v, np.full_like(q, np.nan))]
    runs: list[Run] = []
    past_l2_bytes = 0.0
    for step, call in asm.Prepared(emitted, device).calls(*buffers):
        past_l2_bytes += launch_work(step.name, partial(step.time, **call)).past_l2_bytes
        runs.append(launch_work(f"{kernel}, L = {length:,}", partial(step.launch, **call)))
    with progress("comparing with float64"):
        verdict = compare_rows(problem, q, k, v, buffers[3].download(np.float32, q.shape))

    def total(*names: str) -> int:
        return sum(run.counters[name] for run in runs for name in names)

    return ComputationRow(
        length, kernel, len(runs), total("unique_read_bytes", "unique_write_bytes"),
        round(past_l2_bytes),
        total("lds_read_bytes"), total("lds_write_bytes"),
        compared_rows=verdict.rows, wrong=verdict.wrong, max_error=verdict.max_error,
        **{name: total(f"instructions_{name}") for name in SLOTS},
    )  # fmt: skip


def _right(rows: list[ComputationRow]) -> bool:
    return not any(row.wrong for row in rows)


def _document(row: ComputationRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _traffic(rows: list[ComputationRow]) -> Any:
    """Makes the table of bytes next to the paper's; the ratio is unfused to fused (1 + L/d, erratum E20)."""
    fused = {row.length: row.hbm_bytes for row in rows if row.kernel == "register-chained"}
    lines = []
    for row in rows:
        mine = row.kernel == "unfused"
        ms = PAPER_MS.get(row.length) if row.kernel in ("MFMA+MFMA", "unfused") else None
        mb = PAPER_MB.get(row.length, (None, None))[mine]
        lines.append((
            f"{row.length:,}", row.kernel, row.launches, f"{row.hbm_bytes / 1e6:,.1f}", f"{mb:,}" if mb else "",
            f"{row.hbm_bytes / fused[row.length]:.1f}", f"{row.past_l2_bytes / 1e6:,.1f}",
            f"{row.lds_read_bytes / 1e6:,.1f}", f"{row.lds_write_bytes / 1e6:,.1f}",
            f"{ms[mine]:,.1f}" if ms else "", f"{ms[1] / ms[0]:.2f}" if ms and not mine else "",
        ))  # fmt: skip
    columns = (
        "L",
        "kernel",
        "launches",
        "HBM MB",
        "paper",
        "x fused",
        "past L2 MB",
        "LDS read MB",
        "LDS write MB",
        "paper ms",
        "speed-up",
    )
    return table("Traffic: HBM bytes each once per launch and direction, and past L2 in the time model", columns, lines, left=2)


def _slots(rows: list[ComputationRow]) -> Any:
    """Makes the table of issue slots: millions of wave-instructions by class."""
    lines = [
        (f"{row.length:,}", row.kernel, *(f"{getattr(row, name) / 1e6:,.2f}" for name in SLOTS), f"{row.mfma / _all(row):.0%}",
         f"{row.max_error:.1e}")
        for row in rows
    ]  # fmt: skip
    columns = ("L", "kernel", *(name.upper() for name in SLOTS), "MFMA share", "max error")
    return table("Issue slots, millions of wave-instructions", columns, lines, left=2)


def _all(row: ComputationRow) -> int:
    return sum(getattr(row, name) for name in SLOTS)
