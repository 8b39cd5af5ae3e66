"""Text files of others' repositories, from a checkout that the user names."""

from __future__ import annotations

from pathlib import Path

from simgpu.tools.shared.errors import UsageError

MOST_BYTES = 1 << 20  # of a file


def text_of(path: Path, repository: str) -> str:
    """Returns a file's text. UsageError, which names the repository, if there is none or more than MOST_BYTES."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path}: more than {MOST_BYTES} bytes are no source")
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; give a checkout of github.com/{repository}") from None
