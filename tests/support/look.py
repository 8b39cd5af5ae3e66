"""Pictures of pages for docs/how-to/look.md, drawn by the system's Chromium.

    python -m tests.support.look       # draws them anew
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from simgpu.tools.cli import main as main_of_simgpu
from tests.support.browser import browser, window
from tests.support.places import ROOT

EXHIBIT = "padding-that-does-not-help"
GEMM = "run gemm -m 200 -n 136 -k 150 --dtype f16 --target mi300x"
# name: command, the page's selection, whether it is dark, height in pixels
PICTURES = {
    "source": (GEMM, "view=source&row=319", False, 860),
    "lds": (f"check --performance {EXHIBIT}-before.s --grid 1 --arg zeros:f32:64 --arg zeros:f32:64", "view=lds", True, 760),
    "tree": (GEMM, "view=tree", False, 1130),
    "waves": ("time gemm -m 1000 -n 777 -k 333 --dtype f16 --target mi300x", "view=waves&row=436", True, 420),
    "fragments": ("layout v_mfma_f32_16x16x16_f16 --target mi300x", "operand=D&element=85&lane=21", True, 1320),
}


def drawn(made: Any, names: Collection[str] = tuple(PICTURES)) -> Iterator[tuple[str, bytes]]:
    """Yields each picture's name and its PNG, drawn by a browser."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        files: dict[str, Path] = {}
        _run(f"museum {EXHIBIT} --save .")
        for name in names:
            command, fragment, dark, height = PICTURES[name]
            file = files.setdefault(command, Path(folder) / f"{len(files)}.html")
            if not file.exists():
                _run(f"{command} --html {file}")
            with window(made, 1280, height, dark) as opened:
                opened.open(file, fragment)
                said = f"simgpu {command} --html FILE"
                opened.run("([text]) => { document.querySelector('.title p').textContent = text; }", said)
                yield name, opened.page.screenshot()


def _run(command: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main_of_simgpu(command.split()) in (0, 1)


def path_of(name: str) -> Path:
    return ROOT / "docs" / "pictures" / f"look_{name}.png"


def main() -> None:
    with browser() as made:
        for name, picture in drawn(made):
            path_of(name).write_bytes(picture)
            print(path_of(name).relative_to(ROOT), len(picture))


if __name__ == "__main__":
    main()
