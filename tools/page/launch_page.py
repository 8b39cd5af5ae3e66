"""The page of what a verb launches, written when the launches are over, whether they went well or not."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.page import Page, compared, read_document
from simgpu.tools.page.watching import Watching
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.launching import Watch
from simgpu.tools.shared.outputs import claim


class LaunchPage:
    """While it is entered, launches given `watch` are kept; then the file of --html is written, also where a kernel failed.

    title, origins, folders, widths, verdict, parts: what a verb knows besides, set by it: the window's title, the Python lines of
    emitted code, where sources lie, bytes of a row of arguments, a line on the result, and further parts of the document.
    """

    def __init__(self, options: Namespace, watch: Watch | None) -> None:
        if options.device != "sim":
            raise UsageError("--html shows a simulated launch: leave --device hip out")
        claim([options.html], options.force)
        if options.against:
            read_document(options.against)  # what is wrong with it is said before any work
        self._options, self._watching = options, Watching()
        self.launches = self._watching.launches
        self.watch = watch or Watch(check=False)
        self.watch.launch = self._watching.launch
        self.title = ""
        self.verdict = ""
        self.origins: Mapping[str, str] = {}
        self.folders: Sequence[Path] = ()
        self.widths: Mapping[str, int] = {}
        self.parts: dict[str, Any] = {}

    def __enter__(self) -> LaunchPage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._watching.launches or (kind is not None and not issubclass(kind, KernelFailed)):
            return
        for one in self._watching.launches:
            one.origins, one.widths = self.origins, self.widths
        document = {**launches_document(self._watching.launches, self.folders), **self.parts, "verdict": self.verdict}
        if self._options.against:
            document["against"] = compared(document, self._options.against)
        command = shlex.join(["simgpu", *getattr(self._options, "words", [])])
        said = (note for one in self.launches for note in (one.uncounted, *(one.run.notes if one.run else ())) if note)
        Page(self.title, document, command, list(dict.fromkeys(said))).save(self._options.html, self._options.force)
