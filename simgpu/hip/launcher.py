"""Starts a program with this project's HIP library instead of AMD's, and a server for each of its processes that calls HIP."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from simgpu.hip import library
from simgpu.hip.options import Compile, Options

BACKLOG = 64
SIGNAL_OF_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG, <sys/prctl.h>


@dataclass
class ProgramOutcome:
    """Result of a program that ran."""

    status: int  # its exit status, as shells report it
    processes: list[dict[str, Any]] = field(default_factory=list)  # the records of its processes that called HIP

    @property
    def wrong(self) -> bool:
        """True if some process has an error."""
        return any(process["wrong"] for process in self.processes)


def environment(folder: Path, socket_path: str, trace_calls: bool = False) -> dict[str, str]:
    """Returns the environment of a program that loads the library from the folder and connects to the socket."""
    before = os.environ.get("LD_LIBRARY_PATH")
    path = f"{folder}:{before}" if before else str(folder)
    traced = {library.TRACE: "1"} if trace_calls else {}
    return {**os.environ, "LD_LIBRARY_PATH": path, library.SOCKET: socket_path, **traced}


def run(command: Sequence[str], options: Options, compile: Compile, output: IO[bytes] | None = None) -> ProgramOutcome:
    """Runs a program to its end. Raises OSError if it cannot be started, ToolchainError if there is no compiler.

    output: a file for its standard output, with its standard error dropped; None: both are this process's
    """
    folder = library.folder()
    with tempfile.TemporaryDirectory(prefix="simgpu-hip-") as scratch, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(scratch, "server")
        listener.bind(path)
        listener.listen(BACKLOG)
        dropped = subprocess.DEVNULL if output is not None else None
        program = subprocess.Popen(command, env=environment(folder, path, options.trace_calls), stdout=output, stderr=dropped)
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda *unused: program.terminate())
        try:
            return _attend(program, listener, options, compile)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass
class _ServerProcess:
    """A server's process."""

    process: int
    pipe: int
    data: bytearray = field(default_factory=bytearray)  # the part of its record that it has written so far


def _attend(program: subprocess.Popen[bytes], listener: socket.socket, options: Options, compile: Compile) -> ProgramOutcome:
    """Serves until the program and all servers have ended."""
    from simgpu.hip import server  # noqa: F401  while the program starts; every server is a copy of this process

    outcome = ProgramOutcome(0)
    running = True
    with selectors.DefaultSelector() as selector:
        ended = os.pidfd_open(program.pid)
        selector.register(ended, selectors.EVENT_READ, "program")
        selector.register(listener, selectors.EVENT_READ, "listener")
        servers = 0
        while running or servers:
            for key, _ in selector.select():
                if key.data == "program":
                    selector.unregister(ended)
                    os.close(ended)
                    code = program.wait()
                    outcome.status = 128 - code if code < 0 else code
                    running = False
                elif key.data == "listener":
                    peer, _ = listener.accept()
                    served = _start_server(peer, listener, options, compile)
                    selector.register(served.pipe, selectors.EVENT_READ, served)
                    servers += 1
                elif not _read(key.data):
                    selector.unregister(key.data.pipe)
                    os.close(key.data.pipe)
                    os.waitpid(key.data.process, 0)
                    servers -= 1
                    if key.data.data:
                        outcome.processes.append(json.loads(key.data.data))
    return outcome


def _read(served: _ServerProcess) -> bool:
    got = os.read(served.pipe, 1 << 16)
    served.data += got
    return bool(got)


def _start_server(peer: socket.socket, listener: socket.socket, options: Options, compile: Compile) -> _ServerProcess:
    """Forks a server for one library, which writes its record into a pipe. This process has no other threads."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(writing)
        peer.close()
        return _ServerProcess(child, reading)
    status = 1
    try:
        # A launcher that is killed takes its servers along; the program then finds that its GPU is gone.
        ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
        os.close(reading)
        listener.close()
        status = serve_into(peer, writing, options, compile)
    finally:
        os._exit(status)


def serve_into(peer: socket.socket, writing: int, options: Options, compile: Compile) -> int:
    """Serves one library, then writes the record as JSON; returns the exit status of a server's process."""
    from simgpu.hip import server

    try:
        record = server.serve(peer, options, compile)
    except server.ProgramEnded:
        return 0  # the program ended before its greeting
    except Exception as error:
        server.tell(f"internal error of the server, {type(error).__name__}: {error}; please report it")
        traceback.print_exc()
        return 1
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps(record.document()).encode())
    return 0
