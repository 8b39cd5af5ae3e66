"""`simgpu help`: every page, by name, formatted for a terminal or unchanged."""

from __future__ import annotations

import json
import re

import pytest

from simgpu.tools.cli import main
from simgpu.tools.verbs.help import pages
from tests.support.places import ROOT


@pytest.mark.slow
def test_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "--json"]) == 0
    titles = json.loads(capsys.readouterr().out)
    stored = {path.stem: path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "notes"}
    assert set(titles) == set(stored) and all(titles.values())
    for name, path in stored.items():
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == path.read_text()
    assert main(["help", "verdcit"]) == 2
    assert "did you mean verdict" in capsys.readouterr().err


def test_messages_name_topics_that_exist() -> None:
    """`simgpu help NAME` in a message or a page is a page of the package."""
    sources = [path.read_text() for top in ("simgpu", "tools") for path in (ROOT / top).rglob("*.py") if not path.is_symlink()]
    sources += [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    named = {name for text in sources for name in re.findall(r"simgpu help ([a-z][\w-]*)", text)}
    assert "findings" in named and named - set(pages()) == set()


def test_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["help", "verdict"]) == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "What PASS means" in out and max(map(len, out.splitlines())) <= 80
