"""Page of `simgpu profile`: what to change, with a way to its line."""

from __future__ import annotations

from pathlib import Path

from simgpu.tools.cli import main
from simgpu.tools.page.page import read_document
from tests.support.browser import Opened, needs_browser
from tests.support.slow_kernels import KERNELS

LAUNCH = "--target mi300x --grid 256 --block 256 --arg zeros:f32:4194304 --arg zeros:f32:65536 --arg i32:8"


@needs_browser
def test_the_page_leads_to_the_line(tmp_path: Path, opened: Opened) -> None:
    source, file = tmp_path / "weigh.hip", tmp_path / "page.html"
    source.write_text(KERNELS["stride"].text)
    assert main(["profile", "--html", str(file), str(source), *LAUNCH.split()]) == 0
    assert read_document(str(file))["kernels"][0]["profile"]["advice"][0]["kind"] == "uncoalesced"
    text = opened.open(file).page.inner_text("main")
    assert "uncoalesced" in text and "mass" in text
    opened.page.click("main tbody button.link >> nth=0")
    assert "view=source" in opened.fragment and "row=" in opened.fragment and opened.errors == []
