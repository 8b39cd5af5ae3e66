"""Launches listed in a file, each as the words after `simgpu time`."""

from __future__ import annotations

import shlex
from functools import partial

from simgpu.tools.cases.subject import subjects
from simgpu.tools.cases.sweep import shapes
from simgpu.tools.ranking.ranked import Ranked, Ranking, rank


def rank_launches(path: str) -> Ranking:
    """Ranks the launches of a text file, a line each: FILE or OP and its options; `#` begins a comment."""
    lines = shapes(path)
    return rank(f"{path}: {len(lines)} launches", [(line, partial(_timed, line)) for line in lines])


def _timed(line: str) -> Ranked:
    what, *rest = shlex.split(line)
    return Ranked.of(line, [one.kernel.time(**one.call) for one in subjects("time", what, rest, compares=False)])
