"""Page of a verb's launches, written after the last launch, even if one failed."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from simgpu.tools.page.launched import launches_document
from simgpu.tools.page.page import Page, comparison_document, read_document
from simgpu.tools.page.watching import Watching
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.launching import Watch
from simgpu.tools.shared.outputs import claim


class LaunchPage:
    """Keeps the launches given `watch` inside its `with` block, then writes the file of --html, even if a kernel failed."""

    def __init__(self, options: Namespace, watch: Watch | None) -> None:
        if options.device != "sim":
            raise UsageError("--html shows a simulated launch: leave --device hip out")
        claim([options.html], options.force)
        if options.against:
            read_document(options.against)  # reports errors of the file before any work
        self._options, self._watching = options, Watching()
        self.launches = self._watching.launches
        self.watch = watch or Watch(check=False)
        self.watch.launch = self._watching.launch
        # A verb sets these.
        self.title = ""  # of the window
        self.verdict = ""  # a line on the result
        self.origins: Mapping[str, str] = {}  # Python lines of emitted code
        self.folders: Sequence[Path] = ()  # may hold sources
        self.widths: Mapping[str, int] = {}  # bytes of a row of arguments
        self.parts: dict[str, Any] = {}  # further parts of the document

    def __enter__(self) -> LaunchPage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._watching.launches or (kind is not None and not issubclass(kind, KernelFailed)):
            return
        for one in self._watching.launches:
            one.origins, one.widths = self.origins, self.widths
        document = {**launches_document(self._watching.launches, self.folders), **self.parts, "verdict": self.verdict}
        if self._options.against:
            document["against"] = comparison_document(document, self._options.against)
        command = shlex.join(["simgpu", *getattr(self._options, "words", [])])
        said = (note for one in self.launches for note in (one.uncounted, *(one.run.notes if one.run else ())) if note)
        Page(self.title, document, command, list(dict.fromkeys(said))).save(self._options.html, self._options.force)
