"""`simgpu lint`: its output, its status, and files that are no code objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.cli import main
from tests.support.kernels import KernelText, assemble, source
from tests.support.places import ROOT

LOAD = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32 v0, 2, v0\ns_waitcnt lgkmcnt(0)\nglobal_load_dword v1, v0, s[4:5]\n"
ADD = "v_add_u32 v2, v1, v1\nglobal_store_dword v0, v2, s[6:7]"
BROKEN = KernelText("k", LOAD + "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 sum\ns_waitcnt vmcnt(0)\nsum:\n" + ADD, ("buffer", "buffer"))
MENDED = KernelText("k", LOAD + "s_waitcnt vmcnt(0)\n" + ADD, ("buffer", "buffer"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.s").write_text(source("gfx90a", BROKEN))
    (tmp_path / "k.co").write_bytes(assemble("gfx90a", BROKEN))
    (tmp_path / "mended.co").write_bytes(assemble("gfx90a", MENDED, KernelText("other", MENDED.lines, MENDED.args)))
    return tmp_path


def test_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding is printed as the page shows it."""
    assert main(["lint", "k.s"]) == 1
    said = capsys.readouterr().out
    page = (ROOT / "docs" / "reference" / "lint.md").read_text()
    assert "".join(f"    {line}\n" for line in said.splitlines()) in page, said
    assert main(["lint", "k.co", "--kernel", "k"]) == 1
    assert capsys.readouterr().out == said.replace("k.s:", "kernel.s:")


def test_silence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "mended.co"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["lint", "mended.co", "--verbose"]) == 0
    assert capsys.readouterr().out == "k: nothing found\nother: nothing found\n"


def test_json_and_sarif(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "k.s", "--json", "--sarif", "k.sarif"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["kernels"]) == (1, ["k"])
    (finding,) = document["findings"]
    assert (finding["kind"], finding["place"], finding["count"]) == ("missing-wait", "v1", 0)
    (result,) = json.loads((folder / "k.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "missing-wait"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "k.s"


BAD = {
    "empty.co": (b"", "not a code object"),
    "cut.co": (None, "cut.co"),
    "foreign.co": (b"GIF89a" + bytes(300), "not a code object"),
    "empty.s": (b"", "names no target"),
    "words.s": (b'.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"\nthis is no instruction', "line 2"),
    "binary.s": (b"\xff\xfe\x00", "UTF-8"),
    "bare.s": (b'.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"\n', "no AMDGPU metadata"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_line(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said = BAD[name]
    whole = (folder / "k.co").read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert main(["lint", name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and said in err, err


def test_bad_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["none.co"], ["k.co", "--kernel", "none"], ["k.co", "--sarif", "k.co"], ["."], ["k.co", "--target", "mi300x"]):
        assert main(["lint", *words]) == 2, words
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_known_findings_are_not_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "known.supp").write_text("{\n  on the short path\n  simgpu:missing-wait\n  src:k.s:*\n}\n")
    assert main(["lint", "k.s", "--suppressions", "known.supp"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "suppressed once: on the short path\n")
    assert main(["lint", "k.s", "--suppressions", "known.supp", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["findings"], document["suppressed"]) == ([], {"on the short path": 1})
