"""Document of launches: one part per kernel, and the parts that all share."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.device import Buffer
from simgpu.hardware import mfma
from simgpu.hardware.errors import TargetError
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.timing.lines import lines
from simgpu.tools.page.code import code_document
from simgpu.tools.page.fragments import instruction
from simgpu.tools.page.lds import accesses, lds_document
from simgpu.tools.page.traffic import Outside, traffic_document
from simgpu.tools.page.watching import WatchedLaunch, Watching
from simgpu.tools.page.waves import waves_document

if TYPE_CHECKING:
    from simgpu import Kernel, Run
    from simgpu.debugger.snapshot import Snapshot

MODIFIERS = ("cbsz", "abid", "blgp")
WRONG_PLACES = ("out-of-bounds", "use-after-free", "buffer")  # findings whose place is an address
MOST_VISITS = 16  # visits of one matrix instruction whose values a page holds
MOST_VALUES = 1_500_000  # bytes of registers in all visits


def launches_document(launches: Sequence[WatchedLaunch], folders: Sequence[Path] = ()) -> dict[str, Any]:
    """Returns `kernels`, one document per launch, and `fragments`, one for each of their matrix instructions.

    folders: may hold sources.
    """
    fragments: dict[str, dict[str, Any]] = {}
    return {"kernels": [_kernel(one, folders, fragments) for one in launches], "fragments": list(fragments.values())}


def observe(kernel: Kernel, **call: Any) -> tuple[Run, dict[str, Any]]:
    """Launches a kernel and returns the run and the document of its page. Raises as `Kernel.launch`."""
    watching = Watching()
    run = watching.launch(kernel, **call)
    return run, launches_document(watching.launches, [Path.cwd()])


def join_documents(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the documents of several pages."""
    fragments = {one["name"]: one for document in documents for one in document["fragments"]}
    return {"kernels": [one for document in documents for one in document["kernels"]], "fragments": list(fragments.values())}


def _kernel(one: WatchedLaunch, folders: Sequence[Path], fragments: dict[str, dict[str, Any]]) -> dict[str, Any]:
    kernel, run = one.kernel, one.run
    code, info = kernel.module.code, kernel.info
    extents = {name: _int_list(one.call[name]) for name in ("grid", "global_size", "block") if one.call.get(name) is not None}
    rows = one.rows
    matrix = _matrix(rows, code.target, fragments)
    shown = code_document(
        code, info, rows, run, one.findings, one.origins, lines(one.timed) if one.timed else (), folders,
        one.touches.distinct if one.touches else None,
    )
    numbers = {offset: number for number, offset in enumerate(shown["columns"].get("offset", [0]))}
    in_lds = accesses(one.visits)
    return {
        "name": info.title, "target": code.target, **extents, "resources": info.declared_resources, "error": one.error,
        "instructions": run.instructions if run else 0, "seconds": run.seconds if run else 0,
        "counters": dict(run.counters) if run else {}, "fidelity": dict(run.fidelity) if run else {},
        "inexact": [[entry.mnemonic, entry.fidelity.kind, entry.count, entry.fidelity.why] for entry in run.inexact] if run else [],
        "code": shown,
        "matrix": matrix,
        **({"traffic": traffic_document(one.touched, *_arguments(one), _outside_accesses(one, numbers))} if one.touched else {}),
        **({"waves": waves_document(one.timed, numbers)} if one.timed and len(one.timed.result.log) else {}),
        **({"lds": lds_document(code.target, in_lds, numbers)} if in_lds else {}),
        **({"stops": list(one.stops)} if one.stops else {}),
        "visits": _visits({offset: inst for offset, inst, _ in rows if inst is not None}, one.visits, matrix),
    }  # fmt: skip


def _arguments(one: WatchedLaunch) -> tuple[dict[int, str], dict[int, tuple[int, int]]]:
    """Returns names of the launch's buffers by address, and for matrices the rows and the bytes of a row."""
    names, shapes = {}, {}
    for number, (argument, value) in enumerate(zip(one.kernel.info.named_arguments, one.call.get("args", ()), strict=False)):
        if not isinstance(value, Buffer):
            continue
        names[value.address] = argument.name or f"argument {number}"
        width = one.widths.get(argument.name, 0)
        if value.form is not None and len(value.form.shape) > 1:
            width = value.form.shape[-1] * value.form.dtype.itemsize
        if width:
            shapes[value.address] = (value.nbytes // width, width)
    return names, shapes


def _outside_accesses(one: WatchedLaunch, rows: Mapping[int, int]) -> list[Outside]:
    """Returns accesses beyond a buffer, either clipped by a buffer resource or found by checked mode."""
    touches, start = one.touches, one.kernel.info.start
    clipped = [
        Outside(base, rows[offset], lanes) for offset, (lanes, base) in (touches.beyond if touches else {}).items()
    ]
    found = [
        Outside(int(finding.place, 16), rows[finding.pc - start], wrong=f"{finding.kind}: {finding.message}")
        for finding in one.findings
        if finding.kind in WRONG_PLACES and finding.place.startswith("0x") and finding.pc - start in rows
    ]
    return clipped + found


def _int_list(extents: Any) -> list[int]:
    return [int(extent) for extent in (extents if isinstance(extents, (tuple, list)) else [extents])]


def _matrix(
    rows: Sequence[tuple[int, Instruction | None, str]], target: str, fragments: dict[str, dict[str, Any]]
) -> dict[int, str]:
    """Returns the key in `fragments` of each matrix instruction, by row."""
    found = {}
    known: dict[tuple[object, ...], str] = {}
    for number, (_, inst, _) in enumerate(rows):
        if inst is None or inst.spec.kind != "matrix":
            continue
        modifiers = {name: int(inst.mods.get(name, 0)) for name in MODIFIERS}
        same = (inst.mnemonic, *modifiers.values())
        if same not in known:
            try:
                made = instruction(row_of(inst, target), modifiers)
            except TargetError:  # a reserved format has no layout
                continue
            known[same] = made["key"]
            fragments.setdefault(made["key"], made)
        found[number] = known[same]
    return found


def row_of(inst: Instruction, target: str) -> MatrixInstruction:
    """Returns the table's row of a decoded matrix instruction, with the formats that it names."""
    return mfma.find(inst.mnemonic, target).with_formats(int(inst.mods.get("cbsz", 0)), int(inst.mods.get("blgp", 0)))


def _visits(code: Mapping[int, Instruction], snapshots: Sequence[Snapshot], matrix: Mapping[int, str]) -> dict[int, Any]:
    """Returns registers of matrix instructions at the first wave's visits. A row has a list of operands' words, base64 of
    uint32.

    C is D before the instruction; a page shows both.
    """
    rows = {offset: number for number, offset in enumerate(code)}
    found: dict[int, list[dict[str, str]]] = {}
    room = MOST_VALUES
    for at, before in enumerate(snapshots):
        number = rows.get(before.pc)
        inst = code.get(before.pc)
        if inst is None or number is None or number not in matrix or len(found.get(number, ())) == MOST_VISITS:
            continue
        after = snapshots[at + 1] if at + 1 < len(snapshots) else None
        if after is None or after.pc != before.pc + inst.size:
            continue
        words = _words(inst, before, after)
        room -= sum(value.nbytes for value in words.values())
        if room < 0:
            break
        found.setdefault(number, []).append({name: base64.b64encode(value.tobytes()).decode() for name, value in words.items()})
    return found


def _words(inst: Instruction, before: Snapshot, after: Snapshot) -> dict[str, np.ndarray]:
    """Returns uint32 (registers, 64) of each operand in registers."""
    sources = {"A": "src0", "B": "src1", "IDX" if inst.mods.get("sparse") or "smfmac" in inst.mnemonic else "C": "src2"}
    sources |= {"SCALE_A": "scale_src0", "SCALE_B": "scale_src1"}
    found = {}
    for name, argument in sources.items():
        operand = inst.args.get(argument)
        if isinstance(operand, Reg) and operand.file in "va":
            found[name] = before.registers(operand)
    d = inst.args["vdst"]
    assert isinstance(d, Reg)
    if "smfmac" in inst.mnemonic:
        found["C"] = before.registers(d)
    return {**found, "D": after.registers(d)}
