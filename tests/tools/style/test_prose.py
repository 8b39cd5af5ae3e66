"""Counter of prose: good and bad sentences, limits, and the pages of docs/ within them."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

from simgpu.tools.style import prose
from simgpu.tools.style.prose import Count, count, main, rooms, sentences
from tests.support.places import ROOT
from tests.support.sweeps import swept
from tests.test_imports import MAY_IMPORT

LIMITS = (20, 5, 2)  # mean words of a sentence, percent of sentences over 30 words, habit words in 1,000
GOOD = "Checked mode reports the race. It names both instructions, the wave and the lanes."
BAD = (
    "What is told of a launch that lies behind another one is so many findings as it has of those that a check was asked for, and "
    "besides these nothing, which is said where it stands."
)
GENERATED = {"paper.md", "commands.md"}  # `simgpu paper` and the parsers write these
# Strings with hashes and quotes, and comments with quotes.
HASHES = '''
a = "# no" + '#\\'' + r"\\#" + """ " # no """ + f"{1!r:#x}"  # it's one
b = 1 + \\
    2  # two
c = "\\
# no"  # "
'''
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))


def page(folder: Path, text: str) -> Count:
    file = folder / "page.md"
    file.write_text(text)
    return count(file)


def test_a_good_page_has_no_fault(tmp_path: Path) -> None:
    found = page(tmp_path, GOOD)
    assert (len(found.sentences), found.words, found.long) == (2, 14, 0)
    assert found.faults(LIMITS) == []


def test_a_bad_sentence_is_long_and_has_habits(tmp_path: Path) -> None:
    found = page(tmp_path, BAD)
    assert set(found.habits) == {"what is", "told", "lies", "behind", "so many", "of those", "those that", "besides", "stands"}
    assert found.long == 1 and len(found.faults(LIMITS)) == 3


@pytest.mark.parametrize(
    "text", ["```text\n{}\n```", "| {} |", "# {}", "> {}", "    {}", "![{}](x.svg)", "`{}`"], ids=lambda text: text.split("{")[0]
)
def test_code_tables_headings_and_quotes_do_not_count(tmp_path: Path, text: str) -> None:
    assert page(tmp_path, f"{text.format(BAD)}\n\n{GOOD}").faults(LIMITS) == []


def test_items_of_a_list_are_apart(tmp_path: Path) -> None:
    found = page(tmp_path, "Three faults:\n\n* a missing\n  wait,\n* a race\n1. one more item\n")
    assert list(found.sentences) == ["Three faults:", "a missing wait,", "a race", "one more item"]


def test_a_sentence_ends_before_a_capital() -> None:
    assert sentences("It takes 0.5 s. Then `run` ends; see the table. No") == ["It takes 0.5 s.", "Then CODE ends; see the table."]


@pytest.mark.parametrize("path", [Path(__file__), Path(prose.__file__), ROOT / "hardware" / "cache.py"], ids=lambda path: path.name)
def test_comments_are_those_of_python_s_tokenizer(path: Path) -> None:
    text = path.read_text() + HASHES
    tokens = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type == tokenize.COMMENT]
    found = [each[0] for each in prose._TOKEN.finditer(text) if each[0].startswith("#")]
    assert found == [each.string for each in tokens] and len(found) >= 3


def test_docstrings_and_comments_count(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(f'"""{GOOD}"""\n\n\ndef lies(told: int) -> int:\n    # The wave that\n    # stands there.\n    return told\n')
    found = count(file)
    assert [len(sentence.split()) for sentence in found.sentences] == [5, 9, 5]
    assert dict(found.habits) == {"stands": 1}


def test_limits_decide_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.md"
    file.write_text(BAD)
    assert main([str(file)]) == 0
    assert main([str(file), "--max", "20,5,2"]) == 1
    assert main([str(file), "--max", "99,100,999", "--worst", "1"]) == 0
    printed = capsys.readouterr().out
    assert "100.0 % of sentences over 30 words, at most 5" in printed and "What is told" in printed


def test_examples_and_indented_lines_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(f'"""{GOOD}\n\n    map.py  {BAD}\n\n>>> f()  # {BAD}\n{BAD}\n\n{GOOD}\n"""\n')
    assert len(count(file).sentences) == 4 and count(file).faults(LIMITS) == []


def test_files_of_a_room_count_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("a.py", GOOD), ("b.py", GOOD), ("c/d.py", BAD), ("c/page.md", GOOD)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'"""{text}"""\n' if name.endswith("py") else text)
    assert main([str(tmp_path), "--max", "20,5,2"]) == 1
    found = [line.removeprefix(f"{tmp_path}").partition(" sentences")[0] for line in capsys.readouterr().out.splitlines()]
    assert found[:3] == ["/c/page.md: 2", ": 4", "/c: 1"] and len(found) == 6


@pytest.mark.slow
@swept("room, files", rooms([ROOT / top for top in (*MAY_IMPORT, "tests")]), ids=lambda value: str(value)[:60])
def test_rooms_are_within_the_limits(room: Path, files: list[Path]) -> None:
    assert count(*files).faults(LIMITS) == [], f"python -m simgpu.tools.style.prose --worst 9 {room.relative_to(ROOT)}"


@swept("path", PAGES, ids=lambda path: path.name)
def test_pages_are_within_the_limits(path: Path) -> None:
    assert count(path).faults(LIMITS) == [], f"python -m simgpu.tools.style.prose --worst 9 {path.relative_to(ROOT)}"


@swept("path", PAGES, ids=lambda path: path.name)
def test_lines_wrap_at_100(path: Path) -> None:
    """Lines of prose, not of tables and code. A changelog has a line an entry; notes are not read in an editor."""
    if path.name == "CHANGELOG.md" or path.parent.name == "notes" or path.name in GENERATED:
        return
    text, inside = [], False
    for line in path.read_text().splitlines():
        inside ^= line.startswith("```")
        if not inside and not line.startswith(("|", "    ", "![", "```")):
            text.append(line)
    assert [line for line in text if len(line) > 100] == []
