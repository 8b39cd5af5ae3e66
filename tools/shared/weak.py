"""Weak mode on the command line: `--weak SEED`, and `--weak FIRST:LAST`, which searches for a seed with another result."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from simgpu.tools.shared.console import progress, show
from simgpu.tools.shared.errors import KernelFailed, UsageError

MOST = (1 << 62) - 1  # the largest seed


class Seeds(NamedTuple):
    """Seeds of weak mode, first to last."""

    first: int
    last: int

    @property
    def single(self) -> bool:
        """True if the option names one seed, not a range to search."""
        return self.first == self.last


class WeakSearch(NamedTuple):
    """Result of a search."""

    seeds: Seeds
    found: int | None  # the first seed with another result, None if all give the same
    why: str = ""  # the difference, in words
    replay: str = ""  # the command that repeats the launch with that seed

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"first": self.seeds.first, "last": self.seeds.last, "seed": self.found, "why": self.why, "replay": self.replay}

    def lines(self) -> list[str]:
        """Returns lines for people."""
        count = self.seeds.last - self.seeds.first + 1
        if self.found is None:
            return [f"Weak mode: {count:,} seeds, all with the right result"]
        return [f"Weak mode: seed {self.found} gives another result: {self.why}", f"Replay: {self.replay}"]


def parse_seeds(text: str) -> Seeds:
    """Parses SEED or FIRST:LAST.

    >>> parse_seeds("1:1000")
    Seeds(first=1, last=1000)
    """
    first, colon, last = text.partition(":")
    parts = (first, last if colon else first)
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        raise ArgumentTypeError(f"{text!r}: give a seed, as 37, or a range of them, as 1:1000")
    seeds = Seeds(*map(int, parts))
    if not seeds.first <= seeds.last <= MOST:
        raise ArgumentTypeError(f"{text!r}: give seeds below 2^62, the smaller one first")
    return seeds


def add_weak_option(parser: Any, searches: bool = True) -> None:
    """Adds --weak to a parser or a group. searches: a range of seeds is possible."""
    text = "caches hold old copies, waves run in SEED's order (simgpu help find-a-missing-fence)"
    more = "; FIRST:LAST searches for a wrong result" if searches else ""
    parser.add_argument("--weak", type=parse_seeds, metavar="SEED", help=text + more)


def seed_of(options: Namespace) -> int | None:
    """Returns the seed of the options' device; None outside weak mode, and for a search, which chooses seeds itself."""
    seeds: Seeds | None = getattr(options, "weak", None)
    return seeds.first if seeds is not None and seeds.single else None


def one_seed(options: Namespace, verb: str) -> None:
    """Raises UsageError for a range of seeds. verb: the command that takes one seed."""
    seeds: Seeds | None = getattr(options, "weak", None)
    if seeds is not None and not seeds.single:
        raise UsageError(f"`simgpu {verb}` replays one seed: let `simgpu exec --weak {seeds.first}:{seeds.last}` find it")


def demand_plain(options: Namespace, others: Sequence[str]) -> None:
    """Raises UsageError if an option that weak mode excludes is given. others: attributes of the options."""
    if options.weak is None:
        return
    for name in others:
        if getattr(options, name, None):
            raise UsageError(f"--weak and --{name.replace('_', '-')} exclude each other: weak mode only computes results")
    if getattr(options, "device", "sim") != "sim":
        raise UsageError("--weak is the simulator's: leave --device hip out")


def search(options: Namespace, differs: Callable[[int], str]) -> WeakSearch:
    """Calls `differs` with each seed in turn until it returns a difference in words, or the kernel fails."""
    seeds: Seeds = options.weak
    for seed in range(seeds.first, seeds.last + 1):
        with progress(f"weak mode: seed {seed} of {seeds.first} to {seeds.last}"):
            try:
                why = differs(seed)
            except KernelFailed as error:
                why = str(error)
        if why:
            return WeakSearch(seeds, seed, why, replay_command(options.words, seed))
    return WeakSearch(seeds, None)


def replay_command(words: Sequence[str], seed: int) -> str:
    """Returns the command line with one seed instead of a range.

    >>> replay_command(["exec", "k.co", "--weak", "1:9"], 4)
    'simgpu exec k.co --weak 4'
    """
    given = list(words)
    for at, word in enumerate(words):
        if word == "--weak":
            given[at + 1] = str(seed)
        elif word.startswith("--weak="):
            given[at] = f"--weak={seed}"
    return shlex.join(["simgpu", *given])


def show_search(found: WeakSearch) -> None:
    """Prints the result of a search."""
    show(*found.lines())
