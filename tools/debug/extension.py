"""Writes the extension for VS Code, which runs the adapter by the interpreter that wrote it."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

from simgpu.tools.shared.outputs import write
from simgpu.version import VERSION

HOMES = (".vscode", ".vscode-server", ".vscode-insiders", ".cursor", ".vscode-oss")  # of VS Code and its kin


def folders() -> list[Path]:
    """Returns the folders of extensions of this user's editors; VS Code's if there is none yet."""
    found = [Path.home() / name / "extensions" for name in HOMES if (Path.home() / name).is_dir()]
    return found or [Path.home() / HOMES[0] / "extensions"]


def manifest() -> str:
    """Returns the extension's package.json for this interpreter.

    >>> json.loads(manifest())["contributes"]["debuggers"][0]["runtime"] == sys.executable
    True
    """
    made = json.loads((files("simgpu.tools.debug") / "vscode" / "package.json").read_text("utf-8"))
    made["version"] = VERSION
    made["contributes"]["debuggers"][0]["runtime"] = sys.executable
    return json.dumps(made, indent=2) + "\n"


def install(where: Path) -> Path:
    """Writes the extension below a folder of extensions and returns its own folder. Replaces an earlier one."""
    own = where / f"simgpu.simgpu-debug-{VERSION}"
    own.mkdir(parents=True, exist_ok=True)
    write(str(own / "package.json"), manifest().encode(), force=True)
    return own
