"""Pictures of docs/how-to/look.md match the pages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support import look
from tests.support.browser import Opened, needs_browser
from tests.support.exhaustive import left_out
from tests.support.places import ROOT

ALIKE = 0.03  # mean difference of pixels: fonts depend on the machine


# Others show views that tests of pages open.
DEFAULT = ("lds", "fragments")
REST = tuple(name for name in look.PICTURES if name not in DEFAULT)


@needs_browser
@pytest.mark.parametrize("names", [DEFAULT, left_out(REST)])
def test_the_documentations_pictures_are_the_pages(names: tuple[str, ...], opened: Opened, chromium: Any) -> None:
    for name, picture in look.drawn(chromium, names):
        kept = look.path_of(name).read_bytes()
        assert opened.difference(kept, picture) < ALIKE, f"{name}: python -m tests.support.look draws the pictures as they are now"


def test_the_page_shows_each_of_them() -> None:
    shown = re.findall(r"\(\.\./pictures/look_(\w+)\.png\)", (ROOT / "docs" / "how-to" / "look.md").read_text())
    assert sorted(shown) == sorted(look.PICTURES)
