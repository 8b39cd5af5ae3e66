"""Trials, reasons, times and the verdict, as JSON and as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from simgpu.tools.judge.kinds import KINDS, NOTE, REJECT
from simgpu.tools.judge.tolerance import CallOutcome

SCHEMA = "simgpu-judge-1"
ACCEPTED, REJECTED = "accepted", "rejected"
WIDTH = 80  # columns of the text
OF_RESULTS = ("wrong", "precision", "cached", "unwritten", "form", "finding")
OF_SPECIAL_INPUTS = ("special", "strided")
MOST_REASONS = 3  # of a kind; later ones are counted only


@dataclass(frozen=True)
class JudgeLimits:
    """Budget of the judge."""

    timeout: float = 60.0  # seconds of a launch, or of a call
    memory: int = 16 << 30  # bytes of a child process
    cases: int = 4  # sets of drawn sizes
    elements: int = 1 << 24  # most elements of inputs and results


@dataclass(frozen=True)
class Reason:
    """Reason for the verdict, or a note."""

    kind: str  # of KINDS
    message: str
    trial: str = ""  # the trial that showed it

    def severity(self, strict: bool) -> str:
        """Returns REJECT or NOTE."""
        return REJECT if strict else KINDS[self.kind].severity


@dataclass(frozen=True)
class Trial:
    """Call of the candidate, compared with the reference."""

    name: str
    style: str
    sizes: dict[str, int]
    outcome: CallOutcome
    launches: int = 0
    instructions: int = 0  # wave-instructions

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        said = {name: getattr(self, name) for name in ("name", "style", "sizes", "launches", "instructions")}
        return said | {"right": self.outcome.right, "results": [one.document() for one in self.outcome.comparisons]}


@dataclass
class Times:
    """Modelled seconds of one call."""

    candidate: float | None = None
    reference: float | None = None
    basis: str = ""  # what the reference's time is
    least: float | None = None  # of moving the inputs and results once
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def speedup(self) -> float | None:
        return self.reference / self.candidate if self.reference and self.candidate else None

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {**asdict(self), "speedup": self.speedup}


@dataclass
class Judgement:
    """All that the judge found about a candidate."""

    candidate: str
    reference: str
    target: str
    seed: int
    strict: bool = False
    form: str = ""
    trials: list[Trial] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)  # of checked mode, as documents
    kernels: dict[str, int] = field(default_factory=dict)  # launches by kernel
    library: dict[str, int] = field(default_factory=dict)  # calls of PyTorch's operators that compute, in one call
    times: Times = field(default_factory=Times)

    def add(self, kind: str, message: str, trial: str = "") -> None:
        """Adds a reason; the same one only once. A result that is wrong anyway is not noted for special inputs, too."""
        reason = Reason(kind, " ".join(message.split()), trial)
        if kind in OF_SPECIAL_INPUTS and any(one.kind in OF_RESULTS for one in self.reasons):
            return
        if (kind, reason.message) not in [(one.kind, one.message) for one in self.reasons]:
            self.reasons.append(reason)

    def add_findings(self, found: Iterable[Mapping[str, Any]], trial: str) -> None:
        """Adds documents of checked mode's findings; each one that is an error is a reason."""
        for one in found:
            self.findings.append(dict(one))
            if one["severity"] == "error":
                place = one["source"] or one["text"]
                self.add("finding", f"{one['kind']}: {one['message']}, at {place}", trial)

    def rejecting(self) -> list[Reason]:
        """Returns the reasons that reject the candidate."""
        return [one for one in self.reasons if one.severity(self.strict) == REJECT]

    @property
    def verdict(self) -> str:
        return REJECTED if self.rejecting() else ACCEPTED

    def document(self) -> dict[str, Any]:
        """Returns the JSON document (docs/how-to/judge-generated-kernels.md)."""
        return {
            "schema": SCHEMA, "verdict": self.verdict,
            **{name: getattr(self, name) for name in ("candidate", "reference", "target", "form", "seed", "strict")},
            "reasons": [{**asdict(one), "severity": one.severity(self.strict)} for one in self.reasons],
            "trials": [one.document() for one in self.trials],
            "time": self.times.document(),
            "kernels": self.kernels, "library": self.library,
            "findings": self.findings,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Returns text of 80 columns for people."""
        right = sum(one.outcome.right for one in self.trials)
        kernels = ", ".join(f"{name} ({count})" for name, count in self.kernels.items()) or "none"
        said = [f"{self.verdict.upper()}: {self.candidate} on {self.target}, seed {self.seed}"]
        said += [_wrap("trials", f"{right} of {len(self.trials)} right"), _wrap("kernels", kernels)]
        if self.library:
            said.append(_wrap("PyTorch", ", ".join(f"{name} ({count})" for name, count in self.library.items())))
        said += self._time_lines()
        for severity in (REJECT, NOTE):
            chosen = [one for one in self.reasons if one.severity(self.strict) == severity]
            for kind in dict.fromkeys(one.kind for one in chosen):
                said += _reason_lines([one for one in chosen if one.kind == kind], severity)
        return said

    def _time_lines(self) -> list[str]:
        times = self.times
        if times.candidate is None:
            return []
        text = f"{1e6 * times.candidate:,.3g} us modelled"
        if times.reference is not None:
            text += f"; the reference takes {1e6 * times.reference:,.3g} us ({times.basis}): {times.speedup:.3g} times as fast"
        if times.least is not None:
            text += f"; moving inputs and results once takes {1e6 * times.least:,.3g} us"
        return [_wrap("time", text)]


def _reason_lines(reasons: Sequence[Reason], severity: str) -> list[str]:
    shown = reasons[:MOST_REASONS]
    lines = [
        _wrap("", f"{severity}: {one.kind}: {one.message}" + (f" ({one.trial})" if one.trial else "")) for one in shown
    ]
    return lines + ([f"  and {len(reasons) - len(shown)} more of {shown[0].kind}"] if len(reasons) > len(shown) else [])


def _wrap(name: str, text: str) -> str:
    head = f"{name:9}" if name else ""
    return textwrap.fill(head + text, WIDTH, subsequent_indent=" " * (9 if name else 2), break_on_hyphens=False)
