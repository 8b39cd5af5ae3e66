"""`simgpu dap`: the debugger for editors, over standard input and output or a port (Debug Adapter Protocol)."""

from __future__ import annotations

import contextlib
import socket
import sys
from argparse import ArgumentParser, Namespace

from simgpu.tools.shared.errors import UsageError


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    text = "listen on 127.0.0.1 for one client (default: standard input and output)"
    parser.add_argument("--port", type=int, metavar="P", help=text)


def run(options: Namespace) -> int:
    """Serves one client."""
    from simgpu.tools.debug.adapter import Adapter
    from simgpu.tools.debug.messages import Channel

    if options.port is None:
        sink = sys.stdout.buffer
        with contextlib.redirect_stdout(sys.stderr):  # what a kernel prints is no message
            Adapter(Channel(sys.stdin.buffer, sink)).serve()
        return 0
    if not 0 <= options.port < 65536:
        raise UsageError(f"--port {options.port}: give 1 to 65535, or 0 for any")
    with socket.create_server(("127.0.0.1", options.port)) as server:
        print(f"listening on 127.0.0.1:{server.getsockname()[1]}", file=sys.stderr, flush=True)
        connection, _ = server.accept()
        with connection, connection.makefile("rwb") as stream:
            Adapter(Channel(stream, stream)).serve()  # type: ignore[arg-type]
    return 0
