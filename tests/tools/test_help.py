"""`simgpu help`: every page, by name, formatted for a terminal or unchanged."""

from __future__ import annotations

import json
import re

import pytest

from simgpu.tools.cli import main
from tests.support.places import ROOT


def test_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "--json"]) == 0
    titles = json.loads(capsys.readouterr().out)
    assert set(titles) == {path.stem for path in (ROOT / "docs").glob("*.md")} and all(titles.values())
    for name in titles:
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == (ROOT / "docs" / f"{name}.md").read_text()
    assert main(["help", "chekc"]) == 2
    assert "did you mean check" in capsys.readouterr().err


def test_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["help", "verdict"]) == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "What PASS means" in out and max(map(len, out.splitlines())) <= 80
