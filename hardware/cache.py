"""Files kept between runs in the user's cache: any of them may be deleted at any time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def directory(kind: str) -> Path:
    """The folder `kind` of `SIMGPU_CACHE_DIR`, or of `simgpu` in the user's cache directory; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SIMGPU_CACHE_DIR") or Path(base, "simgpu")) / kind


def store(path: Path, content: bytes) -> None:
    """Writes a file of the cache, whole or not at all; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        pass
