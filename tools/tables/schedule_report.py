"""`simgpu report --schedule`: the main loop of an operator's kernels, by the model of time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError, MemoryFault
from simgpu.operators.tree import Root
from simgpu.timing.history import LaunchHistory
from simgpu.timing.lines import TimedLine, lines
from simgpu.timing.native.state import Tally
from simgpu.timing.predict import Prediction, predict
from simgpu.tools.shared.console import print_json, progress, show, table

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel

COLUMNS = ("kernel", "waves a SIMD", "clocks a pass", "matrix", "stalls")
# Least bytes of each operand, and those if rows with gaps need more: a raw buffer's reach. The host allocates only touched pages.
ROOM = (1 << 26, 1 << 31)
LEAST = 0.005  # least fraction of the loop's clocks of a listed reason


@dataclass(frozen=True)
class Schedule:
    """A kernel's loop with the most matrix instructions."""

    waves: float  # in the loop at once on a SIMD that has any in it, on average
    clocks: float  # of a pass of a wave
    utilisation: float  # matrix clocks over clocks in which a SIMD has waves in the loop
    stalls: dict[str, float]  # fraction of a wave's clocks, by reason
    first: int  # offset of the loop's first instruction in the kernel's code
    last: int  # offset of its last


def schedules(tree: Root) -> dict[str, Schedule]:
    """Models each kernel of the computation that has matrix instructions in a loop, by name."""
    loops = {name: loop_of(one) for name, one in predictions(tree, matrix_only=True).items()}
    return {name: loop for name, loop in loops.items() if loop is not None}


def predictions(tree: Root, matrix_only: bool = False) -> dict[str, Prediction]:
    """Models the time of each kernel of the computation, on zeros, by name. A kernel finds in the caches what earlier ones left.

    matrix_only: only kernels with matrix instructions.
    """
    from simgpu import asm

    kernel = asm.emit(tree)
    # Labels and comments have no mnemonic.
    steps = [
        step for step in kernel.steps if not matrix_only
        or any(getattr(item, "mnemonic", "").startswith(("v_mfma", "v_smfmac")) for item in step.items)
    ]  # fmt: skip
    try:
        # An operand with less than its bytes would share the lines of its neighbour.
        return _time_kernels(kernel, steps, tree, max(ROOM[0], tree.problem.bytes_once))
    except MemoryFault:
        return _time_kernels(kernel, steps, tree, ROOM[1])


def _time_kernels(kernel: EmittedKernel, steps: list[EmittedKernel], tree: Root, room: int) -> dict[str, Prediction]:
    """Models some of the computation's kernels on zeros, with `room` bytes for each operand, and scratch memory of its size."""
    import simgpu
    from simgpu.sampling.samples import sample

    device, answers, before = simgpu.Device(tree.descriptor, threads=1), dict[str, Prediction](), LaunchHistory()
    sizes = dict.fromkeys(kernel.operands, room) | dict(kernel.scratch)
    buffers, module = {name: device.alloc(nbytes) for name, nbytes in sizes.items()}, device.load(kernel.assemble())
    for number, step in enumerate(steps, 1):
        with progress(f"modelling the time of {step.name}"):
            sampled = sample(module[step.name], Geometry.of(step.grid, step.block), step.bind(buffers), restore=False)
            answers[step.name] = predict(sampled, warm=before)
            if number < len(steps):
                before = answers[step.name].left
    return answers


def loop_of(one: Prediction) -> Schedule | None:
    """Returns the loop that executed the most matrix instructions, from a branch's target to the branch; None if there is none."""
    rows = lines(one)
    kinds = one.sampled.instructions
    trace = one.sampled.whole[0]
    steps = trace.steps[trace.starts[0] : trace.starts[1]].astype(int)
    backward = {(int(after), int(before)) for before, after in itertools.pairwise(steps) if after <= before}

    def rows_inside(span: tuple[int, int]) -> list[TimedLine]:
        return [row for row in rows if span[0] <= row.number <= span[1]]

    def matrix(span: tuple[int, int]) -> tuple[int, int]:
        return sum(row.hits for row in rows_inside(span) if kinds[row.number].spec.kind == "matrix"), span[0] - span[1]

    best = max(backward, key=matrix, default=None)
    if best is None or matrix(best)[0] == 0:
        return None
    one = predict(one.sampled, watched=(best[0], best[1] + 1))
    rows = lines(one)
    loop = rows_inside(best)
    passes = next(row.hits for row in loop if row.number == best[1])
    latency = sum(row.latency for row in loop)
    waves = max(1.0, latency / max(1.0, float(one.result.tally[Tally.WATCHED])))
    busy = sum(row.hits * int(one.code.clocks[row.number]) for row in loop if kinds[row.number].spec.kind == "matrix")
    stalls: dict[str, float] = {}
    for row in loop:
        for reason, clocks in row.reasons.items():
            stalls[reason] = stalls.get(reason, 0.0) + clocks / max(1, latency)
    ordered = dict(sorted(stalls.items(), key=lambda item: -item[1]))
    entry = one.sampled.entry
    first, last = (4 * (number - entry) for number in best)
    return Schedule(waves, latency / max(1, passes), busy * waves / max(1, latency), ordered, first, last)


def show_schedule(tree: Root, json: bool) -> None:
    """Prints the model's answers. Raises LaunchError if no kernel of the computation has such a loop."""
    answers = schedules(tree)
    if not answers:
        raise LaunchError("no kernel of this computation has matrix instructions in a loop: there is nothing to model")
    if json:
        print_json({"kernels": {name: vars(answer) for name, answer in answers.items()}})
        return
    show(
        table("Main loop, modelled", COLUMNS, (_cells(name, answer) for name, answer in answers.items()), left=1),
        "",
        "Matrix clocks over the clocks in which a SIMD has waves in the loop; stalls as shares of a wave's clocks,",
        "by PC sampling's reasons.",
        "The model is that of `simgpu time`, which has every line: `simgpu help timing`.",
    )


def _cells(name: str, answer: Schedule) -> tuple[Any, ...]:
    stalls = ", ".join(f"{reason} {share:.1%}" for reason, share in answer.stalls.items() if share >= LEAST)
    return name, round(answer.waves, 2), round(answer.clocks), f"{answer.utilisation:.1%}", stalls or "none"
