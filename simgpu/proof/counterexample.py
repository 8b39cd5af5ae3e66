"""Inputs for which two kernels differ: from a solver's model to a launch, which the simulator confirms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import z3

from simgpu.device import Device
from simgpu.hardware.errors import SimError
from simgpu.proof.effects import Obligation
from simgpu.proof.entry import AXES, KernelInputs, argument_symbol, group_id, item_id
from simgpu.proof.roots import GLOBAL, POINTER, initial_bytes
from simgpu.proof.solver import Budget, solve
from simgpu.proof.state import WaveState

Term = Any
BUFFER_SIZES = (1 << 12, 1 << 16, 1 << 20)  # bytes of each buffer of a launch: the first for which it shows the difference
BUFFER_BYTES = BUFFER_SIZES[-1]
GROUPS = 2  # workgroups of a launch
ITEMS = 64  # most work-items of its workgroup, unless the kernel requires another number
SEARCH_EFFORT = 20.0  # for a launch, once a difference is known
MOST_INSTRUCTIONS = 50_000_000  # of a confirming run


@dataclass(frozen=True)
class Counterexample:
    """A launch after which the kernels' memory differs."""

    arguments: tuple[np.ndarray | np.generic | bytes, ...]  # buffers as bytes, and values
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    argument: int  # the first buffer that differs
    byte: int  # the first byte in it
    results: tuple[bytes, bytes]  # up to 8 bytes from there on, of each kernel


@dataclass(frozen=True)
class Question:
    """An obligation that does not hold, and the runs that it is about."""

    one: Obligation
    ends: Sequence[WaveState]
    inputs: Sequence[KernelInputs]
    budget: Budget
    payloads: bool  # True if float arithmetic has a part in stored values, so that payloads of NaNs may differ
    runners: Sequence[Runner]


@dataclass(frozen=True)
class CounterexampleLaunch:
    """Arguments, buffers among them as bytes, and extents."""

    arguments: Sequence[Any]
    block: Sequence[int]
    grid: Sequence[int]


class Runner(Protocol):
    """Kernel of the two, to be run."""

    def run(self, launch: CounterexampleLaunch) -> list[BufferContent | None] | None:
        """Returns each buffer after a launch, None for other arguments; None if the launch fails."""

    def races(self, launch: CounterexampleLaunch) -> bool:
        """True if lanes race in a launch, so that its results may differ anyway."""


@dataclass(frozen=True)
class BufferContent:
    """A buffer after a launch. free: bits of its bytes that may have any value."""

    content: np.ndarray
    free: np.ndarray | None = None


@dataclass(frozen=True)
class SimulatedKernel:
    """A kernel's code on the simulator."""

    inputs: KernelInputs

    def run(self, launch: CounterexampleLaunch) -> list[BufferContent | None] | None:
        done = self._launch(launch, check=False)
        if done is None:
            return None
        buffers = zip(done[1], launch.arguments, strict=True)
        return [BufferContent(buffer.download(np.uint8)) if isinstance(value, np.ndarray) else None for buffer, value in buffers]

    def races(self, launch: CounterexampleLaunch) -> bool:
        done = self._launch(launch, check=True)
        return done is None or any(finding.kind == "race" for finding in done[0].findings)

    def _launch(self, launch: CounterexampleLaunch, check: bool) -> tuple[Any, list[Any]] | None:
        device = Device(self.inputs.info.target, check=check, max_instructions=MOST_INSTRUCTIONS)
        buffers = [device.upload(value) if isinstance(value, np.ndarray) else value for value in launch.arguments]
        kernel = device.load(self.inputs.code.data)[self.inputs.info.name]
        try:
            return kernel.launch(grid=tuple(launch.grid), block=tuple(launch.block), args=buffers), buffers
        except SimError:
            return None


def find(question: Question) -> Counterexample | None:
    """Returns a confirmed launch for which an obligation does not hold; None if none was found."""
    info = question.inputs[0].info
    if any(not arg.is_pointer and arg.value_kind != "by_value" for arg in info.explicit_arguments):
        return None
    shape = info.required_workgroup_size or (0, 1, 1)
    known = [fact for each in question.inputs for fact in each.facts()]
    given = [*known, *_launchable(question, shape)]
    tries = [question.one.holds] if question.one.seen is None else [question.one.seen, question.one.holds]
    for right in tries:
        wanted = [z3.Not(right), *given]
        result, model = solve([*wanted, *question.ends[0].lanes.facts(wanted)], question.budget, SEARCH_EFFORT)
        found = _try_launches(question, model) if result == z3.sat else None
        if found is not None:
            return found
    return None


def _try_launches(question: Question, model: Any) -> Counterexample | None:
    """Runs launches with a model's arguments: with the model's memory, and with drawn bytes where or even if it has some."""
    info = question.inputs[0].info
    arguments = [_argument(question, model, index) for index in range(len(info.explicit_arguments))]
    block = tuple(_value(model, z3.BitVec(f"hidden_group_size_{axis}", 16)) for axis in AXES)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 256, len(v), np.uint8) if isinstance(v, np.ndarray) else v for v in arguments]
    for values in (arguments, drawn):
        for size in BUFFER_SIZES:
            shorter = [value[:size] if isinstance(value, np.ndarray) else value for value in values]
            lost = values is arguments and any(isinstance(v, np.ndarray) and v[size:].any() for v in values)
            for groups in () if lost else (GROUPS, 1):
                found = confirm(question, shorter, block, (groups, 1, 1))
                if found is not None:
                    return found
    return None


def _launchable(question: Question, shape: Sequence[int]) -> list[Term]:
    """Returns what holds of a small launch in one dimension (or of the shape that the kernel requires), all accesses in bounds."""
    inputs = question.inputs[0]
    lanes = question.ends[0].lanes
    wanted: list[Term] = []
    for axis, extent in zip(AXES, (*shape, 1, 1), strict=False):
        size = z3.BitVec(f"hidden_group_size_{axis}", 16)
        groups = GROUPS if axis == "x" else 1
        wanted += [size == extent] if extent else [z3.ULE(size, ITEMS), size != 0]
        wanted += [
            z3.ULT(group_id(axis), groups), z3.BitVec(f"hidden_block_count_{axis}", 32) == groups,
            z3.BitVec(f"hidden_remainder_{axis}", 16) == 0, z3.BitVec(f"hidden_global_offset_{axis}", 64) == 0,
            z3.BitVec(f"grid_size_{axis}", 32) == z3.ZeroExt(16, size) * groups,
            z3.ULT(item_id(axis, lanes), z3.Extract(9, 0, size)) if extent != 1 else item_id(axis, lanes) == 0,
        ]  # fmt: skip
    first = item_id("x", lanes)
    wanted.append(z3.Extract(5, 0, first) == z3.Extract(5, 0, lanes.lane))
    wanted.append(z3.BitVec("hidden_grid_dims", 16) == 3)
    pointers = {}
    for index, argument in enumerate(inputs.info.explicit_arguments):
        if argument.is_pointer:
            symbol = argument_symbol(index, argument)
            pointers[str(symbol)] = symbol
            wanted.append(symbol == (index + 1) << 40)
    for guard, address, count in _accesses(question):
        if address.base in pointers:
            inside = z3.ULE(address.at() - pointers[address.base], BUFFER_BYTES - count)
            wanted.append(z3.Implies(guard, inside))
    return wanted


def _accesses(question: Question) -> list[Any]:
    found = []
    for state in question.ends:
        found += [(load.guard, load.address, load.count) for load in state.memory.read]
        events = [event for interval in state.memory.intervals for event in interval.events] + state.memory.events
        stored = (event for event in events if event.address.space == GLOBAL)
        found += [(event.guard, event.address, sum(part.size() for part in event.data) // 8) for event in stored]
    return found


def _value(model: Any, term: Term) -> int:
    return int(model.eval(term, model_completion=True).as_long())


def _argument(question: Question, model: Any, index: int) -> Any:
    """Returns an argument: a buffer with the bytes that the model needs, or the value's bytes."""
    argument = question.inputs[0].info.explicit_arguments[index]
    symbol = argument_symbol(index, argument)
    if not argument.is_pointer:
        return _value(model, symbol).to_bytes(argument.size, "little")
    content = np.zeros(BUFFER_BYTES, np.uint8)
    for state in question.ends:
        for load in state.memory.read:
            address = load.address
            if address.base != f"{POINTER}{index}" or not z3.is_true(model.eval(load.guard, model_completion=True)):
                continue
            start = _value(model, address.at()) - _value(model, symbol)
            if not 0 <= start <= BUFFER_BYTES - load.count:
                continue
            for at in range(load.count):
                epoch = "" if address.base in state.memory.read_only else "0"
                content[start + at] = _value(model, initial_bytes(epoch, address.root, address.offset + at, 1))
    return content


def confirm(question: Question, arguments: Sequence[Any], block: Sequence[int], grid: Sequence[int]) -> Counterexample | None:
    """Runs both kernels; returns the launch if their memory differs by more than a NaN's payload."""
    launch = CounterexampleLaunch(arguments, block, grid)
    after = [runner.run(launch) for runner in question.runners]
    if after[0] is None or after[1] is None:
        return None
    for index, (mine, other) in enumerate(zip(*after, strict=True)):
        if mine is None or other is None:
            continue
        x, y = mine.content, other.content
        wrong = (x != y) if other.free is None else (x | other.free) != (y | other.free)
        (places,) = np.nonzero(wrong & ~_both_nan(x, y) if question.payloads else wrong)
        if len(places):
            at = int(places[0])
            results = x[at : at + 8].tobytes(), y[at : at + 8].tobytes()
            if any(runner.races(launch) for runner in question.runners):
                return None
            return Counterexample(tuple(arguments), tuple(block), tuple(grid), index, at, results)  # type: ignore[arg-type]
    return None


def _both_nan(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns for each byte if it belongs to a NaN of some float type on both sides."""
    nan = np.zeros(len(x), np.bool_)
    for kind, absolute, infinity in (
        (np.uint64, (1 << 63) - 1, 0x7FF << 52), (np.uint32, (1 << 31) - 1, 0x7F800000),
        (np.uint16, 0x7FFF, 0x7C00), (np.uint16, 0x7FFF, 0x7F80),
    ):  # fmt: skip
        size = np.dtype(kind).itemsize
        whole: list[Any] = [side[: len(side) // size * size].view(kind) for side in (x, y)]
        sides = [side & kind(absolute) > kind(infinity) for side in whole]
        nan[: len(sides[0]) * size] |= np.repeat(sides[0] & sides[1], size)
    return nan
