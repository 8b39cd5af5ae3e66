"""`simgpu run`: derive, emit, assemble, simulate or launch on a GPU, compare with float64, report."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.isa.ring.arrays import words
from simgpu.tools.cases.execute import against_sim, execute
from simgpu.tools.cases.operator_options import add_operator_options, headline, operator_document
from simgpu.tools.cases.operators import Operator
from simgpu.tools.cases.shadow import worst_element
from simgpu.tools.page.page import add_html_option
from simgpu.tools.shared.agreement import Agreement
from simgpu.tools.shared.arrays import require_memory
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.inputs import Inputs, add_inputs_option
from simgpu.tools.shared.launching import (
    Watch,
    add_device_options,
    add_ring_option,
    combine_runs,
    device_of,
    has_errors,
    is_simulated,
    run_document,
    show_run,
    with_seed,
)
from simgpu.tools.shared.seeds import SeedSearch, add_seed_options, demand_plain, search, searched_seeds, show_search
from simgpu.tools.shared.verdict import WAITS, Verdict
from simgpu.tools.tables.kernel_use import KernelUse, linked_use
from simgpu.tools.tables.resources import ResourceRow, resource_documents, resource_rows, resource_table

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.operators.tree import Root
    from simgpu.tools.cases.workload import Workload
    from simgpu.tools.page.launch_page import LaunchPage
    from simgpu.tools.page.watching import WatchedLaunch


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_operator_options(parser, more=_own_options, kernels=True)


def _own_options(parser: ArgumentParser) -> None:
    add_device_options(parser)
    add_inputs_option(parser)
    add_seed_options(parser)
    add_ring_option(parser)
    add_html_option(parser, against=True)


@dataclass(frozen=True)
class KernelRun:
    """A kernel of the computation, and its run."""

    step: EmittedKernel
    use: KernelUse  # as linked
    run: Any
    resources: list[ResourceRow]  # empty for a kernel without a plan

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        extents = {"kernel": self.step.name, "grid": self.step.grid, "block": self.step.block}
        return {**extents, **run_document(self.run), "resources": resource_documents(self.resources)}

    def show(self) -> None:
        """Prints tables for people."""
        grid, block = (" x ".join(map(str, extents)) for extents in (self.step.grid, self.step.block))
        show(f"\n{self.step.name}: {self.use.instructions} instructions, grid {grid}, block {block}")
        if self.resources:
            show(resource_table(self.resources))
        show_run(self.run)


@dataclass(frozen=True)
class RunResult:
    """Results of a computation's run."""

    tree: Root
    kernels: list[KernelRun]
    whole: Any  # the kernels' runs as one
    flops: int  # of the operator, 0 if these kernels do not compute it
    verdict: Verdict
    beside: list[Verdict]  # of the results after the first
    agreement: Agreement | None  # with the simulator, if asked for

    @property
    def simulated(self) -> bool:
        return is_simulated(self.whole)

    @property
    def passed(self) -> bool:
        agrees = self.agreement is None or self.agreement.agrees
        verdicts = (self.verdict, *self.beside)
        return all(verdict.passed for verdict in verdicts) and not has_errors(self.whole.findings) and agrees

    def document(self, op: str) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            **operator_document(self.tree, op),
            "tiles": self.tree.derivation.sizes,
            "kernels": [ran.document() for ran in self.kernels],
            **run_document(self.whole),
            "error": self.verdict.document(),
            **({"errors_beside": [verdict.document() for verdict in self.beside]} if self.beside else {}),
            "against_sim": self.agreement and self.agreement.document(),
            "vouches_for_waits": not self.simulated,
            "pass": self.passed,
        }

    def show(self) -> None:
        """Prints tables for people."""
        show(headline(self.tree))
        for ran in self.kernels:
            ran.show()
        if self.flops:
            where = "on this host" if self.simulated else "with one launch, cold; `simgpu bench` measures"
            show(f"{self.flops / max(self.whole.seconds, 1e-9) / 1e9:.1f} GFLOP/s of useful work {where}")
        show("", *((WAITS, "") if self.simulated else ()), *self.verdict.lines())
        for verdict in self.beside:
            show(*verdict.lines())
        if self.agreement:
            show(self.agreement.line())
        show("PASS" if self.passed else "FAIL")


def run(options: Namespace, watch: Watch | None = None) -> int:
    """Runs the operator's kernels on random inputs; status 1 if the verdict is FAIL. watch: for checked mode."""
    if options.against and not options.html:
        raise UsageError("--against goes with --html FILE")
    demand_plain(options, ("html", "against_sim"))
    if options.html is None:
        return _run(options, watch)
    from simgpu.tools.page.launch_page import LaunchPage

    with LaunchPage(options, watch) as page:
        return _run(options, page.watch, page)


def _run(options: Namespace, watch: Watch | None, page: LaunchPage | None = None) -> int:
    operator: Operator = options.operator
    tree, chosen = operator.tree(options), operator.choose_kernels(options)
    kernel = chosen.emit(tree)
    require_memory(operator.host_bytes(tree.problem), tree.derivation.title)
    device = device_of(options, options.target, watch)
    uses = linked_use(kernel)
    if page:
        page.title, page.origins = headline(tree), kernel.origins
    with progress("making inputs"):
        work = chosen.workload(tree, device.arch, Inputs(np.random.default_rng(options.seed), options.inputs))
    searched = _search(options, kernel, work)
    if searched is not None and searched.found is not None:
        device = with_seed(options, kernel.target, searched.found)
    (after, *beside), runs = execute(device, kernel, work, watch)
    if getattr(device, "ring", False):
        written = replace(work.operands[work.result], flat=after).view
        return _show_digest(options, tree, list(kernel.operands)[work.result], written, runs)
    with progress("comparing with float64"):
        verdict = work.compare(after, kernel.operands[work.result])
        others = work.compare_beside(beside, kernel.operands)
    if watch is not None and watch.shadow:
        watch.worst = worst_element(options, kernel, work, verdict.worst, verdict.want)
    compares = options.against_sim and not is_simulated(runs[0])
    agreement = against_sim(options, kernel, work, after) if compares else None
    kernels = [KernelRun(*each, _resources(*each)) for each in zip(kernel.steps, uses, runs, strict=True)]
    result = RunResult(tree, kernels, combine_runs(runs), tree.problem.flops if chosen.whole else 0, verdict, others, agreement)
    if page:
        page.widths = {
            name: operand.strides[-2] * operand.flat.itemsize
            for name, operand in zip(kernel.operands, work.operands, strict=True) if len(operand.shape) > 1
        }  # fmt: skip
        page.parts = _plan_parts(tree, page.launches, tree.problem.flops if chosen.whole else 0)
        page.verdict = f"{'PASS' if result.passed else 'FAIL'}: {verdict.lines()[0]}"
    if options.json:
        print_json(result.document(options.op) | (searched.document() if searched else {}))
    else:
        result.show()
    return 0 if result.passed else 1


def _search(options: Namespace, kernel: EmittedKernel, work: Workload) -> SeedSearch | None:
    """Searches the range of --weak or --late for a seed whose results are not those of float64, within the bound.
    Returns None without a range."""
    if searched_seeds(options) is None:
        return None

    def differs(seed: int) -> str:
        (after, *beside), _ = execute(with_seed(options, kernel.target, seed), kernel, work)
        verdicts = [work.compare(after, kernel.operands[work.result]), *work.compare_beside(beside, kernel.operands)]
        return next((verdict.lines()[0] for verdict in verdicts if not verdict.passed), "")

    found = search(options, differs)
    if not options.json:
        show_search(found)
    return found


def _show_digest(options: Namespace, tree: Root, name: str, result: np.ndarray, runs: Sequence[Any]) -> int:
    """Prints a digest of a result in the ring, which float64 does not have; status 1 if a finding is an error."""
    whole = combine_runs(runs)
    digest = blake2b(words(result).tobytes(), digest_size=8).hexdigest()
    if options.json:
        print_json({**operator_document(tree, options.op), **run_document(whole), "ring": True, "digest": digest})
    else:
        show(headline(tree))
        show_run(whole)
        show(f"\nThe elements of {name} have the digest {digest}: equal sums of equal products have an equal one")
    return int(has_errors(whole.findings))


def _plan_parts(tree: Root, launches: Sequence[WatchedLaunch], flops: int) -> dict[str, Any]:
    """Returns a page's parts on the operator: its tree, and the launches below the roof."""
    from simgpu.tools.page.plans import plan_point, roofline_document, run_point, tree_document

    known = [(one.kernel.name, one.run) for one in launches if one.run is not None]
    points = [run_point(name, run, flops if len(known) == 1 else 0) for name, run in known]
    roof = roofline_document(tree, [plan_point(tree), *points])
    return {"tree": tree_document(tree), "roofline": roof}


def _resources(step: EmittedKernel, use: KernelUse, outcome: Any) -> list[ResourceRow]:
    counters = outcome.counters if is_simulated(outcome) else None
    return resource_rows(step.plan, step.block[0], use, counters) if step.plan else []
