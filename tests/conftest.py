"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import kept_folder

# pytest-xdist gives its workers COLUMNS=80, which would set the width of tables on a pipe. Tests that need a width set it
# themselves.
os.environ.pop("COLUMNS", None)

# Every worker of pytest-xdist computes references with numpy; threads of several BLAS would wait for each other on the same cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No process in the background compiles common handlers while tests run.
os.environ.setdefault("SIMGPU_AHEAD", "0")

# Tests start Python hundreds of times: if the environment forbids bytecode in the tree, it is written to a folder of this user.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(kept_folder("bytecode"))
    sys.dont_write_bytecode = False
    temporary = Path(tempfile.gettempdir())  # what tests copied there is not found again
    shutil.rmtree(kept_folder("bytecode") / temporary.relative_to(temporary.anchor), ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """Tests ask for their numbers of examples when they are imported, so the profile is loaded before."""
    from tests.support.exhaustive import load_profile  # with hypothesis, whose bytecode is kept, too

    gc.disable()  # until imported and collected objects are frozen
    load_profile(config.option.markexpr)


@pytest.hookimpl(tryfirst=True)  # before those are left out that `-m` does not select
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the rows of sweeps that only the exhaustive run takes."""
    from tests.support.exhaustive import mark_rest, part_of

    mark_rest(items, part_of(config))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist the part of this run: its own arguments are the folders of the whole suite."""
    from tests.support.exhaustive import part_of

    node.workerinput["part"] = part_of(node.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what a run of the whole suite left out."""
    from tests.support.exhaustive import PARTS, part_of

    if (part := part_of(config)) is not None:
        taken = f"part {part + 1} of {PARTS} of sweeps' rows and of slow tests"
        terminalreporter.write_line(f"{taken}; `python -m pytest -n 2 tests` takes all")


def pytest_collection_finish() -> None:
    """Takes imported and collected objects out of garbage collection: a full one would walk it again, for 0.3 s."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 10, 100)
