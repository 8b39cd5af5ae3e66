"""The project's folder, and the folder of material that some tests compare with, if it is available."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
