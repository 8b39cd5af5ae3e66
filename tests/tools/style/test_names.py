"""First words of docstrings, names of classes that several rooms use, and names of functions."""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.support.places import ROOT
from tests.test_imports import MAY_IMPORT

WEAK = re.compile(r'^\s*r?"""(?:The|What|Whether|One|Where|Of|How|Which)\b.*', re.M)
CLASS = re.compile(r"^ *class (\w+)", re.M)
MOST = 25  # names of classes in more than one file


def test_docstrings_begin_with_a_verb_or_a_plain_noun_and_names_of_classes_are_distinct() -> None:
    texts = {path: path.read_text(encoding="utf-8") for top in MAY_IMPORT for path in (ROOT / top).rglob("*.py")}
    weak = {path.relative_to(ROOT).as_posix(): found for path, text in texts.items() if (found := WEAK.findall(text))}
    assert weak == {}
    classes = Counter(name for text in texts.values() for name in CLASS.findall(text))
    assert len([name for name, count in classes.items() if count > 1]) <= MOST
