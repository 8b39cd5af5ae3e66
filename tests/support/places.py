"""The project's folder, and the folder of material that some tests compare with, if it is available."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def kept_folder(name: str) -> Path:
    """A folder of this user that outlives the session, for what is found again by its content or its source's date."""
    made = Path(tempfile.gettempdir(), f"simgpu-{name}-{os.getuid()}")
    made.mkdir(mode=0o700, exist_ok=True)
    assert made.stat().st_uid == os.getuid() and not made.is_symlink()
    return made
