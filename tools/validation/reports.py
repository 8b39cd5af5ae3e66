"""A report of a code object's certain findings, as Markdown for its maintainers: bytes, clocks, a change, and how to see it."""

from __future__ import annotations

from collections.abc import Iterator

from simgpu.checks.lint import lint_causes
from simgpu.checks.lint.causes import TOLERATED
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.isa import decode, text

AROUND = 2  # instructions before the earlier and after the later one
MOST = 12  # instructions between them; of more, the first and last half
CAUSES = 8  # causes of an object


def report(code: CodeObject, path: str, commit: str) -> str:
    """Returns the report of one object. path, commit: its place in its repository."""
    parts = [f"# {path}", "", f"Commit {commit[:12]}, {code.target}.", ""]
    for kernel in code.kernels.values():
        found = [f for f in lint_causes(code, kernel) if f.severity == "error" and f.certain and f.rule not in TOLERATED]
        parts.append(f"Kernel `{kernel.title}`: {sum(f.pairs for f in found)} certain errors of {len(found)} causes.")
        for number, finding in enumerate(found[:CAUSES], 1):
            parts += ["", f"## {number}. {finding.kind}: {finding.rule}", "", *_describe(code, kernel, finding)]
    parts += ["", "## To see it", "", f"    git show {commit[:12]}:{path} > k.co", "    simgpu lint k.co", ""]
    return "\n".join(parts)


def _describe(code: CodeObject, kernel: KernelInfo, finding: Finding) -> Iterator[str]:
    yield finding.message + "."
    if finding.pairs > 1:
        yield f"The same holds of {finding.pairs} pairs of instructions of this loop or of straight code; the first:"
    yield ""
    yield from _listing(code, kernel, finding)
    yield ""
    if finding.clocks_taken >= 0:
        lacking = finding.clocks_taken - finding.clocks_between
        verdict = (
            f"{lacking} too few: the wave can read what was there before" if lacking > 0
            else "enough, unless other workgroups, bank conflicts or a miss of L2 hold the operation up"
        )  # fmt: skip
        yield (
            "A model of the compute unit, on which the workgroup's waves come here at the same time, puts "
            f"{finding.clocks_between} clocks between the two and gives the operation {finding.clocks_taken}: {verdict}."
        )
    yield f"Proposed change: {_change(kernel, finding)}"


def _change(kernel: KernelInfo, finding: Finding) -> str:
    before = f"before `{finding.text}` at +{finding.pc - kernel.start:#x}."
    if finding.kind == "missing-wait":
        return f"{finding.message.partition(': ')[2].partition(' is needed')[0]} {before}"
    if finding.kind == "hazard":
        lacking = finding.needed - finding.found
        return f"{lacking} wait state{'s' if lacking > 1 else ''} (`s_nop {min(8, lacking) - 1}`) {before}"
    return f"give {finding.place} a value {before}"


def _listing(code: CodeObject, kernel: KernelInfo, finding: Finding) -> Iterator[str]:
    """Yields the instructions from the earlier to the later one, with their bytes."""
    start = finding.pc if finding.other_pc is None or finding.other_pc > finding.pc else finding.other_pc
    rows = list(_instructions(code, kernel, finding.pc))
    places = [pc for pc, _, _ in rows]
    first = max(0, (places.index(start) if start in places else len(rows) - 1) - AROUND)
    shown = rows[first:]
    cut = len(shown) - MOST if len(shown) > MOST + 1 else 0
    for at, (pc, raw, words) in enumerate(shown):
        if cut and at == MOST // 2:
            yield f"             ... {cut} instructions"
        if cut and MOST // 2 <= at < MOST // 2 + cut:
            continue
        mark = "<- later" if pc == finding.pc else "<- earlier" if pc == finding.other_pc else ""
        yield f"    +{pc - kernel.start:#07x}  {_words(raw):26}  {words:70} {mark}".rstrip()


def _words(raw: bytes) -> str:
    """Formats the instruction's words, as `simgpu disasm` prints them."""
    return " ".join(f"{int.from_bytes(raw[at : at + 4], 'little'):08X}" for at in range(0, len(raw), 4))


def _instructions(code: CodeObject, kernel: KernelInfo, last: int) -> Iterator[tuple[int, bytes, str]]:
    raw, at = code.read(kernel.entry, kernel.code_size), 0
    while at < len(raw) and kernel.entry + at <= last:
        inst = decode(raw, at, code.target)
        yield kernel.entry + at, raw[at : at + inst.size], text(inst)
        at += inst.size
