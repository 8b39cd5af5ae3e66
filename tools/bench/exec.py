"""`simgpu bench exec FILE …`: times of a kernel of any code object in the simulator; its results are not checked."""

from __future__ import annotations

import shlex
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.bench.operator import FEWEST
from simgpu.tools.bench.profile import profile_document, profile_launches, show_profile
from simgpu.tools.cases.file_kernel import add_launch_options
from simgpu.tools.cases.subject import file_launch
from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.page import Page, add_html_option
from simgpu.tools.page.watching import Watching
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import launch_work
from simgpu.tools.shared.outputs import claim

if TYPE_CHECKING:
    from simgpu import Run


def configure(parser: ArgumentParser) -> None:
    """Adds the options of `simgpu exec`, except those that save or compare results."""
    add_launch_options(parser)
    add_html_option(parser)


def run(options: Namespace) -> int:
    """Prints the times of the launches after the first, and the instructions of a launch."""
    if options.device != "sim":
        raise UsageError("bench exec times the simulator: leave --device out, or give an operator, which --device hip validates")
    claim([options.html], options.force)
    asked = file_launch(options)
    device: Any = asked.device
    kernel, arguments, _ = asked.bind(device)

    def launch() -> Run:
        run: Run = kernel.launch(args=arguments, **asked.extents)
        return run

    launch_work(kernel.name, launch)
    runs, taken = [], []
    for _ in range(FEWEST):
        began = time.perf_counter()
        runs.append(launch_work(kernel.name, launch))
        taken.append(time.perf_counter() - began)
    profile = profile_document(launch_work(kernel.name, lambda: profile_launches(device, launch))) if options.profile else None
    seconds = np.array(taken)
    figures: dict[str, Any] = {
        "median_seconds": float(np.median(seconds)),
        "fastest_seconds": float(seconds.min()), "slowest_seconds": float(seconds.max()),
        "wave_instructions": runs[-1].instructions,
        "millions_per_second": runs[-1].instructions / max(float(np.median(seconds)), 1e-9) / 1e6,
    }  # fmt: skip
    if options.html:
        watching = Watching()
        launch_work(kernel.name, lambda: watching.launch(kernel, args=arguments, **asked.extents))
        said = f"median {1e6 * figures['median_seconds']:,.1f} us of {FEWEST} launches in the simulator, not validated"
        document = {**launches_document(watching.launches, [Path(options.file).parent]), "verdict": said}
        page = Page(f"bench of {Path(options.file).name}", document, shlex.join(["simgpu", *options.words]))
        page.save(options.html, options.force)
    if options.json:
        print_json({
            "file": options.file, "target": device.arch, "kernel": kernel.name, "threads": device.threads,
            "launches": FEWEST, **figures, "profile": profile,
        })  # fmt: skip
        return 0
    show(f"{kernel.name} of {options.file} on {device.arch}, simulated: {FEWEST} launches after one, not validated")
    show(table("Time of a launch", ("figure", "value"), [(name.replace("_", " "), value) for name, value in figures.items()]))
    if profile:
        show_profile(profile, kernel.name)
    return 0
