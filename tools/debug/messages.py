"""Messages of the Debug Adapter Protocol, read from and written to a stream, each after a header with its length."""

from __future__ import annotations

import json
import threading
from typing import Any, BinaryIO

from simgpu.hardware.errors import LaunchError

LARGEST = 1 << 26  # bytes of a message
LONGEST = 1 << 10  # bytes of a header line


class Channel:
    """A client's connection, in both directions."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._lock = threading.Lock()
        self._sent = 0

    def read(self) -> dict[str, Any] | None:
        """Reads the next message; None at the end. Raises LaunchError for a malformed one.

        A header line other than the protocol's two ends the session: a web page can have a browser send a POST to a local port.
        """
        length = -1
        while line := self._source.readline(LONGEST):
            if not line.strip():
                break
            name, _, value = line.partition(b":")
            match name.strip().lower():
                case b"content-length" if value.strip().isdigit():
                    length = int(value)
                case b"content-type":
                    pass
                case _:
                    raise LaunchError("a header line that is neither Content-Length nor Content-Type: this is no debugger's client")
        else:
            return None
        if not 0 <= length <= LARGEST:
            raise LaunchError(f"a message without its Content-Length, or of more than {LARGEST:,} bytes")
        try:
            message = json.loads(self._source.read(length))
        except (ValueError, RecursionError) as error:
            raise LaunchError(f"a message that is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise LaunchError("a message that is no object")
        return message

    def send(self, kind: str, **fields: Any) -> None:
        """Sends one message, numbered."""
        with self._lock:
            self._sent += 1
            body = json.dumps({"seq": self._sent, "type": kind, **fields}).encode()
            self._sink.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            self._sink.flush()

    def event(self, name: str, **body: Any) -> None:
        """Sends an event."""
        self.send("event", event=name, body=body)
