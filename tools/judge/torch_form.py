"""Judges a PyTorch module with Triton kernels (`ModelNew`) against a PyTorch module (`Model`), as KernelBench has them.

The reference and the candidate run in two processes. The candidate's gets inputs only; its results are compared here. PyTorch is
imported in neither form of the judge's own process.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simgpu import hardware
from simgpu.tools.judge.hostile import STYLES, change
from simgpu.tools.judge.messages import ArrayMessage
from simgpu.tools.judge.process import Child, ChildEnded, ChildFailed
from simgpu.tools.judge.tolerance import CallOutcome, Expected, compare, reason_of
from simgpu.tools.judge.verdict import JudgeLimits, Judgement, Times, Trial
from simgpu.tools.shared.errors import UsageError

GIVEN, DRAWN = "given", "drawn"
NEW, SAME, STRIDED = "new", "same", "strided"  # inputs of a call: new tensors, those of the call before, views with gaps
LIBRARY_FLOPS, LIBRARY_BYTES = 0.9, 0.5  # fractions of the reference's work; past both, PyTorch did it all
MOST_DRAWN = 130  # largest drawn size
TRIES = 40  # draws of sizes that the reference may refuse


@dataclass(frozen=True)
class CallInputs:
    """Inputs of a call."""

    packed: Any  # the module's arguments as JSON, which refers to arrays by number
    arrays: list[np.ndarray]
    seed: int

    def restyle(self, style: str) -> CallInputs:
        """Returns the same inputs in a style."""
        return replace(self, arrays=[change(one, style) for one in self.arrays])


class TorchJudge:
    """Judges one candidate."""

    def __init__(self, judgement: Judgement, limits: JudgeLimits, shapes: str, sizes: Mapping[str, int]) -> None:
        self.judgement, self.limits = judgement, limits
        self._shapes, self._sizes = shapes, dict(sizes)
        self._seeds = iter(np.random.default_rng(judgement.seed).integers(0, 2**31, 10_000).tolist())
        self._rng = np.random.default_rng(judgement.seed)
        self._calls = 0

    def judge(self) -> None:
        """Runs all trials, and fills the judgement. Raises UsageError for a reference that cannot be used."""
        reference = str(Path(self.judgement.reference).absolute())
        with tempfile.TemporaryDirectory() as folder, self._child("reference", [reference]) as self._reference:
            copied = shutil.copy(self.judgement.candidate, Path(folder, "candidate.py"))
            self._candidate = self._child("candidate", [str(copied), self.judgement.target])  # starts meanwhile
            with self._candidate:
                self._judge_against(self._ask_reference("load", sizes=self._sizes).document["sizes"], str(copied))

    def _judge_against(self, known: dict[str, int], copied: str) -> None:
        """Judges the candidate that was copied to a file. known: the reference's sizes."""
        if unknown := [name for name in self._sizes if name not in known]:
            raise UsageError(f"--size {unknown[0]}: the reference has no whole number of that name")
        try:
            self._look(self._candidate.ask("load").document, "import")
            self._cases(known)
        except ChildEnded as error:
            self.judgement.add("ended", str(error))
        except ChildFailed as error:
            self.judgement.add("fails", f"{error}{_line_of(error.trace, copied)}")

    def _child(self, name: str, arguments: Sequence[str]) -> Child:
        return Child(name, arguments, self.limits.timeout, self.limits.memory)

    def _ask_reference(self, request: str, arrays: Sequence[np.ndarray] = (), **more: Any) -> ArrayMessage:
        try:
            return self._reference.ask(request, arrays, **more)
        except (ChildEnded, ChildFailed) as error:
            raise UsageError(f"{self.judgement.reference}: {error}") from None

    def _cases(self, known: dict[str, int]) -> None:
        """Runs the sizes of the reference, then drawn ones."""
        self._make(known)
        inputs = self._draw()
        self._first_case(known, inputs)
        for sizes in self._drawn_sizes(known) if self._shapes == DRAWN else ():
            self._make(sizes)
            earlier: dict[str, list[Expected]] = {}
            for style in ("own", "signed"):
                self._call(sizes, self._draw().restyle(style), style, NEW, earlier)

    def _first_case(self, sizes: dict[str, int], inputs: CallInputs) -> None:
        """Runs every style, and the calls that show what a candidate keeps from one call to the next."""
        earlier: dict[str, list[Expected]] = {}
        work = self._call(sizes, inputs, "own", NEW, earlier)
        self._call(sizes, self._draw(), "own", SAME, earlier)
        for style in STYLES:
            if style != "own":
                self._call(sizes, inputs.restyle(style), style, NEW, earlier)
        self._call(sizes, self._draw(), "own", STRIDED, earlier)
        if not self.judgement.rejecting():
            self._time(sizes, self._draw(), work, earlier)

    def _make(self, sizes: Mapping[str, int]) -> None:
        seed = next(self._seeds)
        self._ask_reference("load", sizes=dict(sizes))
        made = self._ask_reference("make", seed=seed)
        self._look(self._candidate.ask("make", made.arrays, packed=made.document["packed"], seed=seed).document, "construction")

    def _draw(self) -> CallInputs:
        seed = next(self._seeds)
        answer = self._ask_reference("inputs", seed=seed, most=self.limits.elements)
        return CallInputs(answer.document["packed"], answer.arrays, seed)

    def _drawn_sizes(self, known: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yields sets of sizes that the reference accepts, each with some sizes changed."""
        found = 0
        for _ in range(TRIES):
            if found == self.limits.cases:
                return
            sizes = {name: self._drawn_size(value) for name, value in known.items()}
            if sizes == known:
                continue
            try:
                self._reference.ask("load", sizes=sizes)
                self._reference.ask("make", seed=0)
                inputs = self._reference.ask("inputs", seed=0, most=self.limits.elements)
                self._evaluate(CallInputs(inputs.document["packed"], inputs.arrays, 0))
            except (ChildFailed, UsageError):
                continue
            except ChildEnded as error:
                raise UsageError(f"{self.judgement.reference}: {error}") from None
            found += 1
            yield sizes

    def _drawn_size(self, value: int) -> int:
        if value < 2 or self._rng.integers(2):
            return value
        return int(self._rng.integers(1, min(value, MOST_DRAWN), endpoint=True)) | int(self._rng.integers(2))

    def _evaluate(self, inputs: CallInputs) -> tuple[list[Expected], dict[str, Any]]:
        target = self.judgement.target
        answer = self._ask_reference("evaluate", inputs.arrays, packed=inputs.packed, seed=inputs.seed, target=target)
        names = answer.document["narrowed"]
        width = 3 + len(names)
        rows = [answer.arrays[at : at + width] for at in range(0, len(answer.arrays), width)]
        expected = [Expected(row[0], row[1], row[2], dict(zip(names, row[3:], strict=True))) for row in rows]
        return expected, answer.document["work"]

    def _call(
        self, sizes: dict[str, int], inputs: CallInputs, style: str, how: str, earlier: dict[str, list[Expected]]
    ) -> dict[str, Any]:
        """Calls the candidate once, compares, and returns the work of the reference's operators."""
        expected, work = self._evaluate(inputs)
        changed = {name: size for name, size in sizes.items() if self._sizes.get(name) != size} if self._shapes == DRAWN else {}
        shown = ", ".join(f"{name}={size}" for name, size in changed.items())
        self._calls += 1
        number = f"call {self._calls}"
        said = {NEW: f"{style} inputs", SAME: "other contents of the same tensors", STRIDED: "strided inputs"}[how]
        name = f"{number}: {said}" + (f", {shown}" if shown else "")
        answer = self._candidate.ask("call", inputs.arrays, packed=inputs.packed, seed=inputs.seed, how=how)
        self._judge(Trial(name, style, dict(sizes), CallOutcome()), answer, expected, work, earlier, how)
        earlier[number] = expected
        return work

    def _judge(
        self, trial: Trial, answer: ArrayMessage, expected: Sequence[Expected], work: Mapping[str, Any],
        earlier: Mapping[str, Sequence[Expected]], how: str,
    ) -> None:  # fmt: skip
        seen, judgement = answer.document, self.judgement
        self._look(seen, trial.name)
        self._look_at_work(seen, work, trial.name)
        form = _form_error(seen, answer.arrays, expected)
        if form:
            judgement.add("strided" if how == STRIDED else "form", form, trial.name)
            return
        special = STYLES[trial.style].special
        outcome = _compare(answer.arrays, expected, special, bool(seen["xf32"]))
        launches = sum(int(count) for count in seen["kernels"].values())
        judgement.trials.append(replace(trial, outcome=outcome, launches=launches, instructions=int(seen["instructions"])))
        if not outcome.right:
            others = {
                name: _compare(answer.arrays, known, False, False)
                for name, known in earlier.items()
                if not _form_error(seen, answer.arrays, known)
            }
            kind, message = reason_of(outcome, others)
            judgement.add("special" if special else "strided" if how == STRIDED else kind, message, trial.name)
        if outcome.reduced:
            judgement.add("xf32", "a kernel multiplies f32 in xf32, 10 bits: tl.dot(..., input_precision=\"ieee\") does not")
        if outcome.right and outcome.special:
            judgement.add("special", f"{outcome.special:,} elements differ in being NaN or infinite", trial.name)

    def _look(self, seen: Mapping[str, Any], trial: str) -> None:
        """Adds reasons that do not depend on the results."""
        add = self.judgement.add
        if patched := list(map(str, seen["patched"])):
            add("patched", f"{', '.join(patched[:4])}{' and others' if len(patched) > 4 else ''} replaced", trial)
        if "kernels" not in seen:
            return
        self.judgement.add_findings(seen["findings"], trial)
        for name, count in seen["kernels"].items():
            self.judgement.kernels[name] = self.judgement.kernels.get(name, 0) + int(count)
        if seen["threads"]:
            add("deferred", f"the call left a thread running: {seen['threads'][0]}", trial)
        if seen["host"]:
            add("host-work", f"the call moved elements to the host: {seen['host'][0]}", trial)
        if seen["changed"]:
            add("inputs-changed", f"the call changed input {seen['changed'][0]}", trial)
        if seen["reused"]:
            add("reused", "the call changed the result of the call before", trial)

    def _look_at_work(self, seen: Mapping[str, Any], work: Mapping[str, Any], trial: str) -> None:
        """Adds reasons about who computed the result."""
        library, add = seen["library"], self.judgement.add
        self.judgement.library = {name: int(count) for name, count in library["calls"].items()}
        named = ", ".join(library["calls"])
        computed = f"; PyTorch computed {named}" if named else ""
        if not seen["kernels"]:
            add("no-kernel", f"the call launched no kernel{computed}", trial)
        elif seen["untraced"]:
            add("host-result", f"no kernel contributed to result {seen['untraced'][0]}{computed}", trial)
        if not named or not work["calls"]:
            return
        all_flops = library["flops"] >= LIBRARY_FLOPS * work["flops"]
        if all_flops and library["other_bytes"] >= LIBRARY_BYTES * work["other_bytes"]:
            add("library", f"PyTorch does the reference's work: {named}", trial)
        else:
            add("library-part", f"PyTorch computes {named}", trial)

    def _time(self, sizes: dict[str, int], inputs: CallInputs, work: Mapping[str, Any], earlier: Mapping[str, Any]) -> None:
        """Models the time of a call, whose result must also be right."""
        expected, _ = self._evaluate(inputs)
        answer = self._candidate.ask("time", inputs.arrays, packed=inputs.packed, seed=inputs.seed, how=NEW)
        trial = Trial(f"call {self._calls + 1}: own inputs, timed", "own", dict(sizes), CallOutcome())
        self._judge(trial, answer, expected, work, earlier, NEW)
        chip, seen = hardware.target(self.judgement.target), answer.document
        moved = sum(one.nbytes for one in (*inputs.arrays, *(each.promised for each in expected)))
        times = self.judgement.times = Times(sizes=dict(sizes), least=moved / (chip.hbm_bandwidth_tb * 1e12))
        times.reference, times.basis = float(work["seconds"]), "PyTorch's operators at the roofline, a kernel each"
        if seen["unmodelled"] or not seen["kernels"]:
            self.judgement.add("unmodelled", f"no time of {', '.join(map(str, seen['unmodelled'])) or 'a call without kernels'}")
            return
        times.candidate = 1e-3 * float(seen["milliseconds"]) + float(seen["library"]["seconds"])
        if times.least and times.candidate < times.least:
            said = f"{1e6 * times.candidate:.3g} us; moving inputs and results takes {1e6 * times.least:.3g} us"
            self.judgement.add("too-fast", said)


def _form_error(seen: Mapping[str, Any], got: Sequence[np.ndarray], expected: Sequence[Expected]) -> str:
    """Returns what differs in number, type and shape of the results; "" if nothing does."""
    if len(got) != len(expected):
        return f"{len(got)} results, the reference has {len(expected)}"
    for at, (array, one) in enumerate(zip(got, expected, strict=True)):
        if not seen["plain"][at]:
            return f"result {at} is a {seen['types'][at]}, no plain tensor"
        if array.shape != one.want.shape:
            return f"result {at} has the shape {array.shape}, the reference's {one.want.shape}"
        if array.dtype != one.promised.dtype:
            return f"result {at} has the type {array.dtype}, the reference's {one.promised.dtype}"
    return ""


def _compare(got: Sequence[np.ndarray], expected: Sequence[Expected], special: bool, xf32: bool) -> CallOutcome:
    poisons = [np.full(array.nbytes, 0xFF, np.uint8).view(array.dtype).reshape(array.shape) for array in got]
    rows = zip(got, expected, poisons, strict=True)
    return CallOutcome(tuple(compare(f"result{at}", a, b, poison, special, xf32) for at, (a, b, poison) in enumerate(rows)))


def _line_of(trace: str, path: str) -> str:
    """Returns the last line of the candidate's file in a traceback, as " (line 12)"."""
    lines = [line.rpartition("line ")[2].partition(",")[0] for line in trace.splitlines() if f'"{path}"' in line]
    return f" (line {lines[-1]})" if lines and lines[-1].isdecimal() else ""
