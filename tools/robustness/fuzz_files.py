"""Damaged files and messages that users pass to simgpu: captures, pages, lists, programs, messages of a debugger's client.

Captures and rankings go through the command, whose exit status and message are checked; the others through their reader.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simgpu.engine.suppressions import read as read_suppressions
from simgpu.hardware.errors import SimError
from simgpu.hip.program import inspect
from simgpu.hip.sites import BinaryFile
from simgpu.tools import cli
from simgpu.tools.cases.sweep import SweepRows, shapes
from simgpu.tools.debug.adapter import Adapter
from simgpu.tools.debug.messages import Channel
from simgpu.tools.page.page import Page, comparison_document
from simgpu.tools.robustness import hostile

MEMORY = 0x7F0000200000  # address of a capture's region
DEEP = 100_000  # nested brackets: more than a recursive parser can read
REFUSALS = (0, 1, 2)  # statuses of the command
COLUMNS = ("executions", "bytes", "distinct", "idle", "lds_lost", "stall")
SUPPRESSION = "# known\n{\n   loads of a block\n   simgpu:race\n   fun:_layer_norm_*\n   src:layer_norm.py:*\n}\n"
LISTS = {
    "suppressions": SUPPRESSION,
    "shapes": "-m 1000 -n 777 -k 333  # odd\n--rows 3 '-n' 5\n",
    "rows": '{"case": "[1]", "row": {"status": "pass"}}\n' * 3,
    "rankings": "128x256x64x1: [[64, 64, 32, 1]]\n64x64x64x1,0,a,32,32,16,1\n",
}
REQUESTS = (
    "initialize", "launch", "setBreakpoints", "setFunctionBreakpoints", "setInstructionBreakpoints", "setDataBreakpoints",
    "dataBreakpointInfo", "setExceptionBreakpoints", "configurationDone", "threads", "stackTrace", "scopes", "variables",
    "evaluate", "readMemory", "disassemble", "source", "continue", "next", "stepBack", "pause", "terminate", "disconnect", "serve",
    "",
)  # fmt: skip


def capture(rng: random.Random, good: bytes) -> None:
    """Replays a capture of the fuzzer's kernel by `simgpu exec`, after damage to one or two of its files."""
    documents: dict[str, Any] = {
        "dispatch.json": {"mangled_name": "fuzz.kd", "isa_name": "amdgcn-amd-amdhsa--gfx90a:xnack-", "grid": [64, 1, 1],
                          "block": [64, 1, 1], "group_segment_size": 4096},
        "memory_regions.json": {"regions": [{"base": MEMORY, "size": 4096, "is_pool": True}]},
        "module_variables.json": {"variables": [
            {"name": rng.choice(("fuzz", *9 * ["other"])), "size": 4, "blob": "memory/variable.bin"}
        ]},
    }  # fmt: skip
    binaries = {
        "kernel.hsaco": good, "kernarg.bin": struct.pack("<QifiH", MEMORY, 3, 1.5, 1, 64) + bytes(42),
        f"memory/region_{MEMORY:x}.bin": bytes(4096), "memory/variable.bin": bytes(4),
    }  # fmt: skip
    damaged = set(rng.sample(sorted(documents | binaries), rng.choice((1, 1, 2))))
    with tempfile.TemporaryDirectory() as place:
        Path(place, "memory").mkdir()
        for name, document in documents.items():
            Path(place, name).write_bytes(_document(rng, document) if name in damaged else json.dumps(document).encode())
        for name, content in binaries.items():
            Path(place, name).write_bytes(hostile.scar(rng, content) if name in damaged else content)
        if rng.random() < 0.1:
            Path(place, rng.choice(sorted(binaries))).unlink()
        _command("exec", place, "--max-instructions", "20000")


def page(rng: random.Random, good: bytes) -> None:
    """Compares a document with a page, as `--against` does, after damage to the page's document or bytes."""
    columns: dict[str, Any] = {"text": ["s_nop 0", "s_endpgm"], **{name: [1, 2] for name in COLUMNS}}
    kernel = {"name": "k", "code": {"columns": columns}, "counters": {"mfma_flops": 3}, "instructions": 2}
    document = {"kernels": [kernel]}
    made = Page("k", _mutate_document(rng, document) if rng.random() < 0.7 else document, "simgpu exec k.s").html()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "page.html")
        head, script, rest = made.partition("<body>")
        file.write_bytes(hostile.scar(rng, made.encode()) if rng.random() < 0.3 else (head + script + rest).encode())
        json.dumps(comparison_document(document, str(file)))


def text(rng: random.Random, good: bytes) -> None:
    """Reads one of the lists that options name: suppressions, shapes, finished rows, rankings."""
    kind = rng.choice(sorted(LISTS))
    lines = LISTS[kind].splitlines(keepends=True) * rng.choice((1, 1, 1, 20))
    for _ in range(rng.choice((0, 1, 3))):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice((
            lines[at][::-1], lines[at] * 2, "[" * DEEP + "\n", "{\n", "}\n", "'\n", "9" * 5000 + "\n", "0x0x0x0: [[0, 0, 0,\n",
            *(each + "\n" for each in hostile.TEXTS),
        ))  # fmt: skip
    data = "".join(lines).encode()
    data = hostile.scar(rng, data) if rng.random() < 0.5 else data
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "table.csv.cases")
        file.write_bytes(data)
        readers: dict[str, Callable[[], object]] = {
            "suppressions": lambda: read_suppressions(file), "shapes": lambda: shapes(str(file)),
            "rows": lambda: SweepRows(str(file.with_suffix(""))),
            "rankings": lambda: _command("baselines", "--origami", str(file)),
        }  # fmt: skip
        readers[kind]()


def program(rng: random.Random, good: bytes) -> None:
    """Inspects a damaged program of the host as `simgpu hip` does, and looks its addresses up in source files."""
    made = bytearray(hostile.GENERATORS["debug"](rng, good, "gfx90a"))
    struct.pack_into("<H", made, 18, rng.choice((62, 62, 62, 183, 224)))
    if rng.random() < 0.5:  # a header of the dynamic section anywhere
        struct.pack_into("<I", made, 64 + 56 * rng.randrange(4), 2)
    data = hostile.scar(rng, bytes(made))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "a.out")
        file.write_bytes(data[: rng.choice((len(data), len(data), rng.randrange(80)))])
        binary = BinaryFile(str(file))
        for offset in (0, 4096, rng.choice(hostile.NUMBERS)):
            binary.lines(offset)
        inspect(str(file))


def messages(rng: random.Random, good: bytes) -> None:
    """Runs a session of damaged messages, half of the sessions on a running kernel. The adapter must end with its input, and its
    answers must be readable."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "k.co")
        file.write_bytes(good)
        drawn = rng.choices(REQUESTS, k=rng.randrange(1, 12))
        requests: list[str | dict[str, Any]] = [_request(rng, str(file), each) for each in drawn]
        if rng.random() < 0.5:
            begun = [_request(rng, str(file), command) for command in ("initialize", "launch", "configurationDone")]
            requests = [*map(json.dumps, begun), *requests]
        stream = io.BytesIO()
        for request in requests:
            body = request.encode() if isinstance(request, str) else _document(rng, request)
            said = len(body) if rng.random() < 0.98 else rng.choice(hostile.NUMBERS)
            stream.write(b"Content-Length: %d\r\n\r\n%s" % (said, body))
        data = hostile.scar(rng, stream.getvalue()) if rng.random() < 0.1 else stream.getvalue()
        sink = io.BytesIO()
        Adapter(Channel(io.BytesIO(data), sink)).serve()
    answers = Channel(io.BytesIO(sink.getvalue()), io.BytesIO())
    while answers.read() is not None:
        pass


def _request(rng: random.Random, program: str, command: str) -> dict[str, Any]:
    """Returns a request with the arguments of every kind of request."""
    words = ["--grid", "1", "--arg", "zeros:u32:1024", "--arg", "i32:1", "--arg", "f32:1", "--max-instructions", "20000"]
    arguments = {
        "program": program if command == "launch" else "", "args": words, "threadId": 1, "frameId": 1, "variablesReference": 257,
        "breakpoints": [{"line": 3, "name": "k", "instructionReference": "0x0", "dataId": "x"}], "name": "x", "offset": 0,
        "expression": rng.choice(("v0", "s[0:1]", "info waves", "x/4 v0", "list", "next")), "memoryReference": "0x1000",
        "count": 16,
        "instructionCount": 4, "instructionOffset": -2, "filters": ["nan"], "context": rng.choice(("repl", "hover")),
        "granularity": "instruction", "source": {"path": program},
    }  # fmt: skip
    return {"seq": 1, "type": "request", "command": command, "arguments": arguments}


def _document(rng: random.Random, document: dict[str, Any]) -> bytes:
    """Returns JSON of the document with other values, with damaged bytes, or with more brackets than can be read."""
    if rng.random() < 0.05:
        return rng.choice((b"[", b'{"a":')) * DEEP
    made = json.dumps(_mutate_document(rng, document) if rng.random() < 0.8 else document, default=str).encode()
    return hostile.scar(rng, made) if rng.random() < 0.2 else made


def _mutate_document(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """Replaces some of the document's values and drops some of its keys."""
    share, missing = rng.choice((0.02, 0.1, 0.3)), rng.choice((0, 0, 0.2))
    return {key: hostile.mutate(rng, value, share) for key, value in document.items() if rng.random() >= missing}


def _command(*words: str) -> None:
    """Runs the command. Raises SimError if it refuses, RuntimeError if it ends in any other way than it promises."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(list(words))
    said = err.getvalue()
    if status not in REFUSALS or "internal error" in said or "Traceback" in said:
        raise RuntimeError(f"status {status}: {said.strip()}")
    if not all(character.isprintable() or character == "\n" for character in out.getvalue() + said):
        raise RuntimeError(f"a control character is printed: {said!r}")
    if status:
        raise SimError(said.strip())


FILES: dict[str, Callable[[random.Random, bytes], None]] = {
    "captures": capture, "pages": page, "texts": text, "programs": program, "messages": messages,
}  # fmt: skip
