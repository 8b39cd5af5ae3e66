"""Launches listed in a file, each as the words after `simgpu time`."""

from __future__ import annotations

import shlex
from functools import partial

from simgpu.tools.cases.subject import subjects
from simgpu.tools.cases.sweep import shapes
from simgpu.tools.ranking.ranked import Ranked, Ranking, rank
from simgpu.tools.shared.errors import UsageError


def rank_launches(path: str, rest: list[str]) -> Ranking:
    """Ranks the launches of a text file, a line each: FILE or OP and its options; `#` begins a comment."""
    if rest:
        raise UsageError(f"{shlex.join(rest)}: each line of {path} has its own options")
    lines = shapes(path)
    return rank(f"{path}: {len(lines)} launch{'es' * (len(lines) != 1)}", [(line, partial(_time, line)) for line in lines])


def _time(line: str) -> Ranked:
    what, *rest = shlex.split(line)
    return Ranked.of(line, [one.kernel.time(**one.call) for one in subjects("time", what, rest, compares=False)])
