"""Measures how many bugs checked mode finds: runs mutants of compilers' kernels in checked mode and tallies the verdicts.

    python -m simgpu.tools.robustness.mutate FOLDER [--only NAME ...] [--limit N] [--seed S] [--threads N] [--json] [--cluster W]

FOLDER has a manifest.json (`corpus`). Of each kernel's waits, nops and barriers that ran, one at a time
is removed or weakened in the code's bytes, one address that was used is moved as far as its field allows, one
granule of registers or half of the LDS is not declared. A mutant is

* found: checked mode reports a finding that it does not report for the kernel itself, or the kernel fails; without a barrier, also
  with waves in another order;
* harmless: `simgpu.checks.lint`, which runs nothing and looks at all paths, finds nothing in it that it does not find in the
  kernel itself (waits, nops, registers), or it is a barrier of a one-wave workgroup, or all accessed memory is still allocated; and
  the adversarial completion order gives the bytes that the mutant gives in the plain one;
  * missed: otherwise.

Exit status 0 if at least 95 % of the mutants that are not harmless are found.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simgpu import Device, Finding, Kernel
from simgpu.checks.lint import lint_kernel
from simgpu.checks.lint.graph import NOT_FOLLOWED
from simgpu.checks.waits.late_arrival import LateArrival
from simgpu.hardware.errors import SimError
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.tools.cases.cluster import add_cluster_option, run_tasks
from simgpu.tools.robustness.corpus import CorpusCase, cases
from simgpu.tools.robustness.mutants import Mutant, declarations, mutants
from simgpu.tools.shared.console import print_json, show, table

SCHEDULES = 8  # orders of waves that a barrier's mutant runs in, if the plain one shows nothing
FOUND, HARMLESS, MISSED = "found", "harmless", "missed"
WANTED = 0.95
FOLLOWS = "an equal or stricter wait follows on every path before the first use"
DISTANCE = "the distance still meets the table"
ALONE = "a barrier in a one-wave workgroup"
INSIDE = "the access stays inside its allocation"
DECLARED = "every register that the code names is still declared"
SAFE = {"wait": FOLLOWS, "nop": DISTANCE, "registers": DECLARED}  # by kinds in lint's scope: why one is harmless


@dataclass(frozen=True)
class MutantOutcome:
    """Verdict on a mutant, and its reason."""

    case: str
    mutant: Mutant
    verdict: str  # FOUND, HARMLESS or MISSED
    reason: str
    finding: Finding | None = None  # the first new one
    linted: Finding | None = None  # the first that `simgpu.checks.lint` finds only in the mutant


class MutatedCase:
    """A case on a checked device and on one with the adversarial completion order."""

    def __init__(self, case: CorpusCase, threads: int | None) -> None:
        self.case = case
        self.checked = Device(case.target, check=True, threads=threads)
        self.late = Device(case.target, check=True, threads=threads)
        self.late.checks = (LateArrival(),)
        self.kernels = {gpu: gpu.load(case.code)[case.entry] for gpu in (self.checked, self.late)}
        run, _ = case.launch(self.checked, self.kernels[self.checked])
        self.known = {_place(finding) for finding in run.findings}
        self.start = self.kernels[self.checked].info.start
        self.executed = {offset // 4 for offset in run.profile}
        self.code, self.first = self._segment()
        self.instructions = self._reached_instructions()
        self.linted = {_place(finding) for finding in self._lint(None)}

    def _segment(self) -> tuple[bytes, int]:
        """Returns the code, and the index of the kernel's first byte in it."""
        segments = self.kernels[self.checked].module.code.segments
        segment = next(s for s in segments if s.executable and s.address <= self.start < s.end)
        return segment.data, self.start - segment.address

    def _reached_instructions(self) -> dict[int, Instruction]:
        """Returns all instructions that lowering reached, by record of the segment."""
        module = self.kernels[self.checked].module
        found: dict[int, Instruction] = {}
        for program in module.programs:
            found |= program.instructions
        return found

    def mutants(self) -> list[Mutant]:
        """Returns all mutants of the case; offsets are bytes of the segment."""
        executed = {record + self.first // 4 for record in self.executed}
        changed = mutants(self.code, self.instructions, executed)
        return [*changed, *declarations(self.kernels[self.checked].info)]

    def patch(self, mutant: Mutant, data: bytes) -> None:
        address = self.start - self.first + mutant.offset
        for kernel in self.kernels.values():
            if data:
                kernel.module.patch(address, data)

    def kernel(self, gpu: Device, mutant: Mutant) -> Kernel:
        """Returns the kernel with the mutant's declarations."""
        kernel = self.kernels[gpu]
        fields: dict[str, Any] = dict(mutant.declared)
        size = fields.pop("group_segment_size", kernel.info.group_segment_size)
        descriptor = replace(kernel.info.descriptor, **fields)
        return Kernel(kernel.module, replace(kernel.info, descriptor=descriptor, group_segment_size=size))

    def judge(self, mutant: Mutant) -> MutantOutcome:
        """Runs and lints a mutant; returns its verdict."""
        linted: list[Finding] = []
        if mutant.kind in SAFE:
            linted = [finding for finding in self._lint(mutant) if _place(finding) not in self.linted]
        return replace(self._judge(mutant, linted), linted=linted[0] if linted else None)

    def _lint(self, mutant: Mutant | None) -> list[Finding]:
        """Lints the kernel or a mutant, notes included."""
        code, info = self.kernels[self.checked].module.code, self.kernels[self.checked].info
        if mutant is not None:
            first, last = mutant.offset, mutant.offset + len(mutant.data)
            data = self.code[:first] + mutant.data + self.code[last:]
            segments = (replace(s, data=data) if s.executable and s.address <= self.start < s.end else s for s in code.segments)
            code, info = replace(code, segments=tuple(segments)), self.kernel(self.checked, mutant).info
        return lint_kernel(code, info)

    def _judge(self, mutant: Mutant, linted: list[Finding]) -> MutantOutcome:
        original = self.code[mutant.offset : mutant.offset + len(mutant.data)]
        self.patch(mutant, mutant.data)
        try:
            new, failure, results = self.run(mutant)
            if new:
                return MutantOutcome(self.case.name, mutant, FOUND, new[0].kind, new[0])
            if failure:
                return MutantOutcome(self.case.name, mutant, FOUND, failure)
            if mutant.kind == "barrier" and (clash := self._clash_in_other_order(mutant)):
                return clash
            reason, missing = self._harmless(mutant, linted)
            if not reason:
                return MutantOutcome(self.case.name, mutant, MISSED, missing)
            if self._is_unchanged(mutant, results):
                return MutantOutcome(self.case.name, mutant, HARMLESS, reason)
            return MutantOutcome(self.case.name, mutant, MISSED, f"not so: {reason}; late loads change the results")
        finally:
            self.patch(mutant, original)

    def _clash_in_other_order(self, mutant: Mutant) -> MutantOutcome | None:
        """Returns the outcome of the first schedule with a new finding or a failure; None if there is none."""
        try:
            for self.checked.schedule in range(SCHEDULES):
                new, failure, _ = self.run(mutant)
                if new or failure:
                    reason = f"{new[0].kind if new else failure}, with --schedules {self.checked.schedule}"
                    return MutantOutcome(self.case.name, mutant, FOUND, reason, new[0] if new else None)
        finally:
            self.checked.schedule = None
        return None

    def run(self, mutant: Mutant) -> tuple[list[Finding], str, list[np.ndarray]]:
        """Returns new findings, the error that the launch raised, and the results' bytes."""
        results: list[np.ndarray] = []
        try:
            run, results = self.case.launch(self.checked, self.kernel(self.checked, mutant))
            findings, failure = run.findings, ""
        except SimError as error:
            findings, failure = list(error.findings), f"{type(error).__name__}"
        new = [f for f in findings if f.severity == "error" and _place(f) not in self.known]
        return new, failure, results

    def _is_unchanged(self, mutant: Mutant, wanted: list[np.ndarray]) -> bool:
        """True if the adversarial completion order gives these bytes."""
        try:
            _, results = self.case.launch(self.late, self.kernel(self.late, mutant))
        except SimError:
            return False
        return all(np.array_equal(a, b) for a, b in zip(results, wanted, strict=True))

    def _harmless(self, mutant: Mutant, new: list[Finding]) -> tuple[str, str]:
        """Returns the reason why a mutant is harmless and "", or "" and the reason why it is not. new: lint's findings that only
        the mutant has."""
        if mutant.kind == "barrier":
            alone = int(np.prod(self.case.block)) <= 64
            return (ALONE, "") if alone else ("", "waves are not held together, no access was seen to clash in any order")
        if mutant.kind in ("address", "LDS"):
            return INSIDE, ""  # an access outside ends the run
        if not new:
            unknown = self._beyond_lint(mutant)
            return ("", unknown) if unknown else (SAFE[mutant.kind], "")
        offsets = [finding.pc - self.start for finding in new]
        if all(offset // 4 in self.executed and f.text == "s_barrier" for f, offset in zip(new, offsets, strict=True)):
            return "", "LDS is in flight at a barrier, after which no other wave was seen to touch it"
        where = ", ".join(f"{offset:#x} ({f.kind}, {f.place})" for f, offset in list(zip(new, offsets, strict=True))[:3])
        unseen = "a path" if any(offset // 4 in self.executed for offset in offsets) else "code"
        return "", f"lacks at {where}, on {unseen} that did not run"

    def _beyond_lint(self, mutant: Mutant) -> str:
        """Explains why lint's silence about a mutant proves nothing; "" if it does."""
        if any(kind == NOT_FOLLOWED for kind, *_ in self.linted):
            return "lint does not follow all paths of the kernel"
        loads = any(effect_of(inst).dma for inst in self.instructions.values())
        if loads and mutant.kind == "wait" and "vmcnt" in mutant.before and not mutant.what.startswith("lgkmcnt"):
            return "it may wait for a load to LDS, of which lint knows no addresses"
        return ""


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.pc, finding.other_pc


def main() -> int:
    """Prints the tally; status 1 below 95 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="kernels with a manifest.json")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="cases whose name contains this")
    parser.add_argument("--limit", type=int, metavar="N", help="mutants of a kernel (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="chooses them, if there are more (default: 0)")
    parser.add_argument("--threads", type=int, help="host threads (default: all cores)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_cluster_option(parser)
    options = parser.parse_args()
    outcomes: list[MutantOutcome] = []
    each = functools.partial(judge, threads=options.threads, limit=options.limit, seed=options.seed)
    for _, future in run_tasks(options.cluster, each, cases(options.folder, options.only), "kernels"):
        mine, line = future.result()
        outcomes += mine
        print(line, file=sys.stderr, flush=True)
    outcomes.sort(key=lambda outcome: outcome.case)
    if options.json:
        print_json(document(outcomes))
    else:
        report(outcomes)
    return 0 if share(outcomes) >= WANTED else 1


def judge(case: CorpusCase, threads: int | None, limit: int | None, seed: int) -> tuple[list[MutantOutcome], str]:
    """Judges a case's mutants, at most `limit` of them; returns the outcomes and a line about them."""
    began = time.perf_counter()
    subject = MutatedCase(case, threads)
    chosen = subject.mutants()
    if limit and len(chosen) > limit:
        chosen = sorted(random.Random(seed).sample(chosen, limit), key=lambda m: m.offset)
    mine = [subject.judge(mutant) for mutant in chosen]
    tally, spent = Counter(outcome.verdict for outcome in mine), time.perf_counter() - began
    return mine, f"{case.name}: {len(subject.known)} findings, {dict(tally)}, {spent:.1f} s"


def share(outcomes: list[MutantOutcome]) -> float:
    """Fraction of the harmful mutants that were found."""
    tally = Counter(outcome.verdict for outcome in outcomes)
    harmful = tally[FOUND] + tally[MISSED]
    return tally[FOUND] / harmful if harmful else 1.0


def document(outcomes: list[MutantOutcome]) -> dict[str, object]:
    """Returns a JSON document."""
    return {
        "found_share": share(outcomes),
        "mutants": [
            {
                "case": o.case, "kind": o.mutant.kind, "what": o.mutant.what, "offset": o.mutant.offset,
                "before": o.mutant.before, "verdict": o.verdict, "reason": o.reason,
                "finding": o.finding.document() if o.finding else None,
                "linted": o.linted.document() if o.linted else None,
            }
            for o in outcomes
        ],
    }  # fmt: skip


def report(outcomes: list[MutantOutcome]) -> None:
    """Prints the tally, the reasons, and every miss for people."""
    kinds = sorted({o.mutant.kind for o in outcomes})
    rows = []
    for kind in [*kinds, "all"]:
        of_kind = [o for o in outcomes if kind in (o.mutant.kind, "all")]
        tally = Counter(o.verdict for o in of_kind)
        rows.append((kind, len(of_kind), tally[FOUND], tally[HARMLESS], tally[MISSED], f"{share(of_kind):.1%}"))
    show(table("Mutants", ("kind", "run", FOUND, HARMLESS, MISSED, "found of harmful"), rows))
    shares = []
    for kind in (kind for kind in kinds if kind in SAFE):
        of_kind = [o for o in outcomes if o.mutant.kind == kind]
        linted = Counter(o.verdict for o in of_kind if o.linted)
        tally = Counter(o.verdict for o in of_kind)
        shares.append((kind, *(f"{linted[verdict]} of {tally[verdict]}" for verdict in (FOUND, MISSED, HARMLESS))))
    show(table("Found by lint, nothing run", ("kind", *(f"of the {verdict}" for verdict in (FOUND, MISSED, HARMLESS))), shares))
    for verdict in (HARMLESS, MISSED):
        for o in outcomes:
            if o.verdict == verdict:
                also = f"; lint: {o.linted.kind} at {o.linted.pc:#x}" if o.linted else ""
                show(f"{verdict}: {o.case} {o.mutant.offset:#x} `{o.mutant.before}` {o.mutant.what}: {o.reason}{also}")
    for o in outcomes:
        if o.verdict == FOUND and o.mutant.kind in SAFE and not o.linted:
            show(f"not by lint: {o.case} {o.mutant.offset:#x} `{o.mutant.before}` {o.mutant.what}: {o.reason}")


if __name__ == "__main__":
    sys.exit(main())
