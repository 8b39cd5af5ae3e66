"""Files that verbs write: they overwrite only if asked, and a file is there whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

from simgpu.tools.shared.errors import UsageError


def add_force_option(parser: ArgumentParser) -> None:
    """Adds --force, the same for every verb that writes."""
    parser.add_argument("--force", action="store_true", help="overwrite output files that exist")


STDOUT = "-"  # an output's name


def claim(paths: Iterable[str | None], force: bool) -> None:
    """Refuses outputs before any work. Raises UsageError if one exists (without `force`), repeats or has no folder."""
    named = [Path(path) for path in paths if path not in (None, STDOUT)]
    for index, path in enumerate(named):
        if path.exists() and (path.is_dir() or not force):
            remedy = (
                "it is a folder: name a file"
                if path.is_dir()
                else "give another name, or --force to overwrite it"
            )
            raise UsageError(f"{path} exists: {remedy}")
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}: make it first")
        if path.resolve() in [other.resolve() for other in named[:index]]:
            raise UsageError(f"{path} is named for two outputs: give two names")


def write(path: str, content: bytes, force: bool) -> None:
    """Writes `content`, to standard output for "-". Keeps a file that appeared meanwhile unless `force`. Raises OSError."""
    if path == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    target = Path(path)
    try:
        _write_whole(target, content, force)
    except FileExistsError:
        raise UsageError(f"{path} exists: give another name, or --force to overwrite it") from None
    except OSError as error:  # names the scratch file, or none
        raise OSError(error.errno, error.strerror, path) from error


def _write_whole(target: Path, content: bytes, force: bool) -> None:
    descriptor, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(scratch, 0o666 & ~_umask())
        if force:
            os.replace(scratch, target)
        else:
            os.link(scratch, target)
    finally:
        Path(scratch).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
