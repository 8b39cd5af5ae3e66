"""Runs lint on the code objects of a git repository: `python -m simgpu.tools.validation.repairs REPO [COMMIT ...]`.

Without an option, it counts lint's errors before and after each COMMIT. Without a COMMIT, it takes all commits that changed
code objects and whose subject has a word such as "fix" or "hang". `--today` counts the errors in the objects of the last
commit, by family and rule. `--report OBJECT ...` writes a report of the certain findings in each of these objects, for its
maintainers. REPO is a checkout or a bare repository, such as one of github.com/ROCm/aiter.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from simgpu.checks.lint import lint
from simgpu.checks.lint.causes import TOLERATED
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import SimError
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.validation.reports import report

WORDS = re.compile(r"fix|bug|nan|race|hang|wrong|accuracy|precision|sync|hazard|overwrite", re.IGNORECASE)
SUBJECT = 60  # characters of a subject in the output
SEED = 2026
T = TypeVar("T")
UNREAD = "unread", "", ""  # a file that is not a code object of a known target
Tally = Counter[tuple[str, str, str]]  # errors by kind, rule and certainty


@dataclass(frozen=True)
class Repair:
    """A commit that changed code objects, and lint's errors in them."""

    commit: str
    subject: str
    objects: int  # number of them
    before: Tally  # errors before it
    after: Tally  # errors after it


def repairs(repository: str, commits: Iterable[str], jobs: int = 1, most: int | None = None) -> Iterator[Repair]:
    """Lints code objects that commits changed. Raises CalledProcessError for a commit that git does not know.

    jobs: processes; most: number of a commit's objects to lint, drawn at random.
    """
    changes = {commit: draw(list(changed_objects(repository, commit)), most) for commit in commits}
    blobs = {blob for pairs in changes.values() for pair in pairs for blob in pair}
    tallies = lint_blobs(repository, blobs, jobs)
    for commit, pairs in changes.items():
        before, after = (sum((tallies[pair[at]] for pair in pairs), Tally()) for at in (0, 1))
        subject = git(repository, "log", "-1", "--format=%s", commit).decode(errors="replace").strip()
        yield Repair(commit, subject, len(pairs), before, after)


def repairing(repository: str) -> list[str]:
    """Returns the commits that changed code objects and whose subject matches `WORDS`, the latest first."""
    lines = git(repository, "log", "--format=%H %s", "--diff-filter=MR", "--", "*.co").decode(errors="replace").splitlines()
    return [line.split(" ", 1)[0] for line in lines if WORDS.search(line.split(" ", 1)[1])]


def changed_objects(repository: str, commit: str) -> Iterator[tuple[str, str]]:
    """Yields the blobs, before and after, of each code object that a commit modified or renamed."""
    lines = git(repository, "diff", "--raw", "-M", "--abbrev=40", f"{commit}^", commit, "--", "*.co").decode().splitlines()
    for line in lines:
        _, _, old, new, status = line.split("\t")[0].split()
        if status[0] in "MR":
            yield old, new


def objects(repository: str) -> dict[str, str]:
    """Returns the blobs of the last commit's code objects, by path."""
    lines = git(repository, "ls-tree", "-r", "HEAD").decode(errors="replace").splitlines()
    rows = (line.split("\t", 1) for line in lines if line.endswith(".co"))
    return {path: words.split()[2] for words, path in rows}


def draw(items: list[T], most: int | None) -> list[T]:
    """Draws at most `most` items and keeps their order; None keeps all."""
    if most is None or len(items) <= most:
        return items
    return [items[at] for at in sorted(random.Random(SEED).sample(range(len(items)), most))]


def lint_blobs(repository: str, blobs: Iterable[str], jobs: int = 1) -> dict[str, Tally]:
    """Counts the errors of each blob, in `jobs` processes."""
    names = sorted(blobs)
    if jobs == 1:
        return {name: errors(repository, name) for name in names}
    with ProcessPoolExecutor(jobs) as pool:
        return dict(zip(names, pool.map(errors, [repository] * len(names), names, chunksize=8), strict=True))


def errors(repository: str, blob: str) -> Tally:
    """Counts lint's errors in a blob."""
    try:
        found = lint(CodeObject.parse(git(repository, "cat-file", "blob", blob)))
    except SimError:
        return Tally({UNREAD: 1})
    return Tally((finding.kind, finding.rule, finding.certainty) for finding in found if finding.severity == "error")


def git(repository: str, *arguments: str) -> bytes:
    """Returns git's output. Raises CalledProcessError if it fails."""
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, check=True).stdout


def family(path: str) -> str:
    """Returns the family of an object from its folder: chip and kind of kernel, or the last two names if none is a chip's."""
    parts = PurePosixPath(path).parent.parts
    chip = next((at for at, part in enumerate(parts) if part.startswith("gfx")), max(0, len(parts) - 2))
    return "/".join(parts[chip : chip + 2])


def drawn_by_family(paths: Mapping[str, str], most: int | None) -> dict[str, str]:
    """Draws at most `most` objects of each family."""
    families: dict[str, list[str]] = {}
    for path in sorted(paths):
        families.setdefault(family(path), []).append(path)
    return {path: paths[path] for members in families.values() for path in draw(members, most)}


def of_rules(tally: Tally, *, certain: bool = False) -> Counter[str]:
    """Counts errors by kind and rule, without the rules that shipped kernels break everywhere; certain: only certain ones."""
    found = Counter[str]()
    for (kind, rule, certainty), count in tally.items():
        if rule not in TOLERATED and (not certain or certainty in ("every path", "every round")):
            found[f"{kind}: {rule}" if rule else kind] += count
    return found


def show_repairs(found: Iterable[Repair]) -> None:
    """Prints a row for each commit and each rule."""
    rows: list[Sequence[object]] = []
    for repair in found:
        before, after = of_rules(repair.before), of_rules(repair.after)
        sure, still = of_rules(repair.before, certain=True), of_rules(repair.after, certain=True)
        for rule in sorted(before.keys() | after.keys()) or ["none"]:
            counts = before[rule], after[rule], sure[rule], still[rule]
            rows.append((repair.commit[:10], repair.subject[:SUBJECT], repair.objects, rule, *counts))
    show(table("Errors of lint", ("commit", "subject", "objects", "rule", "before", "after", "certain", "still"), rows, left=2))


def show_today(paths: Mapping[str, str], tallies: Mapping[str, Tally]) -> None:
    """Prints a row for each family and rule: the number of objects with that error, and of errors, all and certain ones."""
    totals, holding, sure = Counter[str](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    counts = Counter[tuple[str, str]]()
    for path, blob in paths.items():
        totals[family(path)] += 1
        for rule, count in of_rules(tallies[blob]).items():
            holding[family(path), rule] += 1
            counts[family(path), rule] += count
        for rule, count in of_rules(tallies[blob], certain=True).items():
            sure[family(path), rule] += count
    rows = [(name, totals[name], rule, holding[name, rule], counts[name, rule], sure[name, rule]) for name, rule in sorted(counts)]
    show(table("Errors of lint", ("family", "objects", "rule", "with it", "errors", "certain"), rows, left=1))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = ArgumentParser(prog="python -m simgpu.tools.validation.repairs", description=__doc__)
    parser.add_argument("repository", metavar="REPO")
    parser.add_argument("commits", metavar="COMMIT", nargs="*")
    parser.add_argument("--today", action="store_true", help="the objects of the last commit, by family and rule")
    parser.add_argument("--report", metavar="OBJECT", nargs="+", help="paths of objects in the last commit: a report of each")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--most", metavar="N", type=int, help="objects of a commit or a family, drawn (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    options = parser.parse_args(argv)
    if options.report:
        _report(options)
    elif options.today:
        paths = drawn_by_family(objects(options.repository), options.most)
        tallies = lint_blobs(options.repository, set(paths.values()), options.jobs)
        if options.json:
            print_json({path: [[*key, count] for key, count in tallies[blob].items()] for path, blob in paths.items()})
        else:
            show_today(paths, tallies)
    else:
        found = repairs(options.repository, options.commits or repairing(options.repository), options.jobs, options.most)
        if options.json:
            keys = ("commit", "subject", "objects")
            lists = [({key: vars(one)[key] for key in keys}, one.before, one.after) for one in found]
            print_json([row | {"before": _tally_rows(before), "after": _tally_rows(after)} for row, before, after in lists])
        else:
            show_repairs(found)


def _tally_rows(tally: Tally) -> list[list[object]]:
    return [[*key, count] for key, count in tally.items()]


def _report(options: Namespace) -> None:
    paths, commit = objects(options.repository), git(options.repository, "rev-parse", "HEAD").decode().strip()
    for path in options.report:
        if path not in paths:
            raise SystemExit(f"{path} is no code object of the last commit of {options.repository}")
        code = CodeObject.parse(git(options.repository, "cat-file", "blob", paths[path]))
        print(report(code, path, commit))


if __name__ == "__main__":
    main()
