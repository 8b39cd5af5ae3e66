"""simgpu warm compiles handlers of common instructions, target by target."""

from __future__ import annotations

import json

import pytest

from simgpu.engine.lowering import ahead
from simgpu.machine.jit import Compiler
from simgpu.tools.cli import main
from simgpu.tools.verbs import warm


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """An empty cache and a table of two instructions."""
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path))
    rows = ahead.table()[:2]
    monkeypatch.setattr(ahead, "table", lambda: rows)
    ahead._folder.cache_clear()
    made = Compiler()
    monkeypatch.setattr(warm, "compiler", lambda: made)
    yield made
    ahead._folder.cache_clear()


def test_the_second_time_there_is_nothing_to_compile(compiler, capsys):
    assert main(["warm", "--target", "mi300x,gfx942,mi355x", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["target"], first["handlers"]) == ("gfx942", 2) and first["compiled"] > 2
    assert (second["target"], second["handlers"], second["compiled"]) == ("gfx950", 2, 0), "both targets share their handlers"
    assert main(["warm", "--target", "mi300x"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("gfx942: 2 common handlers, 0 functions compiled in ") and str(compiler.kept.path) in said


def test_without_a_cache_it_says_what_to_do(compiler, monkeypatch, capsys):
    monkeypatch.setattr(compiler.kept, "_usable", False)
    assert main(["warm"]) == 2
    assert "set SIMGPU_CACHE_DIR" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mi300y", "gfx1250"])  # gfx1250's kernels are not executed
def test_an_unknown_target_is_refused(compiler, capsys, name):
    assert main(["warm", "--target", name]) == 2
    assert name in capsys.readouterr().err and compiler.compiled == 0
