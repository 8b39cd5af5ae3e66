"""Pictures of pages for docs/look.md, drawn by the system's Chromium.

    python -m tests.support.look       # draws them anew
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from simgpu.tools.cli import main as main_of_simgpu
from tests.support.browser import browser, window
from tests.support.places import ROOT

GEMM = "run gemm -m 200 -n 136 -k 150 --dtype f16 --target mi300x"
# name: command, what is selected, whether it is dark, height in pixels
PICTURES = {
    "source": (GEMM, "view=source&row=243", False, 860),
    "fragments": ("layout v_mfma_f32_16x16x16_f16 --target mi300x", "operand=D&element=85&lane=21", True, 1320),
}


def drawn() -> Iterator[tuple[str, bytes]]:
    """Each picture's name and its PNG."""
    with tempfile.TemporaryDirectory() as folder, browser() as made:
        files: dict[str, Path] = {}
        for name, (command, fragment, dark, height) in PICTURES.items():
            file = files.setdefault(command, Path(folder) / f"{len(files)}.html")
            if not file.exists():
                with contextlib.redirect_stdout(io.StringIO()):
                    assert main_of_simgpu([*command.split(), "--html", str(file)]) in (0, 1)
            with window(made, 1280, height, dark) as opened:
                opened.open(file, fragment)
                opened.run("([text]) => { document.querySelector('.title p').textContent = text; }", f"simgpu {command} --html FILE")
                yield name, opened.page.screenshot()


def path_of(name: str) -> Path:
    return ROOT / "docs" / f"look_{name}.png"


def main() -> None:
    for name, picture in drawn():
        path_of(name).write_bytes(picture)
        print(path_of(name).relative_to(ROOT), len(picture))


if __name__ == "__main__":
    main()
