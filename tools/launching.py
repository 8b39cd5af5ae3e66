"""Launching from the command line: device options, a kernel's own errors, what a run prints."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hardware.errors import LaunchError, SimError
from tools.console import progress, show, table
from tools.errors import KernelFailed

if TYPE_CHECKING:
    from simgpu import Device, Finding, Run


@dataclass
class Watch:
    """Launches in checked mode: runs by what was launched, and findings, also of those that failed."""

    runs: list[tuple[str, Run]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


# While it is set, devices are checked and launches are kept (`simgpu check`).
WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)

UNITS = {"bytes": "bytes", "flops": "FLOP", "conflicts": "clocks"}


def add_device_options(parser: ArgumentParser) -> None:
    """--seed, --threads, --max-instructions."""
    parser.add_argument("--seed", type=int, default=0, help="seed of generated inputs (default: 0)")
    parser.add_argument("--threads", type=int, help="host threads (default: all cores)")
    parser.add_argument("--max-instructions", type=int, help="a launch's budget in wave-instructions")


def device_of(options: Namespace, target: str) -> Device:
    """The simulated GPU that the options ask for; TargetError, LaunchError."""
    from simgpu import Device

    if options.seed < 0:
        raise LaunchError(f"--seed {options.seed}: give 0 or more")
    check = WATCH.get() is not None
    return Device(target, check=check, threads=options.threads, max_instructions=options.max_instructions)


def launched(what: str, launch: Callable[[], Run]) -> Run:
    """Runs `launch`; what the kernel does wrong becomes KernelFailed, LaunchError stays what it is."""
    watch = WATCH.get() or Watch()
    try:
        with progress(f"simulating {what}"):
            outcome = launch()
    except LaunchError:
        raise
    except SimError as error:
        watch.findings += error.findings
        raise KernelFailed(f"{type(error).__name__}: {error}") from None
    watch.runs.append((what, outcome))
    watch.findings += outcome.findings
    return outcome


def show_run(run: Run) -> None:
    """Counters, fidelity and findings of a run."""
    rate = run.instructions / run.seconds if run.seconds else 0.0
    rows = [(name, value, unit_of(name)) for name, value in run.counters.items()]
    show(table("Counters", ("counter", "value", "unit"), rows))
    fidelity = ", ".join(f"{count:,} {name}" for name, count in run.fidelity.items() if count)
    show(f"\nFidelity (wave-instructions): {fidelity or 'none executed'}")
    show(f"Simulated {run.instructions:,} wave-instructions in {run.seconds:.3f} s, {rate / 1e6:.1f} M/s")
    for finding in run.findings:
        show(str(finding))


def unit_of(counter: str) -> str:
    """The unit of a counter's key (docs/counters.md)."""
    return UNITS.get(counter.rsplit("_", 1)[-1], "wave-instructions")


def run_document(run: Run) -> dict[str, Any]:
    """A run for JSON."""
    return {
        "instructions": run.instructions,
        "seconds": run.seconds,
        "counters": dict(run.counters),
        "fidelity": dict(run.fidelity),
        "findings": [finding.document() for finding in run.findings],
    }
