"""A browser for all tests of pages, and pages that several of them use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgpu.tools.cli import main
from tests.support.browser import Opened, browser, window


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture(scope="session")
def one_window(chromium: Any) -> Iterator[Opened]:
    with window(chromium) as made:
        yield made


@pytest.fixture
def opened(one_window: Opened) -> Opened:
    return one_window.renew()


@pytest.fixture(scope="session")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the page of a GEMM's run."""
    file = tmp_path_factory.mktemp("page") / "gemm.html"
    words = ["run", "gemm", "-m", "100", "-n", "70", "-k", "50", "--dtype", "f16", "--target", "mi300x", "--html", str(file)]
    assert main(words) == 0
    return file


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the page of a kernel with a finding."""
    folder = tmp_path_factory.mktemp("page")
    assert main(["museum", "barrier-before-wait", "--save", str(folder)]) == 0
    kernel = str(folder / "barrier-before-wait-before.s")
    arguments = ["--arg", "count:f32:128", "--arg", "zeros:f32:128", "--grid", "1"]
    assert main(["check", kernel, *arguments, "--html", str(folder / "broken.html")]) == 1
    return folder / "broken.html"
