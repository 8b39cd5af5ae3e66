"""`simgpu run`: derive, emit, assemble, simulate or launch on a GPU, compare with float64, report."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import numpy as np

from simgpu.tools.cases.execute import against_sim, execute
from simgpu.tools.cases.operator_options import add_operator_options, headline, operator_document
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.shared.arrays import require_memory
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.launching import (
    Watch,
    add_device_options,
    device_of,
    has_errors,
    is_simulated,
    run_document,
    show_run,
    together,
)
from simgpu.tools.shared.verdict import WAITS


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_operator_options(parser, more=add_device_options, kernels=True)


def run(options: Namespace, watch: Watch | None = None) -> int:
    """Runs the operator's kernels on random inputs; status 1 if an element is outside the error bound. watch: in checked mode."""
    from simgpu.tools.tables.kernel_use import linked_use
    from simgpu.tools.tables.resources import resource_documents, resource_rows, resource_table

    operator = OPERATORS[options.op]
    tree, chosen = operator.tree(options), operator.chosen(options)
    kernel = chosen.emit(tree)
    require_memory(operator.host_bytes(tree.problem), tree.derivation.title)
    device = device_of(options, options.target, watch)
    uses = linked_use(kernel)
    with progress("making inputs"):
        work = chosen.workload(tree, device.arch, np.random.default_rng(options.seed))
    after, runs = execute(device, kernel, work, watch)
    with progress("comparing with float64"):
        verdict = work.compare(after, kernel.operands[work.result])
    whole = together(runs)
    simulated = is_simulated(whole)
    agreement = against_sim(options, kernel, work, after) if options.against_sim and not simulated else None
    passed = verdict.passed and not has_errors(whole.findings) and (agreement is None or agreement.agrees)
    kernels = [
        (step, use, outcome, resource_rows(step.plan, step.block[0], use, outcome.counters if simulated else None)
         if step.plan else [])
        for step, use, outcome in zip(kernel.steps, uses, runs, strict=True)
    ]  # fmt: skip
    if options.json:
        print_json({
            **operator_document(tree, options.op),
            "tiles": tree.derivation.sizes,
            "kernels": [
                {"kernel": step.name, "grid": step.grid, "block": step.block, **run_document(outcome),
                 "resources": resource_documents(rows)}
                for step, _, outcome, rows in kernels
            ],
            **run_document(whole),
            "error": verdict.document(),
            "against_sim": agreement and agreement.document(),
            "vouches_for_waits": not simulated,
            "pass": passed,
        })  # fmt: skip
        return 0 if passed else 1
    show(headline(tree))
    for step, use, outcome, rows in kernels:
        grid, block = (" x ".join(map(str, extents)) for extents in (step.grid, step.block))
        show(f"\n{step.name}: {use.instructions} instructions, grid {grid}, block {block}")
        if rows:
            show(resource_table(rows))
        show_run(outcome)
    if chosen.whole:
        where = "on this host" if simulated else "with one launch, cold; `simgpu bench` measures"
        show(f"{tree.problem.flops / max(whole.seconds, 1e-9) / 1e9:.1f} GFLOP/s of useful work {where}")
    show("", *((WAITS, "") if simulated else ()), *verdict.lines(), *([agreement.line()] if agreement else []))
    show("PASS" if passed else "FAIL")
    return 0 if passed else 1
