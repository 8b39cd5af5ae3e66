"""Judges HIP kernels against a Python reference of numpy.

The candidate is kernels only: its launches are comments (`signature.py`), so no code of it runs on the host. Results are filled
with NaN before each call, inputs change in place between two calls, and checked mode looks at every launch.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from simgpu import hardware
from simgpu.device import Device, Module
from simgpu.engine.allocations import whole_granules
from simgpu.engine.device import Buffer
from simgpu.engine.result import Run
from simgpu.hardware.errors import DecodeError, SimError
from simgpu.tools.cases.file_kernel import kernel_named
from simgpu.tools.cases.sources import compile
from simgpu.tools.judge.hostile import STYLES, change
from simgpu.tools.judge.signature import (
    IN,
    INOUT,
    OUT,
    CandidateArgument,
    parse_arguments,
    parse_launches,
    require_known,
)  # fmt: skip
from simgpu.tools.judge.sizes import check_ranges, draw
from simgpu.tools.judge.tolerance import CallOutcome, Expected, compare, is_float, narrow, narrower, reason_of, unit_of
from simgpu.tools.judge.verdict import JudgeLimits, Judgement, Times, Trial
from simgpu.tools.shared.arrays import random_array, require_memory
from simgpu.tools.shared.errors import KernelFailed, UsageError

POISON = 0xFF  # bytes of results before a call: NaN in floats, -1 in integers
GAP = 9  # most elements between rows that a leading dimension adds
SAMPLES = 2  # perturbed references
MOST_NARROWED = 4  # arrays that are rounded one at a time


class NumpyReference:
    """A reference file: SIZES, ARGUMENTS, reference(), and optionally LAUNCH, BASELINE, ALIASES and inputs()."""

    def __init__(self, path: str, arch: str) -> None:
        self.path = path
        module = _import(path)
        for name in ("SIZES", "ARGUMENTS", "reference"):
            if not hasattr(module, name):
                raise UsageError(f"{path} has no {name}: a reference for HIP kernels has SIZES, ARGUMENTS and reference()")
        self.ranges = check_ranges(module.SIZES, path)
        self.arguments = parse_arguments(module.ARGUMENTS, arch, f"{path}: ARGUMENTS")
        self.launch = str(getattr(module, "LAUNCH", ""))
        self.baseline = str(getattr(module, "BASELINE", ""))
        self._compute, self._inputs = module.reference, getattr(module, "inputs", None)
        self._takes = list(inspect.signature(self._compute).parameters)
        self.aliases = {str(result): str(held) for result, held in dict(getattr(module, "ALIASES", {})).items()}
        self._require_aliases()
        for one in self.arguments:
            if one.leading and one.leading in self.ranges:
                raise UsageError(f"{path}: {one.leading} is a distance of rows, which is drawn: take it out of SIZES")

    def _require_aliases(self) -> None:
        known = {one.name: one for one in self.arguments if one.dimensions is not None and not one.leading}
        for result, held in self.aliases.items():
            one, other = known.get(result), known.get(held)
            if one is None or other is None or (one.use, other.use) != (OUT, IN) or one.kind != other.kind:
                raise UsageError(f"{self.path}: ALIASES: {result!r} in {held!r}: give a result and an input of one type")

    @property
    def results(self) -> list[CandidateArgument]:
        """Arguments that kernels write."""
        return [one for one in self.arguments if one.use in (OUT, INOUT)]

    def sizes(self, drawn: Mapping[str, int], rng: np.random.Generator) -> dict[str, int]:
        """Adds distances of rows to drawn sizes."""
        sizes = dict(drawn)
        for one in self.arguments:
            if one.leading and one.leading not in sizes:
                sizes[one.leading] = one.shape(sizes)[-1] + int(rng.integers(0, GAP, endpoint=True))
        return sizes

    def draw(self, sizes: Mapping[str, int], style: str, rng: np.random.Generator) -> dict[str, Any]:
        """Draws a value for each argument that kernels read: an array or a number."""
        given = dict(self._inputs(rng, **{name: sizes[name] for name in self._input_sizes()})) if self._inputs else {}
        values: dict[str, Any] = {}
        for one in self.arguments:
            if one.dimensions is None:
                values[one.name] = _number(one, sizes, given, rng)
            elif one.use != OUT:
                shape = one.shape(sizes)
                drawn = given[one.name] if one.name in given else _normal(rng, one.kind, shape)
                array = np.asarray(drawn).astype(one.kind)
                if array.shape != shape:
                    raise UsageError(f"{self.path}: inputs() gives {one.name} the shape {array.shape}, ARGUMENTS says {shape}")
                values[one.name] = change(array, style)
        return values

    def _input_sizes(self) -> list[str]:
        taken = inspect.signature(self._inputs).parameters if self._inputs else {}
        return [name for name in taken if name != "rng"]

    def expectations(self, sizes: Mapping[str, int], values: Mapping[str, Any], rng: np.random.Generator) -> list[Expected]:
        """Computes each result in float64, in the promised type, and with inputs moved by a rounding."""
        wide = self.compute(sizes, {name: _widen(value) for name, value in values.items()})
        promised = self.compute(sizes, values)
        spread = [np.zeros(array.shape) for array in wide]
        for _ in range(SAMPLES):
            moved = self.compute(sizes, {name: _move(value, rng) for name, value in values.items()})
            with np.errstate(all="ignore"):
                spread = [
                    np.fmax(most, np.abs(a.astype(np.float64) - b.astype(np.float64)))
                    for most, a, b in zip(spread, moved, wide, strict=True)
                ]
        narrowed = {name: self.compute(sizes, changed) for name, changed in _narrow(values).items()}
        return [
            Expected(wide[at], promised[at].astype(one.kind), spread[at], {name: made[at] for name, made in narrowed.items()})
            for at, one in enumerate(self.results)
        ]

    def compute(self, sizes: Mapping[str, int], values: Mapping[str, Any]) -> list[np.ndarray]:
        """Calls reference() and returns its results in the order of the arguments. Raises UsageError."""
        known = {**sizes, **values}
        missing = [name for name in self._takes if name not in known]
        if missing:
            raise UsageError(f"{self.path}: reference() takes {missing[0]!r}, which is no input and no size")
        copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in known.items()}
        try:
            with np.errstate(all="ignore"):
                made = self._compute(**{name: copies[name] for name in self._takes})
        except Exception as error:
            raise UsageError(f"{self.path}: reference() raises {type(error).__name__}: {error}") from None
        found = made if isinstance(made, dict) else dict(zip([one.name for one in self.results], _several(made)))
        arrays = []
        for one in self.results:
            array = np.asarray(found.get(one.name))
            if array.shape != one.shape(sizes):
                raise UsageError(f"{self.path}: reference() gives {one.name} {array.shape}, ARGUMENTS says {one.shape(sizes)}")
            arrays.append(array)
        return arrays


def _import(path: str) -> ModuleType:
    """Runs the user's reference. Raises UsageError if it cannot be imported."""
    spec = importlib.util.spec_from_file_location(f"simgpu_reference_{Path(path).stem}", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from None
    return module


def _several(made: Any) -> Sequence[Any]:
    return made if isinstance(made, (tuple, list)) else (made,)


def _normal(rng: np.random.Generator, kind: np.dtype, shape: Sequence[int]) -> np.ndarray:
    return rng.standard_normal(shape).astype(kind) if is_float(kind) else random_array(rng, kind, shape)


def _number(one: CandidateArgument, sizes: Mapping[str, int], given: Mapping[str, Any], rng: np.random.Generator) -> Any:
    if one.name in sizes:
        return one.kind.type(sizes[one.name])
    if one.name in given:
        return np.asarray(given[one.name]).astype(one.kind)[()]
    return _normal(rng, one.kind, ())[()] if is_float(one.kind) else one.kind.type(int(rng.integers(0, 100)))


def _widen(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float64)[()] if is_float(array.dtype) else value


def _move(value: Any, rng: np.random.Generator) -> Any:
    """Returns floats in float64, each moved by up to a rounding of its type."""
    array = np.asarray(value)
    if not is_float(array.dtype):
        return value
    return (array.astype(np.float64) * (1 + unit_of(array.dtype) * rng.uniform(-1, 1, array.shape)))[()]


def _narrow(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns values with the floats of all arrays, or of one, rounded to narrower types."""
    arrays = [name for name, value in values.items() if isinstance(value, np.ndarray) and is_float(value.dtype)]
    wide = {name: _widen(value) for name, value in values.items()}
    found = {}
    for kind in dict.fromkeys(one for name in arrays for one in narrower(values[name].dtype)):
        for chosen in [arrays, *([name] for name in arrays[:MOST_NARROWED] if len(arrays) > 1)]:
            found[f"{kind}:{','.join(chosen)}"] = wide | {name: narrow(wide[name], kind) for name in chosen}
    return found


class HipCandidate:
    """Kernels of a file, loaded on a device, with buffers for one set of sizes."""

    def __init__(self, path: str, code: bytes, reference: NumpyReference, device: Device, text: str) -> None:
        self.path, self.reference, self.device = path, reference, device
        self.module: Module = device.load(code)
        self.launches, scratch = parse_launches(text, reference.launch, device.arch, path)
        self.arguments = [*reference.arguments, *scratch]
        require_known(self.launches, self.arguments, path)
        self.sizes: dict[str, int] = {}
        self.buffers: dict[str, Buffer] = {}
        self.aliases: dict[str, str] = {}  # results of this call in the memory of an input

    def allocate(self, sizes: dict[str, int]) -> None:
        """Allocates the inputs of one set of sizes, which stay where they are from call to call."""
        self._free([name for name in self.buffers if name not in self.aliases])
        self.buffers, self.aliases, self.sizes = {}, {}, sizes
        for one in self._arrays():
            nbytes = self._storage(one)[0] * one.kind.itemsize
            require_memory(2 * nbytes, f"{self.path}: {one.name}")
            if one.use in (IN, INOUT):
                self.buffers[one.name] = self.device.alloc(max(nbytes, 1))

    def _free(self, names: Sequence[str]) -> None:
        for name in names:
            self.device.free(self.buffers.pop(name))

    def _arrays(self) -> list[CandidateArgument]:
        return [one for one in self.arguments if one.dimensions is not None]

    def _storage(self, one: CandidateArgument) -> tuple[int, int, int]:
        """Returns the elements of an array's memory, those of a row, and the distance of rows."""
        shape = one.shape(self.sizes)
        width = shape[-1] if shape else 1
        apart = self.sizes[one.leading] if one.leading else width
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        return rows * apart, width, apart

    def fill(self, values: Mapping[str, Any], aliases: Mapping[str, str]) -> None:
        """Writes inputs in place. Results and scratch get new memory of NaN, which checked mode counts as undefined.

        aliases: results that get the memory of an input instead.
        """
        self._free([name for name in aliases if name in self.buffers and name not in self.aliases])
        for name in self.aliases:
            self.buffers.pop(name, None)
        self.aliases = dict(aliases)
        for one in self._arrays():
            if one.name in aliases:
                continue
            raw = self._memory(one, values.get(one.name))
            if one.use in (IN, INOUT):
                self.buffers[one.name].write(raw)
                continue
            self._free([name for name in self.buffers if name == one.name])
            address, memory = self.device.memory.reserve(whole_granules(raw.size))
            memory[: raw.size] = raw
            self.buffers[one.name] = self.device.place(address, memory, nbytes=raw.size, label=one.name)
        self.buffers |= {name: self.buffers[held] for name, held in aliases.items()}

    def _memory(self, one: CandidateArgument, value: np.ndarray | None) -> np.ndarray:
        """Returns an array's bytes: its elements with NaN between rows, or poison only."""
        total, width, apart = self._storage(one)
        raw = np.full(max(total * one.kind.itemsize, 1), POISON, np.uint8)
        if value is not None and total:
            rows = raw[: total * one.kind.itemsize].view(one.kind).reshape(-1, apart)
            rows[:, width:] = np.nan if is_float(one.kind) else np.iinfo(one.kind).max
            rows[:, :width] = value.reshape(-1, width)
        return raw

    def read(self, one: CandidateArgument, value: np.ndarray | None) -> tuple[np.ndarray, bool]:
        """Returns an array after a call, and whether the bytes between its rows are as before; value: as the call got it."""
        total, width, apart = self._storage(one)
        used = total * one.kind.itemsize
        before, after = (
            raw[:used].view(one.kind).reshape(-1, max(apart, 1))
            for raw in (self._memory(one, value), self.buffers[one.name].download(np.uint8))
        )
        kept = before[:, width:].tobytes() == after[:, width:].tobytes()
        return np.ascontiguousarray(after[:, :width]).reshape(one.shape(self.sizes)), kept

    def calls(self, values: Mapping[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
        """Returns the kernel and the arguments of each launch. Raises UsageError."""
        every = [one.name for one in self.reference.arguments]
        found = []
        for one in self.launches:
            args = [self._value(name, values) for name in (every if one.args is None else one.args)]
            found.append((self.module[kernel_named(self.module, one.kernel)], {"args": args, **one.extents(self.sizes)}))
        return found

    def _value(self, name: str, values: Mapping[str, Any]) -> Any:
        return self.buffers[name] if name in self.buffers else values[name]

    def run(self, values: Mapping[str, Any]) -> list[Run]:
        """Launches all kernels in order. Launches of no workgroup are left out."""
        return [kernel.launch(**call) for kernel, call in self.calls(values) if all(call["grid"])]

    def seconds(self, values: Mapping[str, Any]) -> float:
        """Models the time of all launches."""
        total = 0.0
        for kernel, call in self.calls(values):
            if all(call["grid"]):
                total += kernel.time(**call).seconds
                kernel.launch(**call)  # the next launch reads its results
        return total


class HipJudge:
    """Judges one file of HIP kernels."""

    def __init__(self, judgement: Judgement, limits: JudgeLimits) -> None:
        self.judgement, self.limits = judgement, limits
        self.rng = np.random.default_rng(judgement.seed)
        self.arch = hardware.target(judgement.target).arch
        self.reference = NumpyReference(judgement.reference, self.arch)

    def judge(self) -> None:
        """Runs all trials, and fills the judgement. Raises UsageError for a reference that cannot be used."""
        candidate = self._load(self.judgement.candidate, check=True)
        if candidate is None:
            return
        cases = list(draw(self.reference.ranges, self.limits.cases, self.rng))
        drawn = [self._fitting(self.reference.sizes(each, self.rng)) for each in cases]
        for index, sizes in enumerate(drawn):
            if not self._case(candidate, sizes, list(STYLES) if index == 0 else ["own", "signed"]):
                return
        if not self.judgement.rejecting():
            self._time(drawn[0])

    def _fitting(self, sizes: dict[str, int]) -> dict[str, int]:
        elements = sum(int(np.prod(one.shape(sizes), dtype=object)) for one in self.reference.arguments if one.dimensions)
        if elements > self.limits.elements:
            raise UsageError(f"{self.reference.path}: {sizes} have {elements:,} elements, more than {self.limits.elements:,}: "
                             "give SIZES lower ends, or raise --elements")  # fmt: skip
        return sizes

    def _load(self, path: str, check: bool) -> HipCandidate | None:
        """Compiles a file's kernels and loads them; None if it cannot be used, which is a reason."""
        try:
            text = Path(path).read_text("utf-8")
            code = compile(path, self.judgement.target)
            device = Device(self.judgement.target, check=check, timeout=self.limits.timeout)
            candidate = HipCandidate(path, code, self.reference, device, text)
            for one in candidate.launches:
                kernel_named(candidate.module, one.kernel)
        except (UnicodeDecodeError, UsageError, DecodeError) as error:
            if path != self.judgement.candidate:
                raise UsageError(f"{path}: {error}") from None
            self.judgement.add("fails", str(error))
            return None
        return candidate

    def _case(self, candidate: HipCandidate, sizes: dict[str, int], styles: Sequence[str]) -> bool:
        """Runs the trials of one set of sizes; False if the candidate failed."""
        try:
            candidate.allocate(sizes)
        except UsageError as error:
            self.judgement.add("fails", str(error))
            return False
        earlier: dict[str, list[Expected]] = {}
        for style in ["own", *styles]:  # own twice: other numbers at the same addresses
            values = self.reference.draw(sizes, style, self.rng)
            expected = self.reference.expectations(sizes, values, self.rng)
            said = ", ".join(f"{name}={size}" for name, size in sizes.items())
            name = f"call {len(self.judgement.trials) + 1}: {style} inputs, {said}"
            if not self._trial(candidate, Trial(name, style, sizes, CallOutcome()), values, expected, earlier, {}):
                return False
            earlier[name.partition(",")[0]] = expected
        for result, held in self.reference.aliases.items() if len(styles) == len(STYLES) else ():
            values = self.reference.draw(sizes, "own", self.rng)
            trial = Trial(f"call {len(self.judgement.trials) + 1}: {result} in the memory of {held}", "own", sizes, CallOutcome())
            expected = self.reference.expectations(sizes, values, self.rng)
            if not self._trial(candidate, trial, values, expected, earlier, {result: held}):
                return False
        return True

    def _trial(
        self, candidate: HipCandidate, trial: Trial, values: Mapping[str, Any], expected: Sequence[Expected],
        earlier: Mapping[str, Sequence[Expected]], aliases: Mapping[str, str],
    ) -> bool:  # fmt: skip
        judgement = self.judgement
        try:
            candidate.fill(values, aliases)
            runs = candidate.run(values)
        except SimError as error:
            judgement.add_findings([finding.document() for finding in error.findings], trial.name)
            if not any(finding.severity == "error" for finding in error.findings):
                judgement.add("fails", f"{type(error).__name__}: {error}", trial.name)
            return False
        for run in runs:
            judgement.add_findings([finding.document() for finding in run.findings], trial.name)
            kernel = run.kernel.info.title.partition("(")[0]
            judgement.kernels[kernel] = judgement.kernels.get(kernel, 0) + 1
        if not runs and any(array.want.size for array in expected):
            judgement.add("no-kernel", "no launch has a workgroup", trial.name)
        got = self._results(candidate, values, trial.name)
        outcome = _compare(self.reference.results, got, expected, values, STYLES[trial.style].special)
        counted = sum(run.instructions for run in runs)
        judgement.trials.append(replace(trial, outcome=outcome, launches=len(runs), instructions=counted))
        if not outcome.right:
            others = {
                name: _compare(self.reference.results, got, known, values, False) for name, known in earlier.items()
            }
            kind, message = reason_of(outcome, others)
            judgement.add("special" if STYLES[trial.style].special else kind, message, trial.name)
        elif outcome.special:
            judgement.add("special", f"{outcome.special:,} elements differ in being NaN or infinite", trial.name)
        return True

    def _results(self, candidate: HipCandidate, values: Mapping[str, Any], name: str) -> list[np.ndarray]:
        """Returns the results, after a look at inputs and padding."""
        results = []
        for one in self.reference.arguments:
            if one.dimensions is None:
                continue
            array, kept = candidate.read(one, values.get(one.name))
            if not kept:
                self.judgement.add("outside", f"elements between the rows of {one.name} were written", name)
            if one.name in candidate.aliases.values():
                continue
            if one.use == IN and array.tobytes() != np.ascontiguousarray(values[one.name]).tobytes():
                self.judgement.add("inputs-changed", f"{one.name} is an input, and was written", name)
            elif one.use != IN:
                results.append(array)
        return results

    def _time(self, sizes: dict[str, int]) -> None:
        """Models the candidate's time and, if the reference names kernels, theirs."""
        times = self.judgement.times = Times(sizes=sizes)
        values = self.reference.draw(sizes, "own", self.rng)
        chip = hardware.target(self.judgement.target)
        moved = sum(
            int(np.prod(one.shape(sizes), dtype=np.int64)) * one.kind.itemsize * (2 if one.use == INOUT else 1)
            for one in self.reference.arguments
            if one.dimensions is not None
        )
        times.least = moved / (chip.hbm_bandwidth_tb * 1e12)
        try:
            times.candidate = self._seconds(self.judgement.candidate, sizes, values)
        except SimError as error:
            self.judgement.add("unmodelled", f"{type(error).__name__}: {error}")
            return
        if self.reference.baseline:
            path = str(Path(self.reference.path).with_name(self.reference.baseline))
            try:
                times.reference = self._seconds(path, sizes, values)
            except KernelFailed as error:
                raise UsageError(f"{path}: {error}") from None
            times.basis = self.reference.baseline
        if times.candidate and times.least > times.candidate:
            self.judgement.add("too-fast", f"{1e6 * times.candidate:.3g} us; moving its bytes takes {1e6 * times.least:.3g} us")

    def _seconds(self, path: str, sizes: dict[str, int], values: Mapping[str, Any]) -> float:
        candidate = self._load(path, check=False)
        assert candidate is not None
        candidate.allocate(sizes)
        candidate.fill(values, {})
        return candidate.seconds(values)


def _compare(
    results: Sequence[CandidateArgument], got: Sequence[np.ndarray], expected: Sequence[Expected], values: Mapping[str, Any],
    special: bool,
) -> CallOutcome:
    """Compares the results of one call. Results that are no inputs were poisoned before it."""
    comparisons = []
    for one, array, want in zip(results, got, expected, strict=True):
        poison = np.full(array.nbytes, POISON, np.uint8).view(one.kind).reshape(array.shape) if one.use == OUT else None
        comparisons.append(compare(one.name, array, want, poison, special))
    return CallOutcome(tuple(comparisons))
