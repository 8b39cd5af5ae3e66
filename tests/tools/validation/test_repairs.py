"""Lint before and after commits, of today's objects, and reports: a repaired kernel's findings are gone, others are reported."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from simgpu.tools.validation.repairs import family, main, of_rules, repairing, repairs
from tests.support.checked import assembled

LOAD, USE = "global_load_dword v1, v60, s[4:5]", "v_add_u32 v2, v1, v1"
BROKEN = [LOAD, USE]
POSSIBLE = [LOAD, "s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 past", "s_waitcnt vmcnt(0)", "past:", USE]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Makes three commits: one adds files, the next repairs one of them and breaks none, the last renames one for no reason."""
    def commit(subject: str, **files: bytes) -> None:
        for name, data in files.items():
            (tmp_path / "hsa" / "gfx90a" / "mm").mkdir(parents=True, exist_ok=True)
            (tmp_path / "hsa" / "gfx90a" / "mm" / f"{name}.co").write_bytes(data)
        for words in (["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", subject]):
            subprocess.run(["git", "-C", tmp_path, *words], check=True)

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    broken, repaired = assembled("gfx90a", BROKEN), assembled("gfx90a", [LOAD, "s_waitcnt vmcnt(0)", USE])
    commit("Add kernels", one=broken, two=broken, text=b"no code object")
    commit("Fix random NaN", one=repaired, text=b"still none")
    commit("Tune", text=b"none at all", three=assembled("gfx90a", POSSIBLE))
    return tmp_path


def test_a_repair_and_what_it_repaired(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits = repairing(str(repository))
    (repair,) = repairs(str(repository), commits)
    assert (repair.subject, repair.objects) == ("Fix random NaN", 2)
    wait, unread = ("missing-wait", "read", "every path"), ("unread", "", "")
    assert repair.before == Counter({wait: 1, unread: 1}) and repair.after == Counter({unread: 1})
    main([str(repository), "HEAD^"])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "missing-wait: read" in line)
    assert row.split()[-4:] == ["1", "0", "1", "0"]


def test_today_by_family_and_rule(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(repository), "--today", "--jobs", "2"])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "missing-wait: read" in line)
    assert row.split()[:2] == ["gfx90a/mm", "4"] and row.split()[-3:] == ["2", "2", "1"]
    main([str(repository), "--today", "--json", "--jobs", "1"])
    assert json.loads(capsys.readouterr().out)["hsa/gfx90a/mm/two.co"] == [["missing-wait", "read", "every path", 1]]


def test_a_report(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(repository), "--report", "hsa/gfx90a/mm/two.co"])
    said = capsys.readouterr().out
    for part in ("1 certain errors of 1 causes", "<- earlier", "<- later", "Proposed change: s_waitcnt vmcnt(0) before `v_add_u32"):
        assert part in said
    raw = assembled("gfx90a", BROKEN)
    assert all(word in said for word in ("68040301",)) and bytes.fromhex("01030468") in raw  # v_add_u32_e32 v2, v1, v1
    main([str(repository), "--report", "hsa/gfx90a/mm/three.co"])
    assert "0 certain errors" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no code object"):
        main([str(repository), "--report", "hsa/four.co"])


def test_rules_that_are_broken_everywhere_do_not_count() -> None:
    tally = Counter({("hazard", "M0 by SALU, its implicit readers", "every path"): 9, ("barrier", "", "some path"): 1})
    assert of_rules(tally) == Counter({"barrier": 1}) and of_rules(tally, certain=True) == Counter()
    assert family("hsa/gfx942/fmoe/silu/k.co") == "gfx942/fmoe" and family("a/b/c/k.co") == "b/c"
