"""`simgpu profile`: what to change first in a kernel: its time by source line, and without each cause of waiting."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.script import with_subjects
from simgpu.tools.cases.sources import is_script
from simgpu.tools.cases.subject import Subject
from simgpu.tools.page.page import add_html_option, read_document
from simgpu.tools.shared.console import add_json_option, plain, print_json, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import launch_work
from simgpu.tools.shared.outputs import claim
from simgpu.tools.shared.parser import own_options
from simgpu.tools.tables.profile_tables import comparison, profile_document, profile_text
from simgpu.tools.verbs.time import EVENTS, add_launches, add_model_options, demand_clock, timed_page

if TYPE_CHECKING:
    from simgpu.advice.profile import Profile

USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu run`:
  simgpu profile k.hip --grid 16,16 --block 32,8 --arg ... --target mi300x
  simgpu profile --html before.html k.hip ...
  simgpu profile --against before.html k.hip ...
  simgpu profile --launch add:2 script.py 1000   a Triton script
Only samples of the workgroups run, and the model of time answers; no GPU is
used. What the advice means: simgpu help advice
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; those of exec or run follow FILE or OP."""
    _own_options(parser)
    add_launches(parser)


def _own_options(parser: ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("--lines", type=int, default=8, metavar="N", help="most changes and source lines (default: 8)")
    parser.add_argument("--against", metavar="PAGE", help="compare with the page of an earlier run (--html)")
    add_html_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the profiles of the kernels that OP or FILE names, in order."""
    wanted, rest = (options, options.rest) if is_script(options.what) else own_options(_own_options, options)
    demand_clock(wanted.clock)
    claim([wanted.html], wanted.force)
    return with_subjects("profile", options.what, rest, wanted, lambda launches: _report(options, wanted, launches))


def _report(options: Namespace, wanted: Namespace, launches: list[Subject]) -> int:
    before = _read(wanted.against) if wanted.against else None
    found = [(one, launch_work(one.kernel.title, partial(_profile, one, wanted))) for one in launches]
    documents = [profile_document(one.kernel.title, made, one.source_text) for one, made in found]
    if before is not None:
        _require_same(wanted.against, documents, before)
    if wanted.html:
        parts = [{"profile": document} for document in documents]
        timed = [(one, made.prediction) for one, made in found]
        page = timed_page(f"profile of {options.what}", timed, shlex.join(["simgpu", *options.words]), parts)
        page.save(wanted.html, wanted.force)
    if wanted.json:
        print_json({"what": options.what, "kernels": documents, **({"against": before} if before else {})})
        return 0
    for number, (one, made) in enumerate(found):
        show(*profile_text(one.kernel.title, made, one.source_text, wanted.lines))
        if before is not None:
            show(*comparison(plain(documents[number]), before[number], wanted.against, wanted.lines))
    return 0


def _profile(one: Subject, wanted: Namespace) -> Profile:
    """Times the launch and asks the model for its time without each cause."""
    from simgpu.advice.barriers import unneeded_barriers
    from simgpu.advice.profile import profile

    how: dict[str, Any] = {"mhz": wanted.clock, "warm": "stored" if wanted.stored else wanted.warm}
    timed = one.kernel.time(**one.call, **how, events=EVENTS if wanted.html else 0)
    return profile(timed, one.line, partial(unneeded_barriers, one.kernel, one.call), **how)


def _read(path: str) -> list[dict[str, Any]]:
    """Returns the profiles of a page that --html wrote. Raises UsageError for another file."""
    try:
        profiles: list[dict[str, Any]] = [kernel["profile"] for kernel in read_document(path)["kernels"]]
        for one in profiles:
            texts = [one["kernel"], *(each[name] for each in one["advice"] for name in ("kind", "place"))]
            texts += [line[name] for line in one["lines"] for name in ("place", "source")]
            numbers = [one["seconds"], *(each["seconds"] for each in one["advice"]), *(line["stall"] for line in one["lines"])]
            right = all(isinstance(text, str) for text in texts) and all(isinstance(each["bound"], bool) for each in one["advice"])
            if not right or not all(isinstance(value, int | float) and value >= 0 for value in numbers) or not one["seconds"]:
                raise TypeError
    except (KeyError, TypeError, AttributeError):
        raise UsageError(f"--against {path}: a page without a profile: give one that `simgpu profile --html` wrote") from None
    return profiles


def _require_same(path: str, mine: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    if len(mine) != len(other):
        raise UsageError(f"--against {path}: it has {len(other)} kernels, this run {len(mine)}")
