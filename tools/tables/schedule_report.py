"""`simgpu report --schedule`: what `schedule_model` says of an operator's kernels."""

from __future__ import annotations

from typing import Any

from simgpu.hardware.errors import LaunchError
from simgpu.operators.tree import Root
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.tables.loop_conflicts import lost_clocks
from simgpu.tools.tables.schedule_model import LDS_LATENCY, MEMORY_LATENCY, Schedule, loop_body, model, steps_of

COLUMNS = ("kernel", "waves a SIMD", "clocks a pass", "issue-bound", "limited by", "modelled", "LDS conflicts", "stalls")


def schedules(tree: Root) -> dict[str, Schedule]:
    """The model's answer for each kernel of the computation that has matrix instructions in a loop, by name."""
    from simgpu import asm

    answers = {}
    kernel = asm.emit(tree)
    for step in kernel.steps:
        try:
            body = loop_body(step.items)
        except LaunchError:
            continue
        if any(s.matrix for s in steps_of(body, step.target)):
            lost = lost_clocks(kernel, step, body)
            steps = steps_of(body, step.target, lambda instr, lost=lost: lost.get(id(instr)))  # type: ignore[misc]
            waves = max(1, step.plan.resources.waves_per_simd)
            answers[step.name] = model(steps, tree.descriptor, waves, step.block[0] // tree.descriptor.wavefront_size)
    return answers


def show_schedule(tree: Root, json: bool) -> None:
    """Prints the model's answers; LaunchError if no kernel of the computation has such a loop."""
    answers = schedules(tree)
    if not answers:
        raise LaunchError("no kernel of this computation has matrix instructions in a loop: there is nothing to model")
    if json:
        print_json({
            "latencies_clocks": {"lds": LDS_LATENCY, "memory": MEMORY_LATENCY},
            "kernels": {name: vars(answer) for name, answer in answers.items()},
        })  # fmt: skip
        return
    show(
        table("Main loop, modelled in order", COLUMNS, (_cells(name, answer) for name, answer in answers.items()), left=1),
        "",
        f"Matrix clocks over clocks, in steady state; assumed latencies: LDS {LDS_LATENCY}, memory {MEMORY_LATENCY} clocks.",
        "LDS conflicts: clocks that a wave's pass loses, of how many of its LDS accesses; by the rules of",
        "hardware/timing_rules/lds_banks.py from the addresses of the simulated workgroup 0. What else the model assumes:",
        "tools/tables/schedule_model.py.",
    )


def _cells(name: str, answer: Schedule) -> tuple[Any, ...]:
    stalls = ", ".join(f"{cause} {share:.1%}" for cause, share in answer.stalls.items() if share >= 0.0005)
    bound, modelled = f"{answer.issue_bound:.1%}", f"{answer.utilisation:.1%}"
    conflicts = f"{answer.lds_lost:g} of {answer.lds_accesses}"
    if answer.lds_counted < answer.lds_accesses:
        conflicts += f" ({answer.lds_counted} counted)"
    return name, answer.waves, round(answer.clocks), bound, answer.limit, modelled, conflicts, stalls or "none"
