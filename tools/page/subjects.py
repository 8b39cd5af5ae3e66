"""`simgpu.page`: the page of a run, a matrix instruction or an operator's tree, for Python and Jupyter."""

from __future__ import annotations

from typing import Any

from simgpu.engine.result import Run
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.operators.tree import Root
from simgpu.tools.page.fragments import instruction
from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.page import Page
from simgpu.tools.page.plans import plan_point, roofline_document, tree_document
from simgpu.tools.page.watching import WatchedLaunch


def page(subject: Run | MatrixInstruction | Root) -> Page:
    """Makes the page of a launch on a `simgpu.Device`, a matrix instruction (`hardware.mfma.find`), or an operator's tree.

    Jupyter shows it; `Page.save` writes it. A run's page shows no traffic, which only a launch with `--html` records. Raises
    LaunchError for anything else, and for a run that cannot run again.

    >>> from simgpu.hardware import mfma
    >>> page(mfma.find("v_mfma_f32_16x16x16_f16", "mi300x")).title
    'v_mfma_f32_16x16x16_f16 on gfx942'
    """
    if isinstance(subject, Run):
        return _of_run(subject)
    if isinstance(subject, MatrixInstruction):
        row = subject.with_formats() if subject.a_type == "f8f6f4" else subject
        return Page(f"{row.mnemonic} on {row.target}", {"fragments": [instruction(row, {})]})
    if isinstance(subject, Root):
        points = [plan_point(subject)] if subject.derivation.feasible else []
        roof = roofline_document(subject, points)
        return Page(subject.derivation.title, {"tree": tree_document(subject), "roofline": roof})
    raise LaunchError(f"no page of a {type(subject).__name__}: give a run, a matrix instruction or an operator's tree")


def _of_run(run: Run) -> Page:
    if run.kernel is None:
        raise LaunchError("this run cannot be shown: it is not one of simgpu.Device's launches")
    kernel: Any = run.kernel
    one = WatchedLaunch(kernel, run.call, run=run, findings=run.findings, origins=kernel.module.origins).look()
    note = "recorded after the launch: registers are those of a wave that ran anew"
    return Page(kernel.title, launches_document([one]), notes=[note])
