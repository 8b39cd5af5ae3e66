"""`simgpu time`: the modelled time on a real GPU of the launches of `run` or `exec`."""

from __future__ import annotations

import json
import shlex
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.operator_options import names_operator
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.script import add_launch_options, with_subjects
from simgpu.tools.cases.sources import is_script
from simgpu.tools.cases.subject import WHAT, Subject
from simgpu.tools.page.page import Page, add_html_option
from simgpu.tools.shared.console import add_json_option, print_json, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import launch_work
from simgpu.tools.shared.outputs import claim, write
from simgpu.tools.shared.parser import own_options
from simgpu.tools.tables.time_tables import counters_text, time_document, time_text

if TYPE_CHECKING:
    from simgpu.timing.caches import Warm
    from simgpu.timing.predict import Prediction

EVENTS = 200_000  # at most, of the CU that a timeline shows
RANKED = (
    "rank candidates: an operator's tiles, a Triton script's configurations, launches in a .txt file, or AITER's objects in a "
    "folder, such as hsa/gfx950/f4gemm -m 1024 -n 7168 -k 4608"
)
LINES = 10  # instructions that a report names by default
USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu run`:
  simgpu time gemm -m 4096 -n 4096 -k 4096 --target mi300x
  simgpu time k.co --kernel k --grid 4 --arg zeros:f32:256 --lines 20
  simgpu time --launch add:2 script.py 1000   a Triton script, the second launch of add
  simgpu time --rank gemm -m 4096 -n 4096 -k 4096 --dtype f16   its tiles, the fastest first
Only samples of the workgroups run. The model and its errors: simgpu help timing
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; those of exec or run follow FILE or OP."""
    _own_options(parser)
    add_launches(parser)


def add_launches(parser: ArgumentParser) -> None:
    """Adds FILE or OP, whose launches are timed, and its options."""
    parser.add_argument("what", metavar="FILE|OP", help=f"{WHAT}: {', '.join(OPERATORS)}")
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="options of `simgpu exec` or `simgpu run`, or a script's own")


def _own_options(parser: ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("--lines", type=int, metavar="N", help=f"instructions that stall most (default: {LINES})")
    parser.add_argument("--counters", action="store_true", help="counters by the names of rocprofv3 and ROCm Compute Profiler")
    parser.add_argument("--rank", action="store_true", help=RANKED)
    text = "candidates that --rank shows, and tiles that it times (default: 20)"
    parser.add_argument("--most", type=int, default=20, metavar="N", help=text)
    parser.add_argument("--perfetto", metavar="FILE", help="write a timeline of a CU, for ui.perfetto.dev")
    parser.add_argument("--speedscope", metavar="FILE", help="write stacks of stalled clocks, for speedscope.app")
    parser.add_argument("--att", metavar="DIR", help="write a thread trace as rocprofv3 does, for ROCprof Compute Viewer")
    add_html_option(parser)
    add_json_option(parser)


def add_model_options(parser: ArgumentParser) -> None:
    """Adds options of the model of time, and those that choose a script's launch."""
    parser.add_argument("--clock", type=float, metavar="MHZ", help="the engine's clock (default: the board's)")
    text = "caches hold an earlier launch's data (default: cold; from the second launch of `simgpu time` on, what others left)"
    parser.add_argument("--warm", action="store_true", help=text)
    text = "like --warm, and the earlier launch stored what this one loads: other XCDs hold some of it"
    parser.add_argument("--stored", action="store_true", help=text)
    add_launch_options(parser)


def demand_clock(mhz: float | None) -> None:
    """Raises UsageError for an engine's clock that no GPU has."""
    if mhz is not None and not 1 <= mhz <= 10_000:
        raise UsageError(f"--clock {mhz:g}: give MHz, 1 to 10000")


def run(options: Namespace) -> int:
    """Prints the times of the kernels that OP or FILE names, in order."""
    wanted, rest = (options, options.rest) if is_script(options.what) else own_options(_own_options, options)
    demand_clock(wanted.clock)
    if wanted.rank:
        return _rank(options.what, rest, wanted)
    claim([wanted.perfetto, wanted.speedscope, wanted.html], wanted.force)
    return with_subjects("time", options.what, rest, wanted, lambda launches: _report(options, wanted, launches))


def _rank(what: str, rest: list[str], wanted: Namespace) -> int:
    """Prints the candidates in the order of their times. Returns 1 if some could not be timed."""
    from simgpu.tools.ranking import configs, launches, objects, tiles

    if wanted.most < 1:
        raise UsageError(f"--most {wanted.most}: give 1 or more")
    for_one = "perfetto", "speedscope", "html", "att", "clock", "warm", "stored", "counters", "lines"
    given = [name for name in for_one if getattr(wanted, name)]
    if given:
        raise UsageError(f"--{given[0]}: --rank has times only; time the best candidate with --{given[0]}")
    if is_script(what):
        found = configs.rank_configs(what, rest, "" if wanted.launch == "1" else wanted.launch, wanted.board)
    elif names_operator(what):
        found = tiles.rank_tiles(what, rest, wanted.most)
    elif objects.is_aiter(what):
        found = objects.rank_objects(what, rest)
    elif what.endswith(".txt"):
        found = launches.rank_launches(what, rest)
    else:
        raise UsageError(f"--rank {what}: give an operator, a script, a .txt file of launches or a folder of AITER's objects")
    if wanted.json:
        print_json(found.document())
        return int(bool(found.failures()))
    show(f"{found.title}; timed by the model in {found.taken:.0f} s", *([found.sheet(wanted.most)] if found.timed else []))
    for line in found.failures():
        show(f"Not timed: {line}")
    return int(bool(found.failures()))


def _report(options: Namespace, wanted: Namespace, launches: list[Subject]) -> int:
    how: dict[str, Any] = {"mhz": wanted.clock, "events": EVENTS if wanted.perfetto or wanted.att or wanted.html else 0}
    warm: Warm = "stored" if wanted.stored else bool(wanted.warm)
    timed: list[tuple[Subject, Prediction]] = []
    for at, launch in enumerate(launches):
        last = at == len(launches) - 1  # nothing reads its memory afterwards
        kernel = launch.kernel
        left = timed[-1][1].left if timed and not warm else warm
        timed.append((launch, launch_work(kernel.title, partial(kernel.time, **launch.call, **how, warm=left, restore=not last))))
    found = [(one.kernel.title, prediction) for one, prediction in timed]
    if wanted.html:
        timed_page(f"time of {options.what}", timed, shlex.join(["simgpu", *options.words])).save(wanted.html, wanted.force)
    if wanted.perfetto:
        from simgpu.timing.perfetto import timeline

        text = json.dumps(timeline(found), separators=(",", ":"))
        write(wanted.perfetto, text.encode(), wanted.force)
    if wanted.speedscope:
        from simgpu.timing.speedscope import profiles

        stacks = profiles([(one.kernel.title, prediction, one.places) for one, prediction in timed], f"simgpu time {options.what}")
        write(wanted.speedscope, json.dumps(stacks, separators=(",", ":")).encode(), wanted.force)
    if wanted.att:
        from simgpu.timing.thread_trace import write_trace

        write_trace(found, Path(wanted.att), wanted.force)
    if wanted.json:
        print_json({"what": options.what, "kernels": [time_document(name, one, wanted.counters) for name, one in found],
                    "seconds": sum(one.seconds for _, one in found)})  # fmt: skip
    else:
        for name, one in found:
            show(*time_text(name, one, LINES if wanted.lines is None else wanted.lines))
            if wanted.counters:
                show(*counters_text(one))
    return 0


def timed_page(
    title: str, timed: Sequence[tuple[Subject, Prediction]], command: str, parts: Sequence[dict[str, Any]] = ()
) -> Page:
    """Returns the page of timed launches. parts: more parts of each kernel's document."""
    from simgpu.tools.page.launched import launches_document
    from simgpu.tools.page.watching import WatchedLaunch

    launches = [WatchedLaunch(one.kernel, one.call, origins=one.origins, timed=prediction).look() for one, prediction in timed]
    document = launches_document(launches, timed[0][0].folders)
    for kernel, more in zip(document["kernels"], parts, strict=False):
        kernel.update(more)
    note = "counts, clocks and stalls are those of the modelled compute unit, not of the whole launch"
    return Page(title, document, command, [note])
