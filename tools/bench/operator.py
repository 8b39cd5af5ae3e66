"""`simgpu bench OP`: times of a computation over many launches on a GPU (or in the simulator), its result validated."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import LaunchError
from simgpu.tools.bench import attention_table
from simgpu.tools.bench.clock import clock_mhz
from simgpu.tools.bench.profile import profile_document, profile_launches, show_profile
from simgpu.tools.cases.execute import against_sim
from simgpu.tools.cases.operator_options import headline, operator_document, operator_tree
from simgpu.tools.cases.operators import workload
from simgpu.tools.cases.timing import WARM_UP, Figures, Timer
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.agreement import Agreement
from simgpu.tools.shared.console import print_json, progress, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import add_inputs_option
from simgpu.tools.shared.launching import add_device_options, device_of, launch_work
from simgpu.tools.shared.outputs import claim
from simgpu.tools.shared.verdict import Verdict

if TYPE_CHECKING:
    from simgpu.operators.tree import Root
    from simgpu.tools.page.watching import WatchedLaunch

FEWEST = 20  # launches; a median of fewer says little


def add_options(parser: ArgumentParser) -> None:
    """Adds the options of `simgpu bench OP`, in addition to the operator's own."""
    parser.add_argument("--launches", type=int, default=FEWEST, help=f"launches to time, at least {FEWEST} (the default)")
    parser.add_argument(
        "--against-unfused", action="store_true", help="attention: also time the three kernels of the paper's baseline"
    )
    add_device_options(parser)
    add_inputs_option(parser)
    add_html_option(parser)
    if parser.prog.endswith("attention"):
        attention_table.configure(parser)


def run(options: Namespace) -> int:
    """Times the kernels on random inputs; status 1 if a result is wrong or launches differ."""
    if options.profile and (options.device == "hip" or getattr(options, "table", False)):
        raise UsageError("--profile samples the simulator while it times launches: leave --device hip and --table out")
    if options.op == "attention" and options.table:
        if options.inputs != "uniform":
            raise UsageError(f"--inputs {options.inputs}: the table's operands are its own: leave --inputs or --table out")
        return attention_table.run(options)
    if options.launches < FEWEST:
        raise LaunchError(f"--launches {options.launches}: give {FEWEST} or more, a median of fewer says little")
    if options.against_unfused and options.op != "attention":
        raise UsageError(f"--against-unfused compares attention with three kernels: {options.op} has no such baseline")
    claim([options.html], options.force)
    tree = operator_tree(options)
    device: Any = device_of(options, options.target)
    real = options.device == "hip"
    where = device.name if real else f"the simulated {device.arch}, host time"
    result = measure(options, device, tree)
    baseline = measure(options, device, _unfused_tree(tree)) if options.against_unfused else None
    passed = result.passed and (baseline is None or baseline.passed)
    if options.html:
        _save_page(options, tree, [one for one in (result, baseline) if one], where)
    faster = baseline and baseline.figures.median / result.figures.median
    if options.json:
        print_json({
            **operator_document(tree, options.op), "device": where, "real": real, "launches": options.launches,
            "warm_up": WARM_UP, **result.document(real), "unfused": baseline and baseline.document(real),
            "unfused_over_fused": faster, "pass": passed,
        })  # fmt: skip
        return 0 if passed else 1
    show(f"{headline(tree)}, on {where}")
    result.show(options.launches, real)
    if baseline:
        show("")
        baseline.show(options.launches, real)
        show(f"\nFused attention is {faster:.2f} times as fast as its three kernels, by the medians")
    show("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _save_page(options: Namespace, tree: Root, measured: Sequence[TimedOperator], where: str) -> None:
    """Writes the file of --html: the plan, a GPU's times below its roof, and, simulated, one more launch to look at."""
    from simgpu.tools.page.page import Page
    from simgpu.tools.page.plans import plan_point, roofline_document, run_point, tree_document

    points, document, verdicts = [plan_point(tree)], {}, []
    for one in measured:
        name, median = " + ".join(one.kernels), one.figures.median
        if options.device == "hip":
            points.append({**plan_point(tree), "name": name, "seconds": median})
        points += [run_point(launch.kernel.name, launch.run) for launch in one.launches if launch.run is not None]
        rate = f"{one.figures.flops / median / 1e12:.3g} TFLOPS"
        passed = "PASS" if one.passed else "FAIL"
        verdicts.append(f"{name}: median {1e6 * median:,.1f} us of {options.launches} launches, {rate}, {passed}")
    if launches := [launch for one in measured for launch in one.launches]:
        from simgpu.tools.page.launched import launches_document

        document = launches_document(launches)
    roof = roofline_document(tree, points)
    document |= {"tree": tree_document(tree), "roofline": roof, "verdict": f"On {where}. {'; '.join(verdicts)}"}
    Page(f"bench of {tree.derivation.title}", document, shlex.join(["simgpu", *options.words])).save(options.html, options.force)


@dataclass(frozen=True)
class TimedOperator:
    """Times of one computation, and the checks of its results."""

    kernels: tuple[str, ...]  # their names
    sets: int  # of buffers
    figures: Figures
    verdict: Verdict
    steady: bool  # all launches gave the same bits
    agreement: Agreement | None  # with the simulator, if asked for
    clock: int | None  # MHz, if the GPU reports it
    profile: dict[str, Any] | None  # by opcode, if asked for
    launches: Sequence[WatchedLaunch] = ()  # one more launch of each kernel, for a page

    @property
    def passed(self) -> bool:
        return self.verdict.passed and self.steady and (self.agreement is None or self.agreement.agrees)

    def document(self, real: bool) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "kernels": self.kernels, "buffer_sets": self.sets, "clock_mhz": self.clock, **self.figures.document(real),
            "error": self.verdict.document(), "same_bits": self.steady,
            "against_sim": self.agreement and self.agreement.document(), "profile": self.profile,
        }  # fmt: skip

    def show(self, launches: int, real: bool) -> None:
        """Prints tables for people."""
        show(f"{' + '.join(self.kernels)}: {launches} launches after {WARM_UP} to warm up, {self.sets} set(s) of buffers in turn")
        show(table("Time of a launch", ("figure", "value", "unit"), self.figures.rows(real, self.clock)), "")
        show(*self.verdict.lines(), *([self.agreement.line()] if self.agreement else []))
        if not self.steady:
            show("The launches did not all give the same bits")
        if self.profile:
            show_profile(self.profile, " + ".join(self.kernels))
            show("")


def measure(options: Namespace, device: Any, tree: Root) -> TimedOperator:
    """Emits the tree's kernels, times them on `device` and compares the first result."""
    from simgpu import asm

    kernel = asm.emit(tree)
    real = options.device == "hip"
    with progress("making inputs"):
        work = workload(tree, device.arch, options.seed, options.inputs)
    timer = Timer(device, kernel, work, real, options.launches)
    with progress(f"timing {kernel.name}"):
        first, times, steady = launch_work(kernel.name, timer.measure)
    clock = clock_mhz(device.index) if real else None
    with progress("comparing with float64"):
        verdict = work.compare(first, kernel.operands[work.result])
    agreement = against_sim(options, kernel, work, first) if options.against_sim else None
    profile = None
    if options.profile:
        with progress(f"profiling {kernel.name}"):
            profile = profile_document(profile_launches(device, timer.launch))
    launches: Sequence[WatchedLaunch] = ()
    if options.html and not real:
        launches = launch_work(kernel.name, timer.watch_kernels)
        for one in launches:
            one.origins = kernel.origins
    figures = Figures(times, tree.problem.flops, work.moved_bytes, tree.derivation.peak_tflops)
    names = tuple(step.name for step in kernel.steps)
    return TimedOperator(names, len(timer.sets), figures, verdict, steady, agreement, clock, profile, launches)


def _unfused_tree(tree: Root) -> Root:
    from simgpu.operators import UnfusedAttention

    return UnfusedAttention(tree.problem, tree.descriptor, tree.derivation.policy)

