"""`simgpu dap`: the debugger for editors, over standard input and output or a Unix socket (Debug Adapter Protocol)."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simgpu.tools.shared.errors import UsageError


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    text = "listen on a Unix socket that only this user can open, for one client (default: standard input and output)"
    parser.add_argument("--socket", metavar="PATH", help=text)
    text = "write the extension for VS Code, which runs this Python, below FOLDER (default: your editors' own), and end"
    parser.add_argument("--install-vscode", nargs="?", const="", metavar="FOLDER", help=text)


def run(options: Namespace) -> int:
    """Serves one client, or writes the extension for VS Code."""
    if options.install_vscode is not None:
        from simgpu.tools.debug.extension import folders, install

        for where in [Path(options.install_vscode)] if options.install_vscode else folders():
            print(f"wrote {install(where)}; reload the editor's window")
        return 0
    from simgpu.tools.debug.adapter import Adapter
    from simgpu.tools.debug.messages import Channel

    if options.socket is None:
        sink = sys.stdout.buffer
        with contextlib.redirect_stdout(sys.stderr):  # a kernel's output must not enter the protocol stream
            Adapter(Channel(sys.stdin.buffer, sink)).serve()
        return 0
    gone = contextlib.suppress(ConnectionError)  # a client need not wait for the answer to its last request
    with gone, _accept(options.socket) as connection, connection.makefile("rwb") as stream:
        Adapter(Channel(stream, stream)).serve()  # type: ignore[arg-type]
    return 0


def _accept(path: str) -> socket.socket:
    """Accepts the first client of a new Unix socket at `path`, then removes the path. Raises UsageError if it exists."""
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("--socket: this system's Python has no Unix sockets; use standard input and output")
    if os.path.lexists(path):
        raise UsageError(f"--socket {path}: this file exists; remove it, or give another name")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        before = os.umask(0o177)  # only this user; a TCP port would be open to all users, and to web pages
        try:
            server.bind(path)
        except OSError as error:
            raise UsageError(f"--socket {path}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        try:
            server.listen(1)
            print(f"listening on {path}", file=sys.stderr, flush=True)
            return server.accept()[0]
        finally:
            os.unlink(path)
