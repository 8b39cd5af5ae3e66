"""Names from a file are text in a page, whatever markup they spell; so are those from another page."""

from __future__ import annotations

from pathlib import Path

import msgpack

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.tools.cli import main
from simgpu.tools.page.page import Page, read_document
from simgpu.tools.robustness.hostile import rebuild
from tests.support.browser import Opened, needs_browser
from tests.support.kernels import KernelText, assemble

MARKUP = "</script><script>window.owned=1</script><img src=x onerror=window.owned=1>\"'&lt;\x1b]0;owned\x07"
SHOWN = MARKUP.replace("\x1b", r"\x1b").replace("\x07", r"\x07")


def page_of_hostile_names(folder: Path) -> Path:
    """Makes a page from hostile names only: of a kernel, its argument, its source file and a page to compare with."""
    store = "s_load_dwordx2 s[2:3], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v0, s[2:3]"
    good = assemble("gfx90a", KernelText("k", store, ("buffer",)))
    document = CodeObject.parse(good).metadata.document()
    kernel = document["amdhsa.kernels"][0]
    kernel[".name"] = kernel[".args"][0][".name"] = MARKUP
    file, first, second = folder / "k.co", folder / "first.html", folder / "second.html"
    file.write_bytes(rebuild(good, note=msgpack.packb(document)))
    words = ["check", str(file), "--arg", "zeros:u32:64", "--grid", "1", "--html"]
    assert main([*words, str(first)]) == 0
    other = read_document(str(first))
    Page(MARKUP, {name: value for name, value in other.items() if name != "title"}, MARKUP).save(first)
    assert main([*words, str(second), "--against", str(first)]) == 0
    return second


def test_a_page_has_no_markup_of_a_file(tmp_path: Path) -> None:
    """A document is packed, so only its title brings the file's text into the page's markup."""
    text = page_of_hostile_names(tmp_path).read_text()
    assert "owned" not in text.partition("<title>")[2].partition("</title>")[2] and "<script>window" not in text


@needs_browser
def test_a_browser_shows_names_as_text(tmp_path: Path, opened: Opened) -> None:
    opened.open(page_of_hostile_names(tmp_path))
    assert SHOWN in opened.page.inner_text("body")
    for tab in range(1, 1 + len(opened.page.query_selector_all("[role=tab]"))):
        opened.page.keyboard.press(str(tab))
        assert opened.run("() => window.owned === undefined && !document.querySelector('img[src=x]')")
    assert opened.errors == [] and all(url.startswith("file:") for url in opened.requests)
