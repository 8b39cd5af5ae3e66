"""A kernel's code for a page: instructions with the cost of each, their source lines, jumps, live registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.checks.lint.registers import FILES
from simgpu.checks.lint.steps import LintStep
from simgpu.engine.accounts import bytes_moved, instruction_class
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.isa.fidelity import fidelity_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.tools.shared.source_files import source_lines
from simgpu.tools.tables.kernel_use import listing
from simgpu.tools.tables.live_registers import live_registers, ranges

if TYPE_CHECKING:
    from simgpu import Finding, Run
    from simgpu.timing.lines import TimedLine

MOST_LINES = 20_000  # of a source file in a page


def listing_rows(code: CodeObject, info: KernelInfo) -> list[tuple[int, Instruction | None, str]]:
    """Returns (offset from the kernel's first instruction, instruction, text) without the padding after the last one.

    Instructions before the first load arguments on GPUs that do not preload them (LLVM AMDGPUUsage, "Preloaded Kernel
    Arguments").
    """
    skipped = info.start - info.entry
    rows = [(offset - skipped, inst, text) for offset, inst, text in listing(code, info) if offset >= skipped]
    while len(rows) > 1 and (rows[-1][1] is None or rows[-1][2].startswith(("s_nop", "s_code_end"))):
        rows.pop()
    return rows


Rows = Sequence[tuple[int, Instruction | None, str]]


def _called_rows(code: CodeObject, info: KernelInfo, ran: Set[int]) -> Rows:
    """Returns rows of the functions that a launch ran, as `listing_rows` those of its kernel. ran: offsets of instructions."""
    rows = []
    for function in code.functions:
        first = function.start - info.start
        if any(offset in ran for offset in range(first, first + function.code_size, 4)):
            rows += [(first + offset, inst, text) for offset, inst, text in listing(code, function)]
    return rows


def code_document(
    code: CodeObject, info: KernelInfo, rows: Rows, run: Run | None = None, findings: Sequence[Finding] = (),
    origins: Mapping[str, str] | None = None, timed: Sequence[TimedLine] = (), folders: Sequence[Path] = (),
    distinct: Mapping[int, int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Returns the kernel's instructions in columns, a row each, and those of functions that it called.

    rows: from `listing_rows`; run: its counts are shown; origins: Python lines by line of the assembly (`EmittedKernel.origins`);
    timed: the time model's lines; folders: where source files may be; distinct: bytes of device memory that each instruction
    touched, each once, by offset.
    """
    profile, lanes, lost = (run.profile, run.lanes, run.lds_conflicts) if run else ({}, {}, {})
    lines = {line.offset: line for line in timed}
    own = len(rows)
    rows = [*rows, *_called_rows(code, info, {*profile, *lines})]
    at = {offset: number for number, (offset, _, _) in enumerate(rows)}
    steps = [LintStep(info.start + offset, inst) if inst is not None else None for offset, inst, _ in rows]
    live = live_registers(steps, {info.start + offset: number for offset, number in at.items()})
    found = [code.debug.users_line(info.start + offset) for offset, _, _ in rows]
    places = _places([str(line or "") for line in found], origins or {})
    beside = dict.fromkeys(Path(line.directory) for line in found if line is not None and line.directory)
    names = list(dict.fromkeys(filter(None, places)))
    number = {name: which for which, name in enumerate(names)}
    columns: dict[str, list[Any]] = {
        "offset": [offset for offset, _, _ in rows],
        "at": [code.address_name(info, info.start + offset) if number >= own else "" for number, (offset, _, _) in enumerate(rows)],
        "text": [text for _, _, text in rows],
        "class": [instruction_class(inst) if inst is not None else "" for _, inst, _ in rows],
        "executions": [profile.get(offset, 0) if run else lines[offset].hits if offset in lines else 0 for offset, _, _ in rows],
        "line": [number.get(place, -1) for place in places],
        "vgprs": [(held >> FILES["v"] & (1 << 256) - 1).bit_count() for held in live],
        "agprs": [(held >> FILES["a"] & (1 << 256) - 1).bit_count() for held in live],
        "sgprs": [(held >> FILES["s"] & (1 << 128) - 1).bit_count() for held in live],
        "bytes": [lanes.get(offset, 0) * _bytes_of(inst) for offset, inst, _ in rows],
        "distinct": [distinct.get(offset, 0) for offset, _, _ in rows] if distinct else [],
        "idle": [64 * profile[offset] - lanes[offset] if offset in lanes and _by_lanes(inst) else 0 for offset, inst, _ in rows],
        "lds_lost": [lost.get(offset, 0) for offset, _, _ in rows],
        "stall": [lines[offset].stall + lines[offset].idle if offset in lines else 0 for offset, _, _ in rows],
        "reason": [_reason(lines.get(offset)) for offset, _, _ in rows],
        "fidelity": [fidelity_of(inst).kind if inst is not None else "unsupported" for _, inst, _ in rows],
    }
    targets = [None if step is None or step.target is None else at.get(step.target - info.start) for step in steps]
    return {
        "columns": {name: values for name, values in columns.items() if any(values)},
        "jumps": [[number, target] for number, target in enumerate(targets) if target is not None],
        "live": [ranges(held) for held in live],
        "lines": names,
        "files": _files(names, (*folders, *beside)),
        "findings": [_finding(finding, at, info.start) for finding in findings],
        "elsewhere": sum(times for offset, times in profile.items() if offset not in at),
    }


def _bytes_of(inst: Instruction | None) -> int:
    """Bytes that a lane loads or stores."""
    return sum(bytes_moved(inst).values()) if inst is not None and inst.spec.memory is not None else 0


def _by_lanes(inst: Instruction | None) -> bool:
    return inst is not None and inst.spec.encoding != "smem"


def _reason(line: TimedLine | None) -> str:
    if line is None or not line.reason:
        return ""
    waits = "; ".join(f"{wait.clocks:,} for {wait.at} {wait.text}" for wait in line.waits[:3])
    return f"{line.reason}{f': {waits}' if waits else ''}"


def _places(lines: list[str], origins: Mapping[str, str]) -> list[str]:
    """Returns file:line of each instruction, or of the Python that emitted it, if known; "" if unknown."""
    return [origins.get(line, "").removeprefix("before ") for line in lines] if origins else lines


def _finding(finding: Finding, at: Mapping[int, int], start: int) -> dict[str, Any]:
    other = None if finding.other_pc is None else at.get(finding.other_pc - start)
    return {
        "kind": finding.kind, "severity": finding.severity, "message": finding.message, "row": at.get(finding.pc - start),
        "other": other, "count": finding.count, "wave": finding.wave, "group": list(finding.workgroup),
        "lanes": list(finding.lanes), "text": str(finding),
    }  # fmt: skip


def _files(names: Sequence[str], folders: Sequence[Path]) -> dict[str, list[str]]:
    """Returns the lines of the source files that exist here, by name; none of a file that is too long for a page."""
    found = {name: source_lines(name, folders) for name in dict.fromkeys(name.rpartition(":")[0] for name in names)}
    return {name: lines for name, lines in found.items() if lines is not None and len(lines) <= MOST_LINES}
