"""Reports of a compiled kernel and its last launch, per line of its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from triton.runtime.jit import JITFunction

from simgpu.engine.accounts import bytes_moved
from simgpu.hardware.errors import LaunchError
from simgpu.triton.instructions import executed_instructions
from simgpu.triton.kernels import compiled_kernels
from simgpu.triton.session import LoadedBinary
from simgpu.triton.usage import Launched

_READS = ("global_read_bytes", "scalar_read_bytes")


@dataclass(frozen=True)
class LineReport:
    """Counts of a source line.

    >>> import numpy as np, triton, triton.language as tl
    >>> import simgpu.triton
    >>> @triton.jit
    ... def fill(x):
    ...     tl.store(x + tl.arange(0, 256), 1.0)
    >>> with simgpu.triton.device("mi300x"):
    ...     launched = fill[(1,)](np.empty(256, np.float32))
    >>> line = report(fill).lines[0]   # the line of `tl.store`
    >>> line.write_bytes, line.matrix
    (1024, 0)
    """

    source: str  # `file:line`
    instructions: int  # wave-instructions
    matrix: int  # matrix instructions among them
    read_bytes: int  # bytes that lanes read from device memory
    write_bytes: int  # bytes that lanes wrote to device memory
    lds_bytes: int  # bytes that lanes read from and wrote to LDS
    bank_conflicts: int | None  # clocks; None if not counted


@dataclass(frozen=True)
class KernelReport:
    """A kernel and its last launch.

    >>> import numpy as np, triton, triton.language as tl
    >>> import simgpu.triton
    >>> @triton.jit
    ... def fill(x):
    ...     tl.store(x + tl.arange(0, 256), 1.0)
    >>> with simgpu.triton.device("mi300x"):
    ...     launched = fill[(1,)](np.empty(256, np.float32))
    >>> found = report(fill)
    >>> found.vgprs, found.waves_per_simd, found.limited_by
    (4, 8, 'the hardware')
    """

    kernel: str
    target: str
    grid: tuple[int, int, int]
    warps: int
    vgprs: int  # per lane, as the hardware allocates for the kernel
    agprs: int  # per lane
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    private_bytes: int
    lds_bytes: int
    waves_per_simd: int  # waves that fit a SIMD
    limited_by: str  # their limit: "registers", "LDS" or "the hardware"
    matrix: Mapping[str, int]  # wave-instructions by mnemonic
    bank_conflicts: int | None  # clocks; None unless launched with check="performance"
    counters: Mapping[str, int]  # see docs/reference/counters.md
    fidelity: Mapping[str, int]  # see docs/reference/counters.md
    lines: tuple[LineReport, ...]  # by number of instructions, most first

    def document(self) -> dict[str, Any]:
        """Returns the report for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(_report_lines(self))


def report(kernel: Any) -> KernelReport:
    """Returns the report of a kernel's last launch.

    kernel: the function under `@triton.jit` (or autotune, heuristics), or the result of `kernel[grid](...)`.
    Raises LaunchError if it was not launched on a simulated device.

    >>> import numpy as np, triton, triton.language as tl
    >>> import simgpu.triton
    >>> @triton.jit
    ... def fill(x):
    ...     tl.store(x + tl.arange(0, 256), 1.0)
    >>> with simgpu.triton.device("mi300x"):
    ...     launched = fill[(1,)](np.empty(256, np.float32))
    >>> print(report(fill))
    fill on gfx942: grid (1, 1, 1), 4 waves a workgroup
    ...
    """
    launched = _last(kernel)
    info, chip = launched.kernel.info, launched.kernel.module.device.descriptor
    total, accum = info.descriptor.vgprs, info.descriptor.accum_offset
    arch = min(accum or total, total)
    acc = total - arch if accum else info.agpr_count
    groups = chip.lds_bytes // chip.lds_allocation(launched.lds_bytes) if launched.lds_bytes else chip.max_waves_per_simd
    limits = {
        "registers": min(chip.waves_from_vgprs(arch, acc), chip.waves_from_sgprs(info.descriptor.sgprs)),
        "LDS": groups * launched.warps // chip.simds_per_cu or 1,
    }
    tightest = min(limits, key=lambda name: limits[name])
    waves = min(limits[tightest], chip.max_waves_per_simd)
    counters = launched.run.counters
    matrix: Counter[str] = Counter()
    for _address, inst, times in executed_instructions(launched):
        if inst.spec.kind == "matrix":
            matrix[inst.mnemonic] += times
    return KernelReport(
        info.name, info.target, launched.grid, launched.warps, arch, acc, info.sgpr_count, info.vgpr_spill_count,
        info.sgpr_spill_count, info.private_segment_size, launched.lds_bytes, waves,
        tightest if waves < chip.max_waves_per_simd else "the hardware", dict(matrix),
        counters.get("lds_bank_conflicts"), counters, launched.run.fidelity, tuple(_lines(launched)),
    )  # fmt: skip


def _last(kernel: Any) -> Launched:
    inner = kernel
    while not isinstance(inner, JITFunction) and hasattr(inner, "fn"):
        inner = inner.fn
    entries = compiled_kernels(inner) if isinstance(inner, JITFunction) else [kernel]
    handles = (getattr(entry, "function", None) for entry in entries)
    launches = [handle.last for handle in handles if isinstance(handle, LoadedBinary) and handle.last is not None]
    if not launches:
        raise LaunchError(f"{kernel!r} was not launched on a simulated device: launch it inside simgpu.triton.device first")
    return max(launches, key=lambda launched: launched.when)


def _lines(launched: Launched) -> list[LineReport]:
    run, start, code = launched.run, launched.kernel.info.start, launched.kernel.module.code
    counts: dict[str, Counter[str]] = {}
    for address, inst, times in executed_instructions(launched):
        row = counts.setdefault(code.source_line(address) or "(no line)", Counter())
        offset = address - start
        row["instructions"] += times
        row["matrix"] += times if inst.spec.kind == "matrix" else 0
        row["conflicts"] += run.lds_conflicts.get(offset, 0)
        if offset in run.lanes:
            row.update({key: nbytes * run.lanes[offset] for key, nbytes in bytes_moved(inst).items()})
    counted = "lds_bank_conflicts" in run.counters
    rows = (
        LineReport(
            source, row["instructions"], row["matrix"], sum(row[key] for key in _READS), row["global_write_bytes"],
            row["lds_read_bytes"] + row["lds_write_bytes"], row["conflicts"] if counted else None,
        )
        for source, row in counts.items()
    )
    return sorted(rows, key=lambda row: (-row.instructions, row.source))


def _report_lines(found: KernelReport) -> Iterator[str]:
    unknown = 'not counted: launch with check="performance"'
    conflicts = unknown if found.bank_conflicts is None else f"{found.bank_conflicts:,} clocks"
    yield f"{found.kernel} on {found.target}: grid {found.grid}, {found.warps} waves a workgroup"
    yield f"  registers       {found.vgprs} VGPRs, {found.agprs} AccVGPRs, {found.sgprs} SGPRs"
    private = f"{found.private_bytes} bytes of private memory a lane"
    yield f"  spills          {found.vgpr_spills} VGPRs, {found.sgpr_spills} SGPRs; {private}"
    yield f"  LDS             {found.lds_bytes:,} bytes a workgroup; bank conflicts: {conflicts}"
    yield f"  waves per SIMD  {found.waves_per_simd}, limited by {found.limited_by}"
    matrix = ", ".join(f"{times:,} {name}" for name, times in found.matrix.items())
    yield f"  matrix          {matrix or 'none'}"
    moved = found.counters
    yield (
        f"  memory          {moved['global_read_bytes']:,} bytes read, {moved['global_write_bytes']:,} written; "
        f"{moved['unique_read_bytes']:,} and {moved['unique_write_bytes']:,} distinct"
    )
    yield "  fidelity        " + ", ".join(f"{times:,} {name}" for name, times in found.fidelity.items() if times)
    yield f"  {'line':<32}{'instructions':>13}{'matrix':>9}{'read':>13}{'written':>11}{'LDS':>13}{'conflicts':>11}"
    for row in found.lines:
        lost = "-" if row.bank_conflicts is None else f"{row.bank_conflicts:,}"
        yield (
            f"  {row.source:<32}{row.instructions:>13,}{row.matrix:>9,}{row.read_bytes:>13,}{row.write_bytes:>11,}"
            f"{row.lds_bytes:>13,}{lost:>11}"
        )
