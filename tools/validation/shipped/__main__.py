"""Launches AITER's kernels with real arguments: `python -m simgpu.tools.validation.shipped REPO [--at REVISION] [PART ...]`.

Compares the results with float64. `--late 1:20` launches again under these seeds of late mode, in which a missing wait computes
wrong numbers; `--check` launches again in checked mode. REPO is a checkout or a bare repository of github.com/ROCm/aiter. PART
selects the objects whose paths contain it.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from subprocess import CalledProcessError
from tempfile import TemporaryDirectory

from simgpu import Device
from simgpu.tools.shared.console import print_json, progress, show, table
from simgpu.tools.shared.seeds import parse_seeds
from simgpu.tools.validation.repairs import git
from simgpu.tools.validation.shipped.case import Arrays, ShippedCase
from simgpu.tools.validation.shipped.rows import ROWS, ShippedRow

COLUMNS = ("object", "error", "bound", "late: seeds", "wrong", "first", "its error", "checked mode")


@dataclass
class ShippedOutcome:
    """Results of an object's launches. Errors are relative; NaN if a result is NaN."""

    path: str
    error: float  # in plain mode
    bound: float
    late: dict[int, float] = field(default_factory=dict)  # errors by the seeds whose results have other bytes than the plain ones
    findings: Counter[str] = field(default_factory=Counter)  # errors of checked mode, by kind

    @property
    def wrong(self) -> list[int]:
        """Seeds with an error above the bound, or NaN."""
        return [seed for seed, error in self.late.items() if not error <= self.bound]

    def row(self, seeds: int, checked: bool) -> tuple[object, ...]:
        """Returns a row of the table."""
        first = next(iter(self.wrong), None)
        late: list[object] = [seeds, len(self.wrong)] if seeds else ["", ""]
        late += ["", ""] if first is None else [first, f"{self.late[first]:.2g}"]
        found = ", ".join(f"{count} {kind}" for kind, count in self.findings.items()) or "silent" if checked else ""
        name = " ".join([*self.path.split("/")[1:2], PurePosixPath(self.path).stem])  # the target first
        return name, f"{self.error:.2g}", self.bound, *late, found


def outcome(case: ShippedCase, path: str, seeds: Iterable[int], checked: bool = False) -> ShippedOutcome:
    """Launches a case in plain mode, under seeds of late mode, and in checked mode."""

    def results(seed: int | None) -> Arrays:
        return case.run(Device(case.launch.board, threads=1, late=seed))[1]

    plain = results(None)
    found = ShippedOutcome(path, case.error(plain), case.bound)
    for seed in seeds:
        with progress(f"{PurePosixPath(path).stem}: seed {seed}"):
            got = results(seed)
        if any(got[name].tobytes() != plain[name].tobytes() for name in plain):
            found.late[seed] = case.error(got)
    if checked:
        run, _ = case.run(Device(case.launch.board, check=True))
        found.findings = Counter(each.kind for each in run.findings if each.severity == "error")
    return found


def choose_rows(parts: Iterable[str]) -> list[ShippedRow]:
    """Returns the rows whose paths contain any of the parts; all rows without parts."""
    wanted = list(parts)
    return [row for row in ROWS if not wanted or any(part in row.path for part in wanted)]


def main() -> int:
    """Prints a table; status 1 if a result is wrong in plain mode or under a seed."""
    parser = ArgumentParser(
        prog="python -m simgpu.tools.validation.shipped", description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", metavar="REPO", help="a checkout or a bare repository of github.com/ROCm/aiter")
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts of paths of objects (default: all objects)")
    parser.add_argument("--at", default="HEAD", metavar="REVISION", help="the commit whose objects are launched (default: HEAD)")
    parser.add_argument("--late", type=parse_seeds, metavar="SEEDS", help="also launch in late mode, as 1:20")
    parser.add_argument("--check", action="store_true", help="also launch in checked mode")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    rows = choose_rows(options.parts)
    if not rows:
        parser.error(f"no object has {' or '.join(options.parts)} in its path; there are {', '.join(row.path for row in ROWS)}")
    found = list(_outcomes(options, rows))
    if options.json:
        print_json([asdict(each) for each in found])
    else:
        seeds = len(_seeds(options))
        show(table(f"AITER's kernels at {options.at}", COLUMNS, [each.row(seeds, options.check) for each in found]))
    return int(any(each.wrong or not each.error <= each.bound for each in found))


def _outcomes(options: Namespace, rows: Iterable[ShippedRow]) -> Iterable[ShippedOutcome]:
    with TemporaryDirectory() as folder:
        for row in rows:
            try:
                data = git(options.repository, "show", f"{options.at}:{row.path}")
            except CalledProcessError:
                print(f"{row.path}: not in {options.repository} at {options.at}", file=sys.stderr)
                continue
            path = Path(folder) / row.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            yield outcome(row.make(path, row.board), row.path, _seeds(options), options.check)


def _seeds(options: Namespace) -> range:
    return options.late.all if options.late else range(0)


if __name__ == "__main__":
    sys.exit(main())
