"""Lint before and after a commit: a repaired kernel's findings are gone, and only changed code objects count."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from simgpu.tools.robustness.fixes import fix_of, main
from tests.support.checked import assembled

BROKEN = ["global_load_dword v1, v60, s[4:5]", "v_add_u32 v2, v1, v1"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: one adds three files, the next repairs one of them and breaks none."""
    def commit(subject: str, **files: bytes) -> None:
        for name, data in files.items():
            (tmp_path / f"{name}.co").write_bytes(data)
        for words in (["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", subject]):
            subprocess.run(["git", "-C", tmp_path, *words], check=True)

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    broken, repaired = assembled("gfx90a", BROKEN), assembled("gfx90a", [BROKEN[0], "s_waitcnt vmcnt(0)", BROKEN[1]])
    commit("Add kernels", one=broken, two=broken, text=b"no code object")
    commit("Fix random NaN", one=repaired, text=b"still none")
    return tmp_path


def test_a_fix_and_what_it_fixed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fix = fix_of(str(repository), "HEAD")
    assert (fix.subject, fix.objects) == ("Fix random NaN", 2)
    assert fix.before == Counter({"missing-wait": 1, "unread": 1}) and fix.after == Counter({"unread": 1})
    main([str(repository), "HEAD"])
    assert "missing-wait" in capsys.readouterr().out
