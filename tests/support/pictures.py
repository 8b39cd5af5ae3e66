"""Pictures of a terminal for docs/tutorials/tour.md: commands and their output at 80 columns, as SVG without references.

    python -m tests.support.pictures       # draws them anew
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.text import Text

from simgpu.tools.cli import WRONG
from simgpu.tools.cli import main as main_of_simgpu
from tests.support.places import ROOT
from tests.support.transcripts import COMMAND

COLUMNS = 80
ENVIRONMENT = {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "COLORTERM": ""}
PICTURES = {
    "museum": ("simgpu museum past-the-last-bin",),
    "layout": (
        "simgpu layout v_mfma_f32_32x32x8f16 --target gfx90a --element 9,3",
        "simgpu layout v_mfma_f32_16x16x4f32 --target mi100 --probe | head -16",
        "simgpu layout v_mfma_f32_16x16x4f32 --target mi100 --probe | tail -4",
    ),
    "check": (
        "simgpu museum barrier-before-wait --save . | head -1",
        "simgpu lint barrier-before-wait-before.s",
        "simgpu lint barrier-before-wait-after.s --verbose",
        "simgpu check barrier-before-wait-before.s --arg count:f32:128 --arg zeros:f32:128 --grid 1",
    ),
    "time": ("simgpu time gemm -m 1000 -n 777 -k 333 --target mi300x --lines 1",),
}


class Terminal(io.StringIO):
    """Standard output that reports a terminal."""

    def isatty(self) -> bool:
        """True: titles are bold, errors are red."""
        return True


def draw(commands: tuple[str, ...]) -> str:
    """Returns the SVG of a terminal in which the commands ran in order, in an empty folder."""
    screen = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for command in commands:
            screen.print(Text(f"$ {command}", "bold"))
            screen.print(Text.from_ansi(_output(command)))
        screen.print(Text("$", "bold"))
    svg = screen.export_svg(title="simgpu", unique_id="simgpu")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.S)  # fonts of a server: the reader's own monospaced font will do
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)  # keeps indented lines in every viewer
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines() if line.strip())


def _output(command: str) -> str:
    parsed = COMMAND.match(f"$ {command}")
    assert parsed is not None, command
    terminal = Terminal()
    with patch.dict(os.environ, ENVIRONMENT), contextlib.redirect_stdout(terminal):
        status = main_of_simgpu(parsed["words"].split())
    if status > WRONG:
        raise ValueError(f"{command}: status {status}")
    lines, count = terminal.getvalue().splitlines(), int(parsed["lines"] or 0)
    return "\n".join(lines[:count] if parsed["part"] == "head" else lines[-count:])


def words(svg: str) -> list[str]:
    """Returns the picture's words, text by text; another version of rich may draw it differently."""
    texts = (text.text or "" for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    return [" ".join(text.split()) for text in texts if text.strip()]


def place(name: str) -> Path:
    """Returns the picture's path."""
    return ROOT / "docs" / "pictures" / f"tour_{name}.svg"


if __name__ == "__main__":
    for name, commands in PICTURES.items():
        place(name).write_text(draw(commands))
