"""Output of a launch's kernels.

Texts to the standard output are written when the launch ends, workgroup by workgroup in dispatch order, so they do not depend on
the number of host threads. If more than 2^20 characters are held, they are written early; only each part is in this order. Texts
to the standard error, such as failed assertions, are written at the end, unless an error includes them.
"""

from __future__ import annotations

import sys
import threading
from typing import TextIO

from simgpu.hardware.errors import HostCallError

HELD_LIMIT = 1 << 20  # characters that are held before they are written
COMPLAINTS_LIMIT = 1 << 24  # characters of different texts that go to stderr


class Output:
    """Texts of one launch. stdout, stderr: destinations, None for the process's own."""

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._streams = stdout, stderr
        self._lock = threading.Lock()
        self._texts: dict[int, list[str]] = {}  # by workgroup
        self._complaints: dict[str, int] = {}
        self._held = self._said = 0

    def say(self, group: int, text: str) -> None:
        """Adds a workgroup's text to the standard output."""
        with self._lock:
            self._texts.setdefault(group, []).append(text)
            self._held += len(text)
            if self._held > HELD_LIMIT:
                self._write()

    def complain(self, text: str) -> None:
        """Adds a text to the standard error. Raises HostCallError if the texts exceed COMPLAINTS_LIMIT."""
        with self._lock:
            self._said += 0 if text in self._complaints else len(text)
            if self._said > COMPLAINTS_LIMIT:
                raise HostCallError(f"printf: more than {COMPLAINTS_LIMIT:,} characters to stderr")
            self._complaints[text] = self._complaints.get(text, 0) + 1

    def taken_complaints(self) -> dict[str, int]:
        """Removes and returns the texts to the standard error, each with its count."""
        with self._lock:
            said, self._complaints = self._complaints, {}
            return said

    def flush(self) -> None:
        """Writes all held texts."""
        if not self._texts and not self._complaints:
            return
        with self._lock:
            self._write()
        for text, times in self.taken_complaints().items():
            for _ in range(times):
                _put(self._streams[1] or sys.stderr, text)

    def _write(self) -> None:
        texts, self._texts, self._held = self._texts, {}, 0
        for group in sorted(texts):
            for text in texts[group]:
                _put(self._streams[0] or sys.stdout, text)


def _put(stream: TextIO, text: str) -> None:
    """Writes a text. Characters that the stream's encoding lacks are escaped."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
