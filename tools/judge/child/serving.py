"""Answers requests of the judge from a child process, within its limits."""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping

from simgpu.tools.judge.messages import ArrayMessage, ProtocolError, receive, send

Answer = Callable[[ArrayMessage], ArrayMessage]
MOST_FILE = 4 << 30  # bytes of a file that the process writes


def limit(memory: int) -> None:
    """Limits this process's memory and files; it leaves no core dump."""
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, MOST_FILE), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def serve(answers: Mapping[str, Answer], requests: int, results: int) -> None:
    """Answers requests by name until the judge ends. An exception of an answer is sent, and the next request is awaited."""
    while True:
        try:
            message = receive(requests)
        except ProtocolError:
            return
        try:
            answer = answers[message.document["request"]](message)
        except BaseException as error:  # also SystemExit of a candidate that gives up
            text = str(error).strip().splitlines() or [""]
            answer = ArrayMessage({"error": f"{type(error).__name__}: {text[0]}", "trace": traceback.format_exc()[-4000:]})
        send(results, answer)


def descriptors() -> tuple[int, int, int, list[str]]:
    """Returns the command line's pipes, memory limit and other arguments, and forgets them: children inherit no pipe."""
    requests, results, memory = map(int, sys.argv[1:4])
    rest = sys.argv[4:]
    del sys.argv[1:]
    for descriptor in (requests, results):
        os.set_inheritable(descriptor, False)
    return requests, results, memory, rest
