"""Suppressions: known findings that are not reported, in a file like valgrind's.

    {
       redundant loads of a block smaller than the program
       simgpu:race
       fun:_layer_norm_*
       src:layer_norm.py:*
    }

The first line is a name. `simgpu:` has the kind of finding, `fun:` the kernel (its symbol or its C++ name without parameters),
`src:` file:line of one of its two places. The last two are optional. `*` and `?` are wildcards. A line that starts with `#` is a
comment.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from simgpu.engine.finding import Finding
from simgpu.hardware.code_object.demangled import demangle, without_parameters
from simgpu.hardware.errors import LaunchError


@dataclass(frozen=True)
class Suppression:
    """Entry of a suppressions file."""

    name: str
    kind: str  # pattern of the finding's kind
    kernel: str = "*"  # pattern of the kernel's name
    source: str = "*"  # pattern of file:line

    def matches(self, finding: Finding) -> bool:
        """True if the entry matches this finding."""
        names = (finding.kernel, without_parameters(demangle(finding.kernel)))
        places = (finding.source, finding.other_source)
        return (
            fnmatchcase(finding.kind, self.kind)
            and any(fnmatchcase(name, self.kernel) for name in names)
            and any(fnmatchcase(place, self.source) for place in places)
        )


class Suppressions:
    """Entries of a suppressions file. used: number of suppressed findings by the entry's name."""

    def __init__(self, entries: Iterable[Suppression] = ()) -> None:
        self._entries = tuple(entries)
        self.used: Counter[str] = Counter()

    def left_of(self, findings: Iterable[Finding]) -> list[Finding]:
        """Returns the findings that no entry matches. Counts the others."""
        return [finding for finding in findings if not self.match(finding)]

    def match(self, finding: Finding) -> bool:
        """True if an entry matches this finding; counts it in `used`."""
        entry = next((entry for entry in self._entries if entry.matches(finding)), None)
        if entry is not None:
            self.used[entry.name] += 1
        return entry is not None


def read(path: str | os.PathLike[str]) -> Suppressions:
    """Reads a suppressions file. Raises LaunchError with file and line for a syntax error, OSError if it cannot be read."""
    entries: list[Suppression] = []
    block: list[str] | None = None
    try:
        rows = Path(path).read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: byte {error.start} is no UTF-8: suppressions are text") from None
    for number, row in enumerate(rows, 1):
        line = row.strip()
        if not line or line.startswith("#"):
            continue
        if line == "{" and block is None:
            block = []
        elif line == "}" and block is not None:
            entries.append(_entry(block, f"{path}:{number}"))
            block = None
        elif block is None:
            raise LaunchError(f"{path}:{number}: {line!r} is outside of a block: a suppression is {{, its lines and }}")
        else:
            block.append(line)
    if block is not None:
        raise LaunchError(f"{path}: the last suppression has no }}")
    return Suppressions(entries)


_FIELDS = {"simgpu": "kind", "fun": "kernel", "src": "source"}


def _entry(lines: list[str], place: str) -> Suppression:
    fields: dict[str, str] = {}
    for line in lines[1:]:
        key, _, value = line.partition(":")
        if key not in _FIELDS or not value:
            known = ", ".join(f"{name}:" for name in _FIELDS)
            raise LaunchError(f"{place}: {line!r} in a suppression: its lines begin with {known}")
        fields[_FIELDS[key]] = value.strip()
    if "kind" not in fields:
        raise LaunchError(f"{place}: a suppression needs a name and the kind of finding, as simgpu:race")
    return Suppression(lines[0], **fields)
