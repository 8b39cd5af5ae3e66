"""Folders: the project's, and that of material that some tests compare with, if it is available."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus"  # kernels that compilers made
# For child processes: this checkout first, then what this process was given, such as a folder with PyTorch.
PYTHON_PATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def kept_folder(name: str) -> Path:
    """A folder of this user that outlives the session, for what is found again by its content or its source's date."""
    made = Path(tempfile.gettempdir(), f"simgpu-{name}-{os.getuid()}")
    made.mkdir(mode=0o700, exist_ok=True)
    assert made.stat().st_uid == os.getuid() and not made.is_symlink()
    return made


def copied(folder: Path, to: Path, symlinks: bool = False) -> None:
    """Copies a folder of the project with its bytecode, which would take seconds to make anew."""
    shutil.copytree(folder, to, symlinks=symlinks)
    if sys.pycache_prefix is None:
        return
    for path in [folder, *(link for link in folder.iterdir() if link.is_symlink() and not symlinks)]:
        kept, place = (Path(sys.pycache_prefix, *at.parts[1:]) for at in (path.resolve(), to / path.relative_to(folder)))
        if kept.is_dir():
            shutil.copytree(kept, place, dirs_exist_ok=True)
