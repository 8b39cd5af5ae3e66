"""What a launch's kernels print: the same text on any number of host threads.

Texts to the standard output appear workgroup by workgroup, in the order of dispatch, when the launch ends or a MiB is held; those
to the standard error, as of failed assertions, at the end, unless an error tells them.
"""

from __future__ import annotations

import sys
import threading
from typing import TextIO

from simgpu.hardware.errors import HostCallError

HELD_LIMIT = 1 << 20  # characters that are held before they are written
COMPLAINTS_LIMIT = 1 << 24  # characters of different texts that go to stderr


class Output:
    """Texts of one launch. stdout, stderr: where they go, None for the process's own."""

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._streams = stdout, stderr
        self._lock = threading.Lock()
        self._texts: dict[int, list[str]] = {}  # by workgroup
        self._complaints: dict[str, int] = {}
        self._held = self._said = 0

    def say(self, group: int, text: str) -> None:
        """A text of a workgroup to the standard output."""
        with self._lock:
            self._texts.setdefault(group, []).append(text)
            self._held += len(text)
            if self._held > HELD_LIMIT:
                self._write()

    def complain(self, text: str) -> None:
        """A text to the standard error; raises HostCallError past the limit."""
        with self._lock:
            self._said += 0 if text in self._complaints else len(text)
            if self._said > COMPLAINTS_LIMIT:
                raise HostCallError(f"printf: more than {COMPLAINTS_LIMIT:,} characters to stderr")
            self._complaints[text] = self._complaints.get(text, 0) + 1

    def taken_complaints(self) -> dict[str, int]:
        """What went to the standard error and how often, which is not written any more."""
        with self._lock:
            said, self._complaints = self._complaints, {}
            return said

    def flush(self) -> None:
        """Write out what is held."""
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
    """Write a text; what the stream's encoding lacks is escaped."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
