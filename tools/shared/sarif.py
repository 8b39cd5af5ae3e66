"""Findings as SARIF 2.1.0 (OASIS), which code review tools and CI services read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simgpu.engine.finding import times

if TYPE_CHECKING:
    from simgpu import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Sequence[Finding], artifact: str) -> dict[str, Any]:
    """Returns the log of one run. artifact: the checked file, for findings without a known source line."""
    from simgpu.version import VERSION

    used = {finding.kind for finding in findings}
    rules = [{"id": kind, "shortDescription": {"text": kind.replace("-", " ")}} for kind in sorted(used)]
    driver = {"name": "simgpu", "version": VERSION, "rules": rules}
    results = [_result(finding, artifact) for finding in findings]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding, artifact: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "level": finding.severity,
        "message": {"text": finding.message},
        "locations": [_location(finding.kernel, finding.pc, finding.text, finding.source, artifact)],
        "properties": {
            "workgroup": list(finding.workgroup), "wave": finding.wave, "lanes": list(finding.lanes),
            "place": finding.place, "needed": finding.needed, "found": finding.found,
            "rule": finding.rule, "certainty": finding.certainty, "pairs": finding.pairs,
            "clocksBetween": finding.clocks_between, "clocksTaken": finding.clocks_taken,
            "when": finding.when, "emitter": finding.emitter, "otherEmitter": finding.other_emitter,
        },
        "occurrenceCount": max(1, finding.count),
    }  # fmt: skip
    if len(finding.frames) > 1:  # inlined code: the lines that led to it
        result["stacks"] = [_stack(finding.frames)]
    related = []
    if finding.other_pc is not None:
        other = _location(finding.kernel, finding.other_pc, finding.other_text, finding.other_source, artifact)
        related.append({**other, "message": {"text": f"earlier: {finding.other_text}"}})
    for place in finding.places:
        other = _location(finding.kernel, place.pc, place.text, place.source, artifact)
        related.append({**other, "message": {"text": f"the same cause, seen {times(place.count)}: {place.text}"}})
    if related:
        result["relatedLocations"] = related
    return result


def _stack(frames: Sequence[str]) -> dict[str, Any]:
    """Returns the frames of inlined code, innermost first."""
    made = []
    for frame in frames:
        source, _, function = frame.partition(" in ")
        file, _, line = source.rpartition(":")
        place = {"artifactLocation": {"uri": file.replace("\\", "/")}, "region": {"startLine": max(1, int(line))}}
        made.append({"location": {"physicalLocation": place, "message": {"text": function or "the kernel"}}})
    return {"message": {"text": "inlined from"}, "frames": made}


def _location(kernel: str, pc: int, text: str, source: str, artifact: str) -> dict[str, Any]:
    file, _, line = source.rpartition(":")
    place: dict[str, Any] = {"artifactLocation": {"uri": (file if file else artifact).replace("\\", "/")}}
    if file and line.isdecimal() and int(line) > 0:
        place["region"] = {"startLine": int(line)}
    place["address"] = {"absoluteAddress": pc, "kind": "instruction", "name": text}
    logical = [{"name": kernel, "kind": "function"}] if kernel else []
    return {"physicalLocation": place, "logicalLocations": logical}
