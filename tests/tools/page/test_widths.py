"""Pages in narrow and wide windows: only lists and pictures scroll sideways, no code is cut, findings are visible at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import needs_browser, window
from tests.support.exhaustive import left_out

CUT = """() => [...document.querySelectorAll("main .row .text")]
  .filter((text) => text.scrollWidth > text.clientWidth + 1 || text.offsetWidth < text.firstChild?.offsetWidth).length"""
# For each list of code: whether its last column can be scrolled into sight.
REACHED = """() => [...document.querySelectorAll("main .list")].every((list) => {
  list.scrollLeft = 1e6;
  const end = list.querySelector(".rows > .row").lastElementChild.getBoundingClientRect(), room = list.getBoundingClientRect();
  list.scrollLeft = 0;
  return end.right <= room.right + 1 && end.left >= room.left - 1;
})"""


@needs_browser
@pytest.mark.parametrize("width, dark", [(390, False), (1280, True), left_out(2560, False)])
def test_no_page_scrolls_sideways_and_findings_are_read_without_a_click(
    chromium: Any, gemm: Path, broken: Path, width: int, dark: bool
) -> None:
    with window(chromium, width, dark=dark) as opened:
        for file in (gemm, broken):
            opened.open(file)
            for tab in range(1, 1 + len(opened.page.query_selector_all("[role=tab]"))):
                opened.page.keyboard.press(str(tab))
                assert opened.run("() => document.documentElement.scrollWidth") <= width, (file.name, tab)
                assert opened.run(CUT) == 0 and opened.run(REACHED), (file.name, tab)
        assert opened.errors == []
        page = opened.open(broken).page
        found = page.locator(".findings pre.finding")
        assert found.count() == 1 and found.is_visible() and "s_waitcnt lgkmcnt(0) is needed" in found.inner_text()
        assert 0 < found.bounding_box()["y"] < 900 - 100
        found.evaluate("element => element.append(' at ' + 'kernel_'.repeat(20) + '+0x4c')")
        assert found.evaluate("element => element.scrollWidth <= element.clientWidth"), "a long name is cut"
        found.locator("button").first.click()
        assert "view=source" in opened.fragment and "row=" in opened.fragment
        assert page.locator("main .row.on[role=option]").is_visible()
