"""Documentation: its commands print the output that it shows; its links and names exist."""

from __future__ import annotations

import argparse
import doctest
import functools
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from simgpu.tools.cli import VERBS, main, verb_parser
from simgpu.tools.shared.processes import environment
from tests.support import commands, forks, hip_server, pictures, transcripts
from tests.support.hip_server import GPU
from tests.support.places import ROOT
from tests.support.sweeps import swept

README = ROOT / "README.md"
DOCS = ROOT / "docs"
EVERY = sorted(DOCS.rglob("*.md"))
PAGES = [page for page in EVERY if page.parent.name != "notes"]  # notes are dated: their commands were run then
KINDS = ("tutorials", "how-to", "reference", "explanation", "notes")
# The page on HIP compiles its program first: tests/simgpu/hip/test_page.py.
TRANSCRIPTS = [page for page in (README, *PAGES) if "```console" in page.read_text() and page != DOCS / "tutorials" / "hip.md"]
# `folder/file.py`, `folder.module`, `folder/` in running text
PATHS = re.compile(r"`((?:hardware|operators|asm|simgpu|tools|tests|docs)/[\w/.]*)`")

# Commands of a page outside transcripts: an indented or fenced command line with its continuations; commands inside a sentence.
LINE = re.compile(r"^ *((?:simgpu|python -m simgpu\.[\w.]+) (?:.*\\\n)*.*)$", re.M)
INLINE = re.compile(r"`((?:simgpu|python -m simgpu\.[\w.]+) [^`]+)`")
GUIDES = [README, ROOT / "CONTRIBUTING.md", *PAGES]


def example_lines(page: str) -> list[list[str]]:
    """Returns the words of the command lines outside transcripts, without comments."""
    shown = re.findall(r"^```\w*\n.*?^```$|^ {4}[^\n]*$", transcripts.BLOCK.sub("", page), re.M | re.S)
    return [shlex.split(line.replace("\\\n", " "), comments=True) for line in LINE.findall("\n".join(shown))]


@functools.cache
def options_of(verb: str) -> set[str]:
    """Returns the options of the verb's parser and of its sub-parsers, with those of `exec` and `run` if it passes the rest on."""
    parser = verb_parser(verb)
    passes_on = any(action.dest == "rest" for action in parser._actions)
    return set(parser.options()) | (options_of("exec") | options_of("run") if passes_on else set())


@pytest.fixture(scope="module")
def hip_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hip_server.build(tmp_path_factory.mktemp("hip"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_commands_print_what_the_page_says(path: Path, hip_library: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs all commands in the page's order, since later ones use files that earlier ones wrote."""
    page = path.read_text()
    if "simgpu triton" in page and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install '.[triton]'")
    with GPU(hip_library) as gpu:
        environment = {**gpu.environment, **transcripts.VARIABLES.get(path.name, {})}
        printed = transcripts.rerun(page, tmp_path_factory.mktemp("work"), environment)
    for wanted, got in zip(transcripts.comparable(page), transcripts.comparable(printed), strict=True):
        assert got == wanted, f"python -m tests.support.transcripts {path.relative_to(ROOT)} writes what the commands print now"


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_examples_are_command_lines(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Examples that no transcript reruns: each parses with its verb's parser, or names a module with these options."""
    for words in example_lines(path.read_text()):
        if words[0] == "python":
            assert_module_takes(words[2], words[3:])
        elif words[1] != "--version":
            ran: list[argparse.Namespace] = []
            module = importlib.import_module(f"simgpu.tools.verbs.{words[1].replace('-', '_')}")
            monkeypatch.setattr(module, "run", lambda options, ran=ran: ran.append(options) or 0)
            assert main(words[1:], on_gpu=True) == 0 and len(ran) == 1, (words, capsys.readouterr().err)


@swept("path", GUIDES, ids=lambda path: path.name)
def test_commands_inside_sentences_exist(path: Path) -> None:
    """Commands in sentences have existing options; a sentence leaves out irrelevant words."""
    for line in INLINE.findall(re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)):
        words = line.split()
        options = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
        if words[0] == "python":
            assert_module_takes(words[2], words[3:])
        elif verbs := [verb for verb in words[1].split("|") if re.fullmatch("[a-z][a-z-]*", verb)]:
            for verb in verbs:
                assert verb in VERBS, line
                assert options - {"--help"} <= options_of(verb), line


def assert_module_takes(module: str, words: list[str]) -> None:
    """Asserts that the module exists, and that its source names the options, or the function that adds one to many parsers."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None, module
    source = Path(spec.origin).read_text()
    options = [word for word in words if word.startswith("--")]
    assert [one for one in options if f'"{one}"' not in source and f"add_{one[2:]}_option(" not in source] == [], module


def test_an_example_that_is_none_is_seen() -> None:
    """Tests the tests of examples: they see example lines and ignore transcripts."""
    page = "    simgpu run gemm -m 4 \\\n        -n 5   # that's all\n\n```console\n$ simgpu help\nsimgpu is\n```\n\nsimgpu runs.\n"
    assert example_lines(page) == [["simgpu", "run", "gemm", "-m", "4", "-n", "5"]]
    assert main(["run", "gemm", "-m", "4", "-n", "5", "--tyle", "3"]) == 2
    assert "--trans-b" in options_of("run") and "--tyle" not in options_of("run")


def test_a_changed_output_is_seen_and_a_time_is_not() -> None:
    """Tests the comparison itself."""
    page = "```console\n$ simgpu run\nmedian   5.2   us\nPASS\n```\n"
    same, other = page.replace("5.2", "1,017.25"), page.replace("PASS", "FAIL")
    assert transcripts.comparable(same) == transcripts.comparable(page) != transcripts.comparable(other)


def test_the_reference_of_commands_is_what_the_parsers_take() -> None:
    assert commands.page() == commands.PAGE.read_text(), "python -m tests.support.commands writes it anew"


def test_every_page_has_its_place() -> None:
    """A page is in the folder of its kind, on the start page and in the site's menu; no two pages have one name."""
    pages = {page.relative_to(DOCS).as_posix() for page in EVERY}
    index, site = (DOCS / "index.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    assert {page.partition("/")[0] for page in pages} == {"index.md", *KINDS}
    assert pages - {"index.md"} == set(re.findall(r"\]\(([\w/-]+\.md)\)", index))
    assert sorted(pages) == sorted(re.findall(r"- ([\w/-]+\.md)", site))
    assert len({page.name for page in EVERY}) == len(EVERY)


def test_the_site_builds(tmp_path: Path) -> None:
    """A page of the site loads nothing from elsewhere."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?://[^\"]*)", page.read_text())
        assert loaded == [], page.name


@swept("page", [README, ROOT / "CONTRIBUTING.md", *EVERY], ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    assert [name for name in PATHS.findall(text) if not (ROOT / name).exists()] == []
    links = re.findall(r"\]\(([\w./-]+?)(?:#[\w-]*)?\)", text)
    assert [name for name in links if not (page.parent / name).exists()] == []


SNIPPETS = [
    (page.name, number, snippet)
    for page in (README, *PAGES)
    for number, snippet in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S))
]


@pytest.mark.parametrize(("page", "number", "snippet"), SNIPPETS, ids=[f"{page}-{number}" for page, number, _ in SNIPPETS])
def test_python_of_a_page_runs(page: str, number: int, snippet: str, tmp_path: Path) -> None:
    """Snippets run in a separate process and folder: one of them adds an instruction, one writes a file."""
    done = forks.python(snippet, tmp_path, environment())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_of_the_tour(name: str) -> None:
    """A picture shows the present output of its commands, its page includes it, and it refers to nothing that a browser would
    fetch."""
    kept = pictures.place(name).read_text()
    assert pictures.words(pictures.draw(pictures.PICTURES[name])) == pictures.words(kept), "python -m tests.support.pictures"
    assert re.findall(r"href|src=|@import|@font-face|url\((?!#)", kept) == [] and len(kept) < 60_000
    assert f"](../pictures/tour_{name}.svg)" in (DOCS / "tutorials" / "tour.md").read_text()


NOTEBOOKS = [page for page in PAGES if "```pycon" in page.read_text()]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_cells_of_a_page_show_what_it_says(page: Path) -> None:
    """Cells of a page share their names, as in a notebook."""
    cells = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page.read_text(), re.M | re.S))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(doctest.DocTestParser().get_doctest(cells, {}, page.name, str(page), 0)).failed == 0
