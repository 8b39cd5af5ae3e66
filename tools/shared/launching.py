"""Launching from the command line: device options, a kernel's own errors, a run's output."""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from simgpu import hardware
from simgpu.engine.suppressions import Suppressions
from simgpu.hardware.errors import HipError, LaunchError, SimError
from simgpu.tools.shared.console import about_left, progress, show, table
from simgpu.tools.shared.errors import KernelFailed
from simgpu.tools.shared.seeds import Seeds, mode_of, seeds_of

if TYPE_CHECKING:
    from simgpu import Device, Finding, Run
    from simgpu.engine.dispatch import Dispatch
    from simgpu.hardware import hip

UNITS = {"bytes": "bytes", "flops": "FLOP", "conflicts": "clocks"}
T = TypeVar("T")
DEVICES = ("sim", "hip")
COUNTED_AFTER = 2.0  # seconds of a launch before its workgroups are counted
TIMEOUT_SECONDS = 60.0  # of a launch on a real GPU, by default


@dataclass
class Watch:
    """Options of devices and launches in checked mode (`simgpu check`), and a record of these launches."""

    check: bool | str = True  # for `Device`
    launch: Callable[..., Run] | None = None  # called with a kernel and its launch's arguments, instead of `Kernel.launch`
    suppressions: Suppressions = field(default_factory=Suppressions)  # findings that are not reported
    schedule: int | None = None  # seed of the order in which waves run
    shadow: bool = False  # the worst element's workgroup runs again with f64
    worst: Any = None  # its result, a `cases.shadow.WorstElement`
    runs: list[tuple[str, Run]] = field(default_factory=list)  # by kernel or computation
    findings: list[Finding] = field(default_factory=list)  # of the runs, and of launches that failed
    unusual: list[str] = field(default_factory=list)  # results that are not finite, in words


def add_device_options(parser: ArgumentParser, against_sim: bool = True) -> None:
    """Adds --seed, --device and the options of each device; --against-sim for verbs that compare a result."""
    parser.add_argument("--seed", type=int, default=0, help="seed of generated inputs (default: 0)")
    parser.add_argument(
        "--device", choices=DEVICES, default="sim", help="the simulator (default) or a real GPU through HIP"
    )
    sim = parser.add_argument_group("--device sim")
    sim.add_argument("--threads", type=int, help="host threads (default: all cores)")
    add_limit_options(sim, parser, f"; with --device hip {TIMEOUT_SECONDS:g}")
    gpu = parser.add_argument_group("--device hip", "the first GPU of HIP_VISIBLE_DEVICES")
    if against_sim:
        gpu.add_argument(
            "--against-sim", action="store_true", help="also simulate, and compare every element of the result"
        )


def add_ring_option(parser: ArgumentParser) -> None:
    """Adds --ring, for verbs whose result is not compared with float64."""
    text = "floats are elements of a ring of integers, so that sums and products are exact (docs/explanation/ring.md)"
    parser.add_argument("--ring", action="store_true", help=text)


def add_limit_options(simulated: Any, both: Any, otherwise: str = "") -> None:
    """Adds the limits of a launch to parsers or groups; otherwise: text on --timeout's default."""
    simulated.add_argument("--max-instructions", type=int, help="a launch's budget in wave-instructions")
    text = f"until a launch counts as hung (default: none{otherwise})"
    both.add_argument("--timeout", type=_seconds, metavar="SECONDS", help=text)


def _seconds(text: str) -> float:
    """Parses a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def device_of(options: Namespace, target: str, watch: Watch | None = None) -> Device | hip.Device:
    """Returns the GPU of the options, in checked mode for a watch. Raises TargetError, LaunchError, and HipError if a real one
    differs or is missing."""
    if options.seed < 0:
        raise LaunchError(f"--seed {options.seed}: give 0 or more")
    if getattr(options, "against_sim", False) and options.device == "sim":
        raise LaunchError("--against-sim compares a real GPU with the simulator: add --device hip, or leave it out")
    if watch is not None and (mode := mode_of(options)):
        raise LaunchError(
            f"--{mode} computes wrong numbers, checked mode explains them: give --{mode} to `simgpu exec` or `simgpu run`"
        )
    if options.device == "hip" and getattr(options, "ring", False):
        raise LaunchError("--ring is the simulator's: leave --device hip out")
    if options.device == "hip" and watch is not None:
        raise LaunchError("checked mode is the simulator's: leave --device hip out")
    return real_device(options, target) if options.device == "hip" else simulated_device(options, target, watch)


def simulated_device(options: Namespace, target: str, watch: Watch | None = None) -> Device:
    """Returns the simulated GPU, checked for a watch."""
    from simgpu import Device

    seeds = seeds_of(options)
    device = Device(
        target, check=watch.check if watch else False, threads=options.threads, max_instructions=options.max_instructions,
        timeout=options.timeout, suppressions=watch.suppressions if watch else None,
        schedule=watch.schedule if watch else None, ring=getattr(options, "ring", None) or None,
        weak=seeds.weak, late=seeds.late,
    )  # fmt: skip
    device.shown = showing
    return device


def with_seed(options: Namespace, target: str, seed: int) -> Device:
    """Returns the simulated GPU in the options' mode with a seed."""
    return simulated_device(Namespace(**{**vars(options), mode_of(options): Seeds(seed, seed)}), target)


@contextmanager
def showing(launch: Dispatch) -> Iterator[None]:
    """Shows a launch's progress on a terminal while the block runs."""
    with progress(HowFar(launch)):
        yield


class HowFar:
    """Progress message of a running launch, computed at each refresh."""

    def __init__(self, launch: Dispatch) -> None:
        self._launch, self._begun = launch, time.perf_counter()
        self._ended = 0

    def __rich__(self) -> str:
        name, (ended, every) = self._launch.info.title, self._launch.progress
        # `ended` misses workgroups taken between its two readings, so it may fall below the last message.
        self._ended = ended = max(ended, self._ended)
        if time.perf_counter() - self._begun < COUNTED_AFTER:
            return f"running {name}"
        if not self._launch.at_work:
            return f"compiling what {name} executes"
        left = f", {about_left(self._begun, ended / every)}" if ended else ""
        return f"running {name}: {ended:,} of {every:,} workgroups{left}"


def real_device(options: Namespace, target: str) -> hip.Device:
    """Returns the real GPU, if it is of `target`'s architecture."""
    from simgpu.hardware.hip import Device

    wanted = hardware.target(target)
    device = Device(timeout=options.timeout or TIMEOUT_SECONDS)
    if wanted.arch != device.arch:
        raise HipError(
            f"{device.name} cannot run code for {target} ({wanted.arch})", f"Give --target {device.descriptor.name}."
        )
    return device


def launch(kernel: Any, watch: Watch | None, **call: Any) -> Any:
    """Launches once, by the watch's own function if it has one, and returns the run."""
    return watch.launch(kernel, **call) if watch is not None and watch.launch is not None else kernel.launch(**call)


def launch_work(what: str, work: Callable[[], T], watch: Watch | None = None) -> T:
    """Returns the result of `work`, a run or several, and keeps the runs in `watch`. The kernel's errors become KernelFailed;
    LaunchError and HipError pass through."""
    watch = watch or Watch()
    try:
        with progress(f"running {what}"):
            outcome = work()
    except (LaunchError, HipError):
        raise
    except SimError as error:
        watch.findings += error.findings
        raise KernelFailed(f"{type(error).__name__}: {error}") from None
    runs: list[Any] = outcome if isinstance(outcome, list) else [outcome]
    for run in runs:
        watch.runs.append((what, run))
        watch.findings += getattr(run, "findings", [])
    return outcome


def combine_runs(runs: Sequence[Any]) -> Any:
    """Adds up several launches on one device: counts, times and findings. Unique bytes are unique within one launch only."""
    if len(runs) == 1:
        return runs[0]
    if not is_simulated(runs[0]):
        return replace(runs[0], seconds=sum(run.seconds for run in runs))
    from simgpu.engine.result import Run, merge_inexact

    def add_counts(maps: Iterable[Mapping[str, int]]) -> dict[str, int]:
        total: dict[str, int] = {}
        for counts in maps:
            for name, value in counts.items():
                total[name] = total.get(name, 0) + value
        return total

    return Run(
        sum(run.instructions for run in runs),
        sum(run.seconds for run in runs),
        add_counts(run.counters for run in runs),
        [finding for run in runs for finding in run.findings],
        add_counts(run.fidelity for run in runs),
        inexact=merge_inexact(entry for run in runs for entry in run.inexact),
    )


def is_simulated(run: Any) -> bool:
    """True for a simulated Run; a real GPU's has only its time."""
    return hasattr(run, "counters")


def show_run(run: Any) -> None:
    """Prints counters, fidelity and findings of a simulated run, or the time of one on a GPU."""
    if not is_simulated(run):
        show(f"\nRan on {run.device} in {1e6 * run.seconds:,.1f} us, by HIP events around the launch")
        return
    rate = run.instructions / run.seconds if run.seconds else 0.0
    rows = [(name, value, unit_of(name)) for name, value in run.counters.items()]
    show(table("Counters", ("counter", "value", "unit"), rows))
    fidelity = ", ".join(f"{count:,} {name}" for name, count in run.fidelity.items() if count)
    if run.inexact:
        columns = ("instruction", "fidelity", "executed", "note")
        lines = [(e.mnemonic, e.fidelity.kind, e.count, e.fidelity.why) for e in run.inexact]
        show(table("Not exact", columns, lines, left=2))
    show(f"\nFidelity (wave-instructions): {fidelity or 'none executed'}")
    show(f"Simulated {run.instructions:,} wave-instructions in {run.seconds:.3f} s, {rate / 1e6:.1f} M/s")
    for note in () if run.findings else run.notes:  # checked mode has them among its findings
        show(f"note: {note}")
    for finding in run.findings:
        show(str(finding))


def unit_of(counter: str) -> str:
    """Returns the unit of a counter's key (docs/reference/counters.md)."""
    return UNITS.get(counter.rsplit("_", 1)[-1], "wave-instructions")


def has_errors(findings: Iterable[Finding]) -> bool:
    """True if any finding says that the kernel is wrong; notes and a check's own error do not count."""
    return any(finding.severity == "error" and not finding.is_internal for finding in findings)


def run_document(run: Any) -> dict[str, Any]:
    """Returns a run's JSON document."""
    if not is_simulated(run):
        return {"device": run.device, "seconds": run.seconds, "findings": []}
    return {
        "instructions": run.instructions,
        "seconds": run.seconds,
        "counters": dict(run.counters),
        "fidelity": dict(run.fidelity),
        "inexact": [
            {"instruction": e.mnemonic, "fidelity": e.fidelity.kind, "count": e.count, "why": e.fidelity.why} for e in run.inexact
        ],
        "findings": [finding.document() for finding in run.findings],
    }
