"""`simgpu museum`: public bugs, each as a kernel before and after its repair, in checked mode."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from simgpu.tools.museum.exhibit import LATE, MISSING_WAIT, Exhibit, ExhibitOutcome, exhibits
from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.errors import UsageError, did_you_mean
from simgpu.tools.shared.outputs import add_force_option, claim, write

WIDTH = 80  # columns of the prose


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the exhibit (default: a list of all)")
    parser.add_argument("--save", metavar="FOLDER", help="write both kernels there, as assembly")
    add_force_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Shows one exhibit, or lists all; status 1 if its findings are not the expected ones."""
    if options.name is None:
        _list(options.json)
        return 0
    if options.name not in exhibits():
        raise UsageError(f"no exhibit {options.name!r}{did_you_mean(options.name, exhibits())}; there are {', '.join(exhibits())}")
    exhibit = exhibits()[options.name]
    if options.save:
        files = {str(Path(options.save, f"{options.name}-{when}.s")): when == "after" for when in ("before", "after")}
        claim(files, options.force)
        for path, repaired in files.items():
            write(path, exhibit.text(repaired).encode(), options.force)
    with progress(f"running {options.name}"):
        outcomes = {"before": exhibit.run(False), "after": exhibit.run(True)}
    if options.json:
        print_json({"name": options.name, **_document(exhibit), **{when: _outcome(outcome) for when, outcome in outcomes.items()}})
    else:
        _show(exhibit, outcomes)
    return 0 if exhibit.shows in outcomes["before"].kinds and not outcomes["after"].kinds else 1


def _list(as_json: bool) -> None:
    if as_json:
        print_json([{"name": name, **_document(exhibit)} for name, exhibit in exhibits().items()])
        return
    rows = [(name, exhibit.target, exhibit.shows) for name, exhibit in exhibits().items()]
    show(table("Exhibits", ("name", "target", "what it shows"), rows, left=3))


def _document(exhibit: Exhibit) -> dict[str, Any]:
    names = ("title", "links", "story", "target", "shows", "body")
    return {name: getattr(exhibit, name) for name in names}


def _outcome(outcome: ExhibitOutcome) -> dict[str, Any]:
    return {"findings": [finding.document() for finding in outcome.findings], "fault": outcome.fault, "wrong": dict(outcome.wrong)}


def _show(exhibit: Exhibit, outcomes: dict[str, ExhibitOutcome]) -> None:
    show(exhibit.title, *exhibit.links, "", textwrap.fill(exhibit.story, WIDTH), "", *_diff(exhibit.body))
    for when, outcome in outcomes.items():
        show(f"\n{when}:")
        if outcome.findings:
            show(*(str(finding) for finding in outcome.findings))
        for name, (count, size) in outcome.wrong.items():
            if count:
                show(f"{count} of {size} elements of {name} are wrong")
        if not outcome.kinds:
            show("nothing found" + (", and every number is right" if outcome.wrong else ""))


    if exhibit.shows == MISSING_WAIT and (seed := exhibit.wrong_when_late(False)) is not None:
        after = exhibit.wrong_when_late(True)
        said = f"every number is right under {len(LATE)} seeds" if after is None else f"seed {after} computes wrong numbers"
        show(f"\nLate mode: before, seed {seed} computes wrong numbers; after, {said}")


def _diff(body: str) -> list[str]:
    """Returns the lines, with a blank before those of both kernels, so that all are aligned."""
    return [line if line[0] in "+-" else f" {line}" for line in body.strip("\n").splitlines()]
