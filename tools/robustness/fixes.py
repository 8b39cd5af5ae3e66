"""What `simgpu lint` finds in code objects before and after commits: `python -m simgpu.tools.robustness.fixes REPO COMMIT ...`.

REPO is a checkout or a bare repository, such as one of github.com/ROCm/aiter, whose history holds kernels as `.co` files.
"""

from __future__ import annotations

import subprocess
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simgpu.checks.lint import lint
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import SimError
from simgpu.tools.shared.console import print_json, show, table


@dataclass(frozen=True)
class Fix:
    """A commit: how many code objects it changed, and the errors of each kind that lint finds in them before and after."""

    commit: str
    subject: str
    objects: int
    before: Counter[str]
    after: Counter[str]


def fix_of(repository: str, commit: str) -> Fix:
    """Lints what a commit changed; CalledProcessError where git does not know the commit."""
    before, after, objects = Counter[str](), Counter[str](), 0
    for old, new in changed(repository, commit):
        objects += 1
        before += errors(old)
        after += errors(new)
    subject = git(repository, "log", "-1", "--format=%s", commit).decode(errors="replace").strip()
    return Fix(commit, subject, objects, before, after)


def changed(repository: str, commit: str) -> Iterator[tuple[bytes, bytes]]:
    """Yields the code objects that a commit changed or renamed with changes, before and after."""
    lines = git(repository, "diff", "--raw", "-M", "--abbrev=40", f"{commit}^", commit, "--", "*.co").decode().splitlines()
    for line in lines:
        _, _, old, new, status = line.split("\t")[0].split()
        if status[0] in "MR":
            yield git(repository, "cat-file", "blob", old), git(repository, "cat-file", "blob", new)


def errors(data: bytes) -> Counter[str]:
    """The number of lint's errors, by kind; a file that is no code object of a known target counts as unread."""
    try:
        return Counter(finding.kind for finding in lint(CodeObject.parse(data)) if finding.severity == "error")
    except SimError:
        return Counter({"unread": 1})


def git(repository: str, *arguments: str) -> bytes:
    """What git prints; CalledProcessError where it fails."""
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, check=True).stdout


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a row for each commit and each kind of finding."""
    parser = ArgumentParser(prog="python -m simgpu.tools.robustness.fixes", description=__doc__)
    parser.add_argument("repository", metavar="REPO")
    parser.add_argument("commits", metavar="COMMIT", nargs="+")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    options = parser.parse_args(argv)
    found = [fix_of(options.repository, commit) for commit in options.commits]
    if options.json:
        print_json([vars(fix) for fix in found])
        return
    rows = [
        (fix.commit[:10], fix.subject[:60], fix.objects, kind, fix.before[kind], fix.after[kind])
        for fix in found
        for kind in sorted(fix.before.keys() | fix.after.keys()) or ["none"]
    ]
    show(table("Errors of lint", ("commit", "subject", "objects", "kind", "before", "after"), rows, left=2))


if __name__ == "__main__":
    main()
