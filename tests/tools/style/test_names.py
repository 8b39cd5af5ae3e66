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
IRREGULAR = """
    begun broken built chosen drawn given heard held hidden hung joined kept known laid led lent lost made meant met noted paid rid
    said seen sent shown sold sought spent struck swept taken thrown told torn understood won wound written
"""
PARTICIPLE = re.compile(rf"_*(?:[a-z]+ed|{'|'.join(IRREGULAR.split())})_*")
DEFINED = re.compile(rf"^ *(?:async )?def {PARTICIPLE.pattern}\(", re.M)
NO_PARTICIPLES = {"_feed", "_seed", "seed"}
# Operands of printed programs, which name their methods; an operator's reference, named as its room is, like `rows` and `columns`.
NAMED_FOR_USERS = {
    "operators/attention_backward/problem.py added", "operators/rows/forms.py added", "tools/torch/operators/row_forms.py added",
    "operators/fused/reference.py fused",
}  # fmt: skip


def test_docstrings_begin_with_a_verb_or_a_plain_noun_and_names_of_classes_are_distinct() -> None:
    texts = {path: path.read_text(encoding="utf-8") for top in MAY_IMPORT for path in (ROOT / top).rglob("*.py")}
    tests = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    weak = {path.relative_to(ROOT).as_posix(): found for path, text in (texts | tests).items() if (found := WEAK.findall(text))}
    assert weak == {}
    classes = Counter(name for text in texts.values() for name in CLASS.findall(text))
    assert len([name for name, count in classes.items() if count > 1]) <= MOST


def test_no_function_but_a_property_is_named_by_a_bare_participle() -> None:
    found = set()
    for path in (path for top in MAY_IMPORT for path in (ROOT / top).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text)) if DEFINED.search(text) else ()  # most files need no parser
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and PARTICIPLE.fullmatch(node.name):
                if not any(re.search(r"property\b|\.setter$", ast.unparse(one)) for one in node.decorator_list):
                    found.add(f"{path.relative_to(ROOT).as_posix()} {node.name}")
    assert {one for one in found if one.split()[1] not in NO_PARTICIPLES} == NAMED_FOR_USERS
