"""Adapter for editors, driven as a client drives it: each message over a socket has the fields that the protocol requires."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.errors import LaunchError
from simgpu.tools.cli import main
from simgpu.tools.debug.adapter import Adapter
from simgpu.tools.debug.messages import Channel

# Required fields of bodies, by the protocol's specification (microsoft.github.io/debug-adapter-protocol); lists hold objects.
BODIES: dict[str, dict[str, Any]] = {
    "setBreakpoints": {"breakpoints": [{"verified": bool}]}, "setFunctionBreakpoints": {"breakpoints": [{"verified": bool}]},
    "setInstructionBreakpoints": {"breakpoints": [{"verified": bool}]}, "setDataBreakpoints": {"breakpoints": [{"verified": bool}]},
    "dataBreakpointInfo": {"dataId": str, "description": str}, "threads": {"threads": [{"id": int, "name": str}]},
    "stackTrace": {"stackFrames": [{"id": int, "name": str, "line": int, "column": int}]},
    "scopes": {"scopes": [{"name": str, "variablesReference": int, "expensive": bool}]},
    "variables": {"variables": [{"name": str, "value": str, "variablesReference": int}]},
    "evaluate": {"result": str, "variablesReference": int}, "readMemory": {"address": str},
    "setVariable": {"value": str}, "setExpression": {"value": str}, "completions": {"targets": [{"label": str}]},
    "exceptionInfo": {"exceptionId": str, "breakMode": str},
    "disassemble": {"instructions": [{"address": str, "instruction": str}]}, "source": {"content": str},
    "stopped": {"reason": str}, "output": {"output": str},
}  # fmt: skip


def conforms(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(name in value and conforms(value[name], kind) for name, kind in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and all(conforms(one, wanted[0]) for one in value)
    return type(value) is wanted


class Client:
    """Sends requests, and keeps the answers."""

    def __init__(self, stream: Any) -> None:
        self._channel = Channel(stream, stream)
        self.messages: list[dict[str, Any]] = []
        self._seq = 0

    def message(self) -> dict[str, Any]:
        message = self._channel.read()
        assert message is not None
        assert isinstance(message["seq"], int) and message["type"] in ("response", "event")
        name = message.get("command") or message.get("event")
        if message["type"] == "response":
            assert {"request_seq", "success", "command"} <= message.keys()
        if message.get("success", True):
            assert conforms(message.get("body", {}), BODIES.get(str(name), {})), message
        self.messages.append(message)
        return message

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Returns the response and keeps the events before it."""
        self._seq += 1
        self._channel.send("request", command=command, arguments=arguments)
        while (message := self.message())["type"] != "response":
            pass
        assert message["command"] == command
        return message

    def asked(self, command: str, **arguments: Any) -> Any:
        response = self.request(command, **arguments)
        assert response["success"], response
        return response["body"]

    def stopped(self) -> dict[str, Any]:
        """Returns the next stop."""
        while (message := self.message()).get("event") != "stopped":
            pass
        return message["body"]

    def run(self, command: str, **arguments: Any) -> dict[str, Any]:
        self.asked(command, **arguments)
        return self.stopped()


@pytest.fixture
def client() -> Iterator[Client]:
    one, other = socket.socketpair()
    one.settimeout(300)  # handlers may have to be compiled first, on a busy machine
    with one, other, one.makefile("rwb") as mine, other.makefile("rwb") as its:
        server = threading.Thread(target=Adapter(Channel(its, its)).serve, daemon=True)  # type: ignore[arg-type]
        server.start()
        made = Client(mine)
        yield made
        made.request("disconnect")
        server.join(20)
        assert not server.is_alive()
        if kept := os.environ.get("DAP_MESSAGES"):  # for validation against the protocol's own schema
            Path(kept).write_text(json.dumps(made.messages))


GEMM = ["-m", "20", "-n", "18", "-k", "20", "--threads", "1"]


def test_a_session_from_launch_to_disconnect(client: Client) -> None:
    assert client.asked("initialize", adapterID="simgpu")["supportsStepBack"]
    client.asked("launch", program="gemm", args=GEMM)
    assert client.message()["event"] == "initialized"
    found = client.asked("setFunctionBreakpoints", breakpoints=[{"name": "nowhere"}, {"name": "0x8"}])["breakpoints"]
    assert [each["verified"] for each in found] == [False, True] and "no such label" in found[0]["message"]
    client.asked("setExceptionBreakpoints", filters=[])
    client.asked("configurationDone")
    first = client.stopped()
    assert (first["threadId"], first["reason"]) == (1, "entry")
    assert len(client.asked("threads")["threads"]) == 4
    stop = client.run("continue", threadId=1)
    assert stop["reason"] == "breakpoint" and len(stop["hitBreakpointIds"]) == 1
    (frame,) = client.asked("stackTrace", threadId=1)["stackFrames"]
    assert frame["name"].startswith("gemm_f32") and frame["line"] > 0 and frame["source"]["sourceReference"] == 1
    assert "s_load_dwordx16" in client.asked("source", sourceReference=1)["content"]
    line = frame["line"]
    assert client.run("next", threadId=1)["reason"] == "step"
    after = client.asked("stackTrace", threadId=1)["stackFrames"][0]
    assert after["line"] > line
    assert client.run("stepBack", threadId=1)["reason"] == "step"
    assert client.asked("stackTrace", threadId=1)["stackFrames"][0] == frame
    client.asked("setFunctionBreakpoints", breakpoints=[])
    lines = [{"line": line + 9}, {"line": 1}]
    found = client.asked("setBreakpoints", source={"name": "kernel.s"}, breakpoints=lines)["breakpoints"]
    assert [each["verified"] for each in found] == [True, True] and found[1]["line"] > 1, "a line without code is a later one"
    assert client.run("continue", threadId=1)["reason"] == "breakpoint"
    client.asked("setBreakpoints", source={"name": "kernel.s"}, breakpoints=[])


def test_data_memory_and_variables(client: Client) -> None:
    client.asked("initialize", adapterID="simgpu")
    client.asked("launch", program="gemm", args=GEMM)
    assert client.asked("dataBreakpointInfo", name="C[3,5]")["dataId"] == "C[3,5]"
    client.asked("setDataBreakpoints", breakpoints=[{"dataId": "C[3,5]"}])
    client.asked("configurationDone")
    client.stopped()
    assert client.run("continue", threadId=1)["reason"] == "data breakpoint"
    value = float(client.asked("evaluate", expression="C[3,5]")["result"])
    names = {}
    for scope in client.asked("scopes", frameId=1)["scopes"]:
        names[scope["name"]] = client.asked("variables", variablesReference=scope["variablesReference"])["variables"]
    (c,) = [each for each in names["Arrays"] if each["name"] == "C"]
    read = client.asked("readMemory", memoryReference=c["memoryReference"], count=4, offset=4 * (3 * 18 + 5))
    assert np.frombuffer(base64.b64decode(read["data"]), np.float32)[0] == np.float32(value)
    lanes = client.asked("variables", variablesReference=names["VGPR"][0]["variablesReference"])["variables"]
    bits = int(lanes[5]["value"].split()[0], 16)
    assert len(lanes) == 64 and client.asked("evaluate", expression="v0[5] + 1", frameId=1)["result"].endswith(f"= {bits + 1}")
    assert "ends in elements" in client.asked("evaluate", expression="why C[3,5]", context="repl")["result"]
    frame = client.asked("stackTrace", threadId=1)["stackFrames"][0]
    here = frame["instructionPointerReference"]
    rows = client.asked("disassemble", memoryReference=here, instructionOffset=-2, instructionCount=5)["instructions"]
    assert len(rows) == 5 and rows[2]["address"] == here
    assert client.asked("setInstructionBreakpoints", breakpoints=[{"instructionReference": here}])["breakpoints"][0]["verified"]
    client.asked("setDataBreakpoints", breakpoints=[])
    client.asked("setInstructionBreakpoints", breakpoints=[])
    assert client.run("reverseContinue", threadId=1)["reason"] == "entry"
    assert client.run("stepOut", threadId=2)["threadId"] == 2
    filters = ["nan", "finding race", "barrier", "finding missing-wait"]
    answers = client.asked("setExceptionBreakpoints", filters=filters)["breakpoints"]
    assert len(answers) == 4 and all(each["verified"] for each in answers) and answers[1]["id"] == answers[3]["id"]
    assert client.run("reverseContinue", threadId=1)["reason"] == "exception"  # before a barrier


def test_values_are_set_and_names_completed(client: Client) -> None:
    client.asked("initialize", adapterID="simgpu")
    client.asked("launch", program="gemm", args=GEMM)
    client.asked("setExceptionBreakpoints", filters=["barrier"])
    client.asked("configurationDone")
    client.stopped()
    scopes = {each["name"]: each["variablesReference"] for each in client.asked("scopes", frameId=2)["scopes"]}
    assert client.asked("setVariable", variablesReference=scopes["SGPR"], name="s9", value="0x2a")["value"] == "0x0000002a"
    assert client.asked("evaluate", expression="s9", frameId=2)["result"].endswith("42") or "2a" in str(client.messages[-1])
    registers = client.asked("variables", variablesReference=scopes["VGPR"])["variables"]
    lanes = next(each for each in registers if each["name"] == "v3")["variablesReference"]
    assert client.asked("setVariable", variablesReference=lanes, name="v3[5]", value="1.5")["value"].endswith("1.5")
    assert "2.5" in client.asked("setExpression", expression="C[3,5]", value="2.5", frameId=1)["value"]
    assert not client.request("setVariable", variablesReference=scopes["SGPR"], name="s9", value="many")["success"]
    found = client.asked("completions", text="disp", column=5)["targets"]
    assert found == [{"label": "display", "start": 0, "length": 4}]
    assert {"label": "exec", "start": 2, "length": 2} in client.asked("completions", text="p ex", column=5)["targets"]
    assert client.run("continue", threadId=1)["reason"] == "exception"
    told = client.asked("exceptionInfo", threadId=1)
    assert told["exceptionId"] == "barrier" and "barrier" in told["description"]


def test_arrays_and_structs_have_children(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "k.hip"
    file.write_text("""struct P { int a; float b[3]; };
__device__ int scale[2] = {5, 6};
__global__ void k(float *y) {
    __shared__ P t[64];
    t[threadIdx.x] = {(int)threadIdx.x, {1, 2, 3}};
    __syncthreads();
    y[threadIdx.x] = t[63 - threadIdx.x].a * t[threadIdx.x].b[1] * scale[threadIdx.x & 1];
}
""")
    client.asked("initialize", adapterID="simgpu")
    client.asked("launch", program=str(file), args="--target mi300x --grid 1 --block 64 --arg zeros:f32:64".split())
    client.asked("setBreakpoints", source={"path": str(file)}, breakpoints=[{"line": 7}])
    client.asked("configurationDone")
    client.stopped()
    client.run("continue", threadId=1)
    scopes = {each["name"]: each["variablesReference"] for each in client.asked("scopes", frameId=1)["scopes"]}

    def children(reference: int) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in client.asked("variables", variablesReference=reference)["variables"]}

    t = children(scopes["Locals"])["t"]
    element = children(t["variablesReference"])["[9]"]
    assert t["indexedVariables"] == 64 and element["value"] == "{a = 9, b = {1, 2, 3}}" and element["evaluateName"] == "t[9]"
    member = children(element["variablesReference"])["b"]
    assert client.asked("setVariable", variablesReference=member["variablesReference"], name="[1]", value="20")["value"] == "20"
    assert client.asked("evaluate", expression="t[9].b[1]", context="hover")["result"] == "20"
    assert children(scopes["Globals"])["scale"]["value"] == "{5, 6}"
    hover = client.asked("evaluate", expression="t[9].b", context="hover")
    assert list(children(hover["variablesReference"])) == ["[0]", "[1]", "[2]"]


def test_a_triton_script(client: Client, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    script = tmp_path / "double.py"
    script.write_text("""import sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def double(x, out, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at)
    tl.store(out + at, value * 2)

for times in range(1, 3):
    double[(1,)](np.arange(64, dtype=np.float32) * times, np.zeros(64, np.float32), B=64)
""")
    client.asked("initialize", adapterID="simgpu")
    assert "no launch double:3" in client.request("launch", program=str(script), launch="double:3")["message"]
    client.asked("launch", program=str(script), launch="double:2", variables=True)
    client.asked("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": 10}])
    client.asked("configurationDone")
    client.stopped()
    client.run("continue", threadId=1)
    frame = client.asked("stackTrace", threadId=1)["stackFrames"][0]
    assert frame["source"]["path"] == str(script) and frame["line"] == 10
    assert "[  0.   2.   4." in client.asked("evaluate", expression="print value", context="repl")["result"]


def test_the_extension_runs_this_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dap", "--install-vscode", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    made = json.loads((folder / "package.json").read_text())["contributes"]
    (debugger,) = made["debuggers"]
    assert (debugger["runtime"], debugger["runtimeArgs"]) == (sys.executable, ["-m", "simgpu", "dap"])
    assert {"cpp", "opencl", "python", "asm"} <= {each["language"] for each in made["breakpoints"]}
    assert str(folder) in capsys.readouterr().out
    for snippet in debugger["configurationSnippets"]:
        assert set(snippet["body"]) <= {"type", "request", "name", *debugger["configurationAttributes"]["launch"]["properties"]}


def test_what_cannot_be_done_is_an_answer(client: Client) -> None:
    for command, arguments in (
        ("threads", {}), ("continue", {"threadId": 1}), ("launch", {}), ("launch", {"program": "nothing.co"}), ("foo", {}),
        ("launch", {"program": "gemm", "args": ["-m", "x"]}),
    ):  # fmt: skip
        if command != "continue":
            answer = client.request(command, **arguments)
            assert not answer["success"] and "\n" not in answer["message"]
    client.asked("launch", program="gemm", args=GEMM)
    for command, arguments in (
        ("stackTrace", {"threadId": 99}), ("variables", {"variablesReference": 7}), ("evaluate", {"expression": "s4 +"}),
        ("scopes", {}),
        ("readMemory", {"memoryReference": "0x1", "count": 4}), ("readMemory", {"memoryReference": "x", "count": 4}),
    ):  # fmt: skip
        assert not client.request(command, **arguments)["success"]
    assert client.asked("threads")["threads"]


@pytest.mark.parametrize("request_", [
    b"POST /launch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}", b"x" * 5000 + b"\r\n\r\n", b"\r\n{}", b"{}\n",
], ids=["web page", "long line", "no length", "no header"])  # fmt: skip
def test_what_is_no_client_ends_the_session(request_: bytes, tmp_path: Path) -> None:
    """A web page may have the browser send a POST to a local port: the adapter does nothing that its body requests."""
    sink = io.BytesIO()
    with pytest.raises(LaunchError, match=r"header line|Content-Length"):
        Channel(io.BytesIO(request_), sink).read()
    adapter = Adapter(Channel(io.BytesIO(request_), sink))
    adapter.serve()
    sent = sink.getvalue()
    assert b"response" not in sent
    assert sent.count(b"Content-Length: ") == 1 and b"stderr" in sent


@pytest.mark.slow
def test_a_socket_is_its_users_alone_and_its_name_goes(tmp_path: Path) -> None:
    path = tmp_path / "dap"
    command = [sys.executable, "-m", "simgpu", "dap", "--socket", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None and server.stderr.readline() == f"listening on {path}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
            mine.settimeout(60)
            mine.connect(str(path))
            with mine.makefile("rwb") as stream:
                client = Client(stream)
                assert client.asked("initialize", adapterID="simgpu") and not path.exists()
                client._channel.send("request", command="disconnect", arguments={})  # and leaves without its answer
        assert (server.wait(60), server.stderr.read()) == (0, "")


def test_a_file_is_not_taken_for_a_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "none" / "dap", tmp_path / ("x" * 200)):
        assert main(["dap", "--socket", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"simgpu dap: --socket {path}: ") and said.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


class Gone(io.BytesIO):
    """A connection that its client reset."""

    def readline(self, *unused: Any) -> bytes:
        raise ConnectionResetError


def test_a_session_ends_with_its_client() -> None:
    """A session also ends if reading fails, or if a message nests deeper than JSON can be read."""
    Adapter(Channel(Gone(), io.BytesIO())).serve()
    deep, sink = b"[" * 100_000, io.BytesIO()
    Adapter(Channel(io.BytesIO(b"Content-Length: %d\r\n\r\n%s" % (len(deep), deep)), sink)).serve()
    assert b"no JSON" in sink.getvalue()


CALLS = """
__device__ __attribute__((noinline)) float twice(float x)
{
    return x + x;
}

extern "C" __global__ void k(float *out)
{
    out[threadIdx.x] = twice(threadIdx.x);
}
"""


def test_the_stack_has_the_callers_of_a_function(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "calls.hip"
    file.write_text(CALLS)
    client.asked("initialize", adapterID="simgpu")
    options = ["--target", "mi300x", "--grid", "1", "--arg", "zeros:f32:64", "--threads", "1"]
    client.asked("launch", program=str(file), args=options)
    assert client.message()["event"] == "initialized"
    client.asked("setBreakpoints", source={"path": str(file)}, breakpoints=[{"line": 4}])
    client.asked("configurationDone")
    client.stopped()
    client.run("continue", threadId=1)
    inner, outer = client.asked("stackTrace", threadId=1)["stackFrames"]
    assert inner["name"].startswith("twice+0x") and inner["line"] == 4
    assert (outer["name"], outer["line"], outer["source"]["path"]) == ("k", 9, str(file))
    assert client.asked("scopes", frameId=inner["id"])["scopes"] and not client.asked("scopes", frameId=outer["id"])["scopes"]
    assert client.asked("evaluate", expression="s33", frameId=outer["id"])["result"]
