"""Modes with a seed on the command line: `--weak SEED` and `--late SEED`.

FIRST:LAST instead of SEED searches for a seed with another result.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from simgpu.tools.shared.console import progress, show
from simgpu.tools.shared.errors import KernelFailed, UsageError

MOST = (1 << 62) - 1  # the largest seed


# What a seed of each mode chooses, and the page on it.
MODES = {
    "weak": ("caches hold old copies, waves run in SEED's order", "find-a-missing-fence"),
    "late": ("loads complete at their waits, or earlier as SEED chooses", "find-a-missing-wait"),
}


class Seeds(NamedTuple):
    """Seeds of a mode, first to last."""

    first: int
    last: int

    @property
    def single(self) -> bool:
        """True if the option names one seed, not a range to search."""
        return self.first == self.last

    @property
    def all(self) -> range:
        """Every seed, in order."""
        return range(self.first, self.last + 1)


class ModeSeeds(NamedTuple):
    """Seed of each mode for a device, None outside the mode."""

    weak: int | None = None
    late: int | None = None


class SeedSearch(NamedTuple):
    """Result of a search."""

    mode: str  # a key of `MODES`
    seeds: Seeds
    found: int | None  # the first seed with another result, None if all give the same
    why: str = ""  # the difference, in words
    replay: str = ""  # the command that repeats the launch with that seed

    def document(self) -> dict[str, Any]:
        """Returns a JSON document: the search by its mode."""
        first, last = self.seeds
        return {self.mode: {"first": first, "last": last, "seed": self.found, "why": self.why, "replay": self.replay}}

    def lines(self) -> list[str]:
        """Returns lines for people."""
        if self.found is None:
            return [f"{self.mode.title()} mode: {len(self.seeds.all):,} seeds, all with the right result"]
        return [f"{self.mode.title()} mode: seed {self.found} gives another result: {self.why}", f"Replay: {self.replay}"]


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


def add_seed_options(parser: Any, searches: bool = True) -> None:
    """Adds --weak and --late to a parser. searches: a range of seeds is possible."""
    more = "; FIRST:LAST searches for a wrong result" if searches else ""
    one_of = parser.add_mutually_exclusive_group()
    for name, (text, page) in MODES.items():
        one_of.add_argument(f"--{name}", type=parse_seeds, metavar="SEED", help=f"{text} (simgpu help {page}){more}")


def mode_of(options: Namespace) -> str:
    """Returns the mode whose option is given, "" if none is."""
    return next((name for name in MODES if getattr(options, name, None) is not None), "")


def searched_seeds(options: Namespace) -> Seeds | None:
    """Returns the range of seeds to search, None without one."""
    seeds: Seeds | None = getattr(options, mode_of(options) or "weak", None)
    return seeds if seeds is not None and not seeds.single else None


def seeds_of(options: Namespace) -> ModeSeeds:
    """Returns the seeds of the options; no seed for a search, which chooses seeds itself."""
    given: list[Seeds | None] = [getattr(options, name, None) for name in MODES]
    return ModeSeeds(*(seeds.first if seeds is not None and seeds.single else None for seeds in given))


def one_seed(options: Namespace, verb: str) -> None:
    """Raises UsageError for a range of seeds. verb: the command that takes one seed."""
    if seeds := searched_seeds(options):
        option = f"--{mode_of(options)} {seeds.first}:{seeds.last}"
        raise UsageError(f"`simgpu {verb}` replays one seed: let `simgpu exec {option}` find it")


def demand_plain(options: Namespace, others: Sequence[str]) -> None:
    """Raises UsageError if an option that the modes exclude is given. others: attributes of the options."""
    mode = mode_of(options)
    if not mode:
        return
    for name in others:
        if getattr(options, name, None):
            raise UsageError(f"--{mode} and --{name.replace('_', '-')} exclude each other: {mode} mode only computes results")
    if getattr(options, "device", "sim") != "sim":
        raise UsageError(f"--{mode} is the simulator's: leave --device hip out")


def search(options: Namespace, differs: Callable[[int], str]) -> SeedSearch:
    """Calls `differs` with each seed in turn until it returns a difference in words, or the kernel fails."""
    mode, seeds = mode_of(options), searched_seeds(options)
    assert seeds is not None
    for seed in seeds.all:
        with progress(f"{mode} mode: seed {seed} of {seeds.first} to {seeds.last}"):
            try:
                why = differs(seed)
            except KernelFailed as error:
                why = str(error)
        if why:
            return SeedSearch(mode, seeds, seed, why, replay_command(options.words, mode, seed))
    return SeedSearch(mode, seeds, None)


def replay_command(words: Sequence[str], mode: str, seed: int) -> str:
    """Returns the command line with one seed instead of a range.

    >>> replay_command(["exec", "k.co", "--weak", "1:9"], "weak", 4)
    'simgpu exec k.co --weak 4'
    """
    given = list(words)
    for at, word in enumerate(words):
        if word == f"--{mode}":
            given[at + 1] = str(seed)
        elif word.startswith(f"--{mode}="):
            given[at] = f"--{mode}={seed}"
    return shlex.join(["simgpu", *given])


def show_search(found: SeedSearch) -> None:
    """Prints the result of a search."""
    show(*found.lines())
