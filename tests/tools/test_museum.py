"""Museum: every bug shows, its repair is silent and right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simgpu.tools.cli import main
from simgpu.tools.museum.exhibit import exhibits


@pytest.mark.parametrize("name", exhibits())
def test_the_bug_shows_and_its_repair_is_silent(name: str) -> None:
    exhibit = exhibits()[name]
    before, after = exhibit.run(False), exhibit.run(True)
    assert exhibit.shows in before.kinds and not after.kinds and not after.fault
    assert all(re.fullmatch(r"https://github\.com/[\w./-]+(/(issues|pull)/\d+)?", link) for link in exhibit.links)


def test_what_is_found_names_a_marked_place() -> None:
    """A finding of a missing wait or a hazard is within a few lines of the repair."""
    for exhibit in exhibits().values():
        number, marked = exhibit.text(False).splitlines().index(exhibit.before.splitlines()[0]) + 1, []
        for line in exhibit.body.splitlines():
            marked += [number] if line[0] in "-+" else []
            number += line[0] != "+"
        for finding in exhibit.run(False).findings:
            if finding.kind in ("missing-wait", "hazard"):
                assert min(abs(int(finding.source.rpartition(":")[2]) - place) for place in marked) <= 5


def test_the_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["museum"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in exhibits()) and len(exhibits()) >= 10
    assert main(["museum", "signed-maximum", "--save", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "-  v_max_u32" in out and "1 of 1 elements of y are wrong" in out and "every number is right" in out
    assert main(["disasm", str(tmp_path / "signed-maximum-after.s")]) == 0
    assert "v_max_i32" in capsys.readouterr().out
    assert main(["museum", "signed-maximum", "--save", str(tmp_path)]) == 2
    assert main(["museum", "signed-minimum"]) == 2
    assert "did you mean signed-maximum" in capsys.readouterr().err
    assert main(["museum", "past-the-last-bin", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["before"]["fault"] and not shown["after"]["findings"] and shown["links"]


@pytest.mark.parametrize("name", ["count-of-a-wait", "prefetch-after-the-loop"])
def test_late_mode_computes_wrong_numbers_before_the_repair_only(name: str) -> None:
    exhibit = exhibits()[name]
    assert exhibit.wrong_when_late(False) is not None and exhibit.wrong_when_late(True) is None
