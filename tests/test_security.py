"""docs/reference/security.md lists every reader of a file: a new reader must be added there, with its limit."""

from __future__ import annotations

import re

from tests.support.places import ROOT
from tests.test_imports import MAY_IMPORT, modules

READS = re.compile(
    r"\.read_bytes\(|\.read_text\(|(?<!def )(?<![\w.])open\(|np\.load\(|np\.fromfile\(|json\.load\(|os\.open\(self"
    r"|mmap\.mmap\((?!-1)|\.readline\("
)
# Rooms that measure the project, and PyTorch's suites: they read files that their developer names.
OURS = re.compile(r"tools/(benchmarks|robustness|style|validation|torch)/")


def test_the_list_of_readers_is_complete() -> None:
    assert set(MAY_IMPORT) == {"hardware", "operators", "asm", "simgpu", "tools"}
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in modules().values()}
    readers = {name for name, text in sources.items() if READS.search(text) and not OURS.match(name)}
    page = (ROOT / "docs" / "reference" / "security.md").read_text()
    table = page.partition("## Readers of files\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w/]+\.py)`", table)) - {"tests/test_security.py"}
    assert readers - named == set()
    assert named - set(sources) == set()
