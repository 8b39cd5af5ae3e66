"""Debug Adapter Protocol on the debugger: threads are the waves of the workgroup in focus, an editor's steps are the
debugger's.

`launch` takes {"program": FILE or OP, "args": [...], "group": "0", "step": KERNEL, "cwd": ...}; args are those of `simgpu
exec` or `simgpu run`, and step names one of an operator's kernels. For a Triton script, args are its own, and {"launch": "add:2",
"board": "mi300x", "variables": true} are as for `simgpu debug`.
"""

from __future__ import annotations

import base64
import os
import queue
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.findings import KINDS
from simgpu.hardware.errors import LaunchError, SimError
from simgpu.tools.cases.operator_options import names_operator
from simgpu.tools.cases.script import at_launch
from simgpu.tools.cases.sources import is_script
from simgpu.tools.cases.subject import Subject, subject
from simgpu.tools.debug import values, views
from simgpu.tools.debug.messages import Channel

if TYPE_CHECKING:
    from simgpu.debugger.breakpoints import Breakpoint
    from simgpu.debugger.debugger import Debugger, Stop
    from simgpu.debugger.objects import Object
    from simgpu.tools.debug.prompt import Prompt

CAPABILITIES = {
    "supportsConfigurationDoneRequest": True, "supportsConditionalBreakpoints": True, "supportsFunctionBreakpoints": True,
    "supportsInstructionBreakpoints": True, "supportsDataBreakpoints": True, "supportsStepBack": True,
    "supportsReadMemoryRequest": True,
    "supportsDisassembleRequest": True, "supportsSteppingGranularity": True, "supportsTerminateRequest": True,
    "supportsEvaluateForHovers": True, "supportsSetVariable": True, "supportsSetExpression": True,
    "supportsCompletionsRequest": True, "supportsExceptionInfoRequest": True,
    "exceptionBreakpointFilters": [
        {"filter": "nan", "label": "NaN", "description": "after an instruction that wrote one to an active lane", "default": False},
        {"filter": "barrier", "label": "Barriers", "description": "before each s_barrier", "default": False},
        {"filter": "finding", "label": "All findings", "description": "each error of checked mode", "default": False},
        *({"filter": f"finding {kind}", "label": f"Finding: {kind}", "description": "simgpu help findings", "default": False}
          for kind in KINDS),
    ],
}  # fmt: skip
SCOPES = ("Locals", "Globals", "Instruction", "VGPR", "AGPR", "SGPR", "State", "Arrays")
SCOPE_BITS, LANES_OF = 8, 1 << 20  # of variablesReference: wave << 8 | scope; + LANES_OF · (1 + register) for a register's lanes
FRAMES = 1 << 10  # frameId: level * FRAMES + wave + 1; level 0 is the innermost function
OBJECTS = 1 << 29  # variablesReference of the first object with parts that was sent at this stop
REASONS = {"breakpoint": "breakpoint", "watchpoint": "data breakpoint", "step": "step", "goto": "goto", "beginning": "entry",
           "interrupted": "pause", "fault": "exception", "ended": "pause"}  # fmt: skip
MOST_ROWS = 1 << 16  # instructions in an answer
ELEMENTS = 1 << 16  # parts of an object in an answer
SOURCE = 1  # sourceReference of the kernel's assembly if it is not a file
RUNNING = frozenset(("continue", "next", "stepIn", "stepOut", "reverseContinue", "stepBack"))


class Adapter:
    """A client's session. `serve` returns when it ends."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._subject: Subject | None = None
        self._held: Debugger | None = None
        self._path = ""  # of the program's source; "" for an operator
        self._kinds: dict[str, list[int]] = {}  # numbers of breakpoints, by the request that set them
        self._objects: list[tuple[int, str, Object]] = []  # with parts, sent at this stop: wave, expression, object
        self._ended = False

    # -- messages ------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answers requests until the client disconnects."""
        threading.Thread(target=self._read, daemon=True).start()
        self._answer_all()

    def _answer_all(self) -> None:
        """Answers requests until the session ends, then closes the debugger."""
        try:
            while not self._ended and (request := self._requests.get()) is not None:
                self._answer(request)
        finally:
            self._ended = True
            if self._held is not None:
                self._held.close()
                self._held = None

    def _read(self) -> None:
        """Queues messages for `serve`; a pause also interrupts the current run at once. When reading ends, `serve` ends."""
        try:
            while (message := self._channel.read()) is not None:
                if message.get("command") == "pause" and self._held is not None:
                    self._held.replay.interrupt()
                self._requests.put(message)
                if message.get("command") == "disconnect":
                    break
        except LaunchError as error:
            self._channel.event("output", category="stderr", output=f"{error}\n")
        except OSError:
            pass  # the client is gone
        finally:
            self._requests.put(None)

    def _answer(self, request: dict[str, Any]) -> None:
        command, arguments = str(request.get("command", "")), request.get("arguments") or {}
        head = {"request_seq": request.get("seq", 0), "command": command}
        action: Callable[[dict[str, Any]], dict[str, Any] | None] | None = getattr(self, f"on_{command}", None)
        try:
            if action is None:
                raise LaunchError(f"{command!r} is not a request that this adapter knows")
            if command in RUNNING:  # the answer first: the run may last
                self._debugger()
                body = {"allThreadsContinued": True} if command == "continue" else {}
                self._channel.send("response", **head, success=True, body=body)
                action(arguments)
                return
            if command == "launch" and is_script(str(arguments.get("program", ""))):
                self._launch_script(arguments, head)
                return
            body = action(arguments) or {}
        except Exception as error:  # a client's wrong argument, or a bug of ours: the session goes on
            said = " ".join((str(error) if isinstance(error, SimError) else f"{command}: {type(error).__name__}: {error}").split())
            if command in RUNNING:
                self._channel.event("output", category="stderr", output=f"{said}\n")
                self._channel.event("stopped", reason="pause", threadId=1, allThreadsStopped=True)
            else:
                self._channel.send("response", **head, success=False, message=said)
            return
        self._channel.send("response", **head, success=True, body=body)
        if command == "launch":
            self._channel.event("initialized")
        elif command == "configurationDone":
            self._send_stop(self._debugger().stop)
        elif command in ("terminate", "disconnect"):
            self._ended = command == "disconnect"
            self._channel.event("terminated")

    def _debugger(self) -> Debugger:
        if self._held is None:
            raise LaunchError("nothing is launched yet")
        return self._held

    def _send_stop(self, stop: Stop) -> None:
        self._objects.clear()
        if stop.kind == "ended":
            self._channel.event("output", category="console", output="the workgroup ended; stepping back is possible\n")
        elif stop.message:
            self._channel.event("output", category="console", output=f"{stop.message}\n")
        numbers = [each.number for each in stop.breakpoints]
        exceptional = set(numbers) & set(self._kinds.get("exceptions", []))
        reason = "exception" if exceptional else REASONS[stop.kind]
        self._channel.event(
            "stopped", reason=reason, threadId=stop.place.wave + 1, allThreadsStopped=True,
            description=stop.message or str(stop.place), text=stop.message, hitBreakpointIds=numbers,
        )  # fmt: skip

    # -- the session ---------------------------------------------------------------------------

    def on_initialize(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return CAPABILITIES

    def on_launch(self, arguments: dict[str, Any]) -> None:
        program = str(arguments.get("program", ""))
        if not program:
            raise LaunchError('launch: give {"program": FILE or OP, "args": [...]}')
        if arguments.get("cwd"):
            os.chdir(str(arguments["cwd"]))
        self._subject = subject("dap", program, [str(word) for word in arguments.get("args", [])], arguments.get("step"))
        self._path = "" if names_operator(program) else str(Path(program).resolve())
        self._held = self._subject.debugger(_group(arguments))

    def _launch_script(self, arguments: dict[str, Any], head: dict[str, Any]) -> None:
        """Runs a Triton script up to a launch, and the session in it."""

        def session(one: Subject) -> int:
            self._subject, self._path = one, str(Path(program).resolve())
            self._held = one.debugger(_group(arguments))
            self._channel.send("response", **head, success=True, body={})
            self._channel.event("initialized")
            self._answer_all()
            return 0

        program, words = str(arguments["program"]), [str(word) for word in arguments.get("args", [])]
        if arguments.get("cwd"):
            os.chdir(str(arguments["cwd"]))
        wanted, board = str(arguments.get("launch", "1")), str(arguments.get("board", "mi300x"))
        at_launch(program, words, wanted, board, session, bool(arguments.get("variables", False)))

    def on_configurationDone(self, arguments: dict[str, Any]) -> None:
        self._debugger()

    def on_disconnect(self, arguments: dict[str, Any]) -> None:
        """Ends the session."""

    def on_terminate(self, arguments: dict[str, Any]) -> None:
        """Ends the program; the client disconnects then."""

    def on_threads(self, arguments: dict[str, Any]) -> dict[str, Any]:
        held = self._debugger()
        return {"threads": [{"id": wave + 1, "name": str(held.wave_place(wave))} for wave in range(held.waves)]}

    # -- running -------------------------------------------------------------------------------

    def _wave(self, arguments: dict[str, Any]) -> int:
        return int(arguments.get("threadId", 1)) - 1

    def on_continue(self, arguments: dict[str, Any]) -> None:
        self._send_stop(self._debugger().go_on())

    def on_reverseContinue(self, arguments: dict[str, Any]) -> None:
        self._send_stop(self._debugger().reverse_go_on())

    def on_next(self, arguments: dict[str, Any]) -> None:
        held, wave = self._debugger(), self._wave(arguments)
        by_line = arguments.get("granularity") != "instruction" and held.code.line(held.record(wave))
        self._send_stop(held.next(wave) if by_line else held.step(1, wave))

    def on_stepIn(self, arguments: dict[str, Any]) -> None:
        self._send_stop(self._debugger().step(1, self._wave(arguments)))

    def on_stepOut(self, arguments: dict[str, Any]) -> None:
        self._send_stop(self._debugger().finish(self._wave(arguments)))

    def on_stepBack(self, arguments: dict[str, Any]) -> None:
        self._send_stop(self._debugger().reverse_step(1, self._wave(arguments)))

    def on_pause(self, arguments: dict[str, Any]) -> None:
        """Does nothing: the reading thread has already interrupted the run, if there was one."""

    # -- breakpoints ---------------------------------------------------------------------------

    def _replace(self, kind: str, wanted: list[tuple[Callable[[], Breakpoint], dict[str, Any]]]) -> dict[str, Any]:
        """Replaces the breakpoints that this kind of request set last."""
        held = self._debugger()
        for number in self._kinds.pop(kind, []):
            held.delete(number)
        answers, numbers = [], []
        for make, place in wanted:
            try:
                made = make()
            except LaunchError as error:
                answers.append({"verified": False, "message": " ".join(str(error).split()), **place})
                continue
            numbers.append(made.number)
            if "line" in place:  # it may be a later one
                place = {"line": int(held.code.line(made.points[0][0]).rpartition(":")[2])}
            answers.append({"id": made.number, "verified": True, **place})
        self._kinds[kind] = numbers
        return {"breakpoints": answers}

    def _breakpoint_at(self, where: str, each: dict[str, Any]) -> Callable[[], Breakpoint]:
        return lambda: self._debugger().breakpoint(where, each.get("condition") or "")

    def on_setBreakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        lines = arguments.get("breakpoints", [])
        name = str(arguments.get("source", {}).get("path", ""))
        wanted = [(self._breakpoint_at(str(int(each["line"])), each), {"line": each["line"]}) for each in lines]
        return self._replace(f"lines of {name}", wanted)

    def on_setFunctionBreakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._replace("labels", [(self._breakpoint_at(str(each["name"]), each), {}) for each in arguments["breakpoints"]])

    def on_setInstructionBreakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        held = self._debugger()
        wanted = []
        for each in arguments["breakpoints"]:
            entry = held.code.virtual(held.replay.launch.entry)
            offset = int(str(each["instructionReference"]), 16) + int(each.get("offset", 0)) - entry
            wanted.append((self._breakpoint_at(f"{offset:#x}", each), {"instructionReference": each["instructionReference"]}))
        return self._replace("instructions", wanted)

    def on_dataBreakpointInfo(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name = str(arguments["name"])
        return {"dataId": name, "description": name, "accessTypes": ["write"], "canPersist": True}

    def on_setDataBreakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        names = [str(each["dataId"]) for each in arguments["breakpoints"]]
        return self._replace("data", [(lambda name=name: self._debugger().watch(name), {}) for name in names])  # type: ignore[misc]

    def on_setExceptionBreakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        names = [str(name) for name in arguments.get("filters", [])]
        kinds = [name.removeprefix("finding ") for name in names if name.startswith("finding ")]
        together = f"finding {' '.join(kinds)}"  # the workgroup runs once in checked mode for all of them
        wanted = [together if name.startswith("finding ") else name for name in names]
        made = self._replace("exceptions", [(self._breakpoint_at(name, {}), {}) for name in dict.fromkeys(wanted)])["breakpoints"]
        answers = dict(zip(dict.fromkeys(wanted), made, strict=True))
        return {"breakpoints": [answers[name] for name in wanted]}

    # -- looking -------------------------------------------------------------------------------

    def on_stackTrace(self, arguments: dict[str, Any]) -> dict[str, Any]:
        held, wave = self._debugger(), self._wave(arguments)
        frames = []
        for level, each in enumerate(views.stack(held, wave)):
            file, _, line = (each.line if level else held.code.line(each.record)).rpartition(":")
            name = each.function if level else f"{held.code.address(each.record)}  {held.code.text(each.record)}"
            frame: dict[str, Any] = {
                "id": level * FRAMES + wave + 1, "name": name, "line": int(line or 0), "column": 1,
                "instructionPointerReference": f"{held.code.virtual(each.record):#x}",
            }  # fmt: skip
            frames.append({**frame, "source": self._source(file)} if file else frame)
        return {"stackFrames": frames, "totalFrames": len(frames)}

    def _source(self, file: str) -> dict[str, Any]:
        if self._path and Path(self._path).name == Path(file).name:
            return {"name": Path(file).name, "path": self._path}
        if os.path.isfile(file):
            return {"name": Path(file).name, "path": str(Path(file).resolve())}
        return {"name": Path(file).name, "sourceReference": SOURCE}

    def on_source(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._debugger()
        if not self._subject or not self._subject.source:
            raise LaunchError("the source of this file is not at hand")
        return {"content": self._subject.source, "mimeType": "text/x-asm"}

    def on_scopes(self, arguments: dict[str, Any]) -> dict[str, Any]:
        level, wave = divmod(int(arguments["frameId"]) - 1, FRAMES)
        self._debugger().wave_place(wave)
        if level:  # nothing says where a caller's variables and registers are kept
            return {"scopes": []}
        return {"scopes": [
            {"name": name, "variablesReference": (wave + 1) << SCOPE_BITS | at + 1, "expensive": name in ("VGPR", "AGPR")}
            for at, name in enumerate(SCOPES)
        ]}  # fmt: skip

    def on_variables(self, arguments: dict[str, Any]) -> dict[str, Any]:
        reference = int(arguments["variablesReference"])
        if reference >= OBJECTS:
            return {"variables": self._parts(reference, int(arguments.get("start", 0)), int(arguments.get("count") or ELEMENTS))}
        lanes, reference = reference // LANES_OF, reference % LANES_OF
        wave, scope = (reference >> SCOPE_BITS) - 1, (reference & (1 << SCOPE_BITS) - 1) - 1
        if not 0 <= scope < len(SCOPES):
            raise LaunchError(f"no variables have the reference {arguments['variablesReference']}")
        found = list(self._variables(SCOPES[scope], wave, lanes - 1, reference))
        start = int(arguments.get("start", 0))
        return {"variables": found[start : start + int(arguments.get("count") or len(found))]}

    def _variables(self, scope: str, wave: int, register: int, reference: int) -> list[dict[str, Any]]:
        held = self._debugger()
        snapshot = held.snapshot(wave)

        def variable(name: str, value: str, children: int = 0) -> dict[str, Any]:
            return {"name": name, "value": value, "variablesReference": children, **({} if children else {"evaluateName": name})}

        if scope in ("Locals", "Globals"):
            from simgpu.debugger.locals import local_values

            wanted = [each for each in local_values(held, wave) if each.is_global == (scope == "Globals")]
            return [self._variable(wave, each.name, each.name, each.object) for each in wanted]
        if scope in ("VGPR", "AGPR"):
            file, rows = ("v", snapshot.vgprs) if scope == "VGPR" else ("a", snapshot.agprs)
            if register >= 0:
                values = (f"{bits:#010x}  {bits.view(np.float32):.7g}" for bits in rows[register])
                return [variable(f"{file}{register}[{lane}]", value) for lane, value in enumerate(values)]
            resources = held.kernel.resources
            count = max(1, min(256, resources["vgprs"] if file == "v" else resources["agprs"] or 1))
            return [variable(f"{file}{at}", f"{rows[at, 0]:#010x} ...", reference + LANES_OF * (at + 1)) for at in range(count)]
        if scope == "SGPR":
            return [variable(f"s{number}", f"{snapshot.scalars[number]:#010x}") for number in range(102)]
        if scope == "State":
            masks = [variable("exec", f"{snapshot.exec:#018x}"), variable("vcc", f"{snapshot.vcc:#018x}")]
            rest = [variable("scc", str(snapshot.scc)), variable("m0", f"{snapshot.scalars[124]:#010x}")]
            return [variable("place", str(held.wave_place(wave))), *masks, *rest]
        if scope == "Arrays":
            return [
                {**variable(name, f"{array.dtype} {'x'.join(map(str, array.shape))}"), "memoryReference": f"{array.address:#x}"}
                for name, array in held.names.items()
            ]
        from simgpu.hardware.isa.code.operands import register_text
        from simgpu.hardware.isa.instruction import Reg

        own = dict.fromkeys(reg for reg in snapshot.instruction.args.values() if isinstance(reg, Reg))
        held_by = {reg: snapshot.registers(reg).reshape(-1)[:4] for reg in own}
        return [variable(register_text(reg), " ".join(f"{value:#010x}" for value in values)) for reg, values in held_by.items()]

    def _variable(self, wave: int, name: str, expression: str, found: Object | None) -> dict[str, Any]:
        """Returns a variable of the source, with a reference to its parts if it has any."""
        value = values.OPTIMIZED_OUT if found is None else values.brief(found, self._debugger().snapshot(wave).exec)
        row = {"name": name, "value": value, "evaluateName": expression, "variablesReference": 0}
        if found is None or not (found.type.count or found.type.members):
            return row
        self._objects.append((wave, expression, found))
        counts = {"indexedVariables": found.type.count} if found.type.count else {"namedVariables": len(found.type.members)}
        return row | counts | {"variablesReference": OBJECTS + len(self._objects) - 1}

    def _parts(self, reference: int, start: int, count: int) -> list[dict[str, Any]]:
        """Returns the elements or members of an object that was sent at this stop."""
        if reference - OBJECTS >= len(self._objects):
            raise LaunchError(f"no variables have the reference {reference}")
        wave, expression, whole = self._objects[reference - OBJECTS]
        dot = "" if whole.type.count else "."
        parts = islice(whole.children(), start, start + count)
        return [self._variable(wave, part.name, f"{expression}{dot}{part.name}", part) for part in parts]

    def on_setVariable(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from simgpu.debugger.assign import assign

        reference, name = int(arguments["variablesReference"]), str(arguments["name"])
        wave, target = (reference % LANES_OF >> SCOPE_BITS) - 1, name
        if OBJECTS <= reference < OBJECTS + len(self._objects):
            wave, target, whole = self._objects[reference - OBJECTS]
            target = f"{target}{'' if whole.type.count else '.'}{name}"
        assign(self._debugger(), target, str(arguments["value"]), wave)
        found = self.on_variables({"variablesReference": arguments["variablesReference"]})["variables"]
        return {"value": next((each["value"] for each in found if each["name"] == name), str(arguments["value"]))}

    def on_setExpression(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from simgpu.debugger.assign import assign

        if "frameId" in arguments:
            self._debugger().select((int(arguments["frameId"]) - 1) % FRAMES)
        assign(self._debugger(), str(arguments["expression"]), str(arguments["value"]))
        return {"value": self.on_evaluate({"expression": arguments["expression"]})["result"]}

    def on_completions(self, arguments: dict[str, Any]) -> dict[str, Any]:
        text = str(arguments["text"])[: max(0, int(arguments["column"]) - 1)]
        found, typed = self._prompt(lambda line: None).completions(text)
        return {"targets": [{"label": name, "start": len(text) - typed, "length": typed} for name in found]}

    def on_exceptionInfo(self, arguments: dict[str, Any]) -> dict[str, Any]:
        stop = self._debugger().stop
        what = stop.breakpoints[0].what if stop.breakpoints else stop.kind
        return {"exceptionId": what, "description": stop.message or str(stop.place), "breakMode": "always",
                "details": {"message": stop.message, "typeName": what}}  # fmt: skip

    def _prompt(self, output: Callable[[str], None]) -> Prompt:
        """Returns a prompt on this session."""
        from simgpu.tools.debug.prompt import Prompt

        debugger = self._debugger()
        assert self._subject
        return Prompt(debugger, self._subject, output)

    def on_evaluate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        held, text = self._debugger(), str(arguments["expression"]).strip()
        if "frameId" in arguments:
            held.select((int(arguments["frameId"]) - 1) % FRAMES)
        if arguments.get("context") == "repl":
            lines: list[str] = []
            before = held.stop
            self._prompt(lines.append).onecmd(text)
            if held.stop is not before:
                self._send_stop(held.stop)
            return {"result": "\n".join(lines), "variablesReference": 0}
        if text.split("[")[0] in held.names:
            return {"result": str(held.element(text)[1]), "variablesReference": 0}
        from simgpu.debugger.locals import object_named

        found = object_named(held, text)
        if found is not None:  # a hover, or a watched name
            row = self._variable(held.wave, text, text, found)
            return {"result": row["value"], "variablesReference": row["variablesReference"]}
        return {"result": " ".join(line.strip() for line in views.value(held, text, "")), "variablesReference": 0}

    def on_readMemory(self, arguments: dict[str, Any]) -> dict[str, Any]:
        address = int(str(arguments["memoryReference"]), 0) + int(arguments.get("offset", 0))
        data = self._debugger().memory(address, int(arguments["count"]))
        return {"address": f"{address:#x}", "data": base64.b64encode(data).decode()}

    def on_disassemble(self, arguments: dict[str, Any]) -> dict[str, Any]:
        code = self._debugger().code
        known = [at for at, _ in code]
        here = code.record(int(str(arguments["memoryReference"]), 16) + int(arguments.get("offset", 0)))
        first = (known.index(here) if here in known else 0) + int(arguments.get("instructionOffset", 0))
        rows = []
        for at in range(first, first + min(int(arguments["instructionCount"]), MOST_ROWS)):
            if not 0 <= at < len(known):
                nowhere = max(0, code.virtual(known[0 if at < 0 else -1]) + 4 * (at if at < 0 else at - len(known) + 1))
                rows.append({"address": f"{nowhere:#x}", "instruction": "", "presentationHint": "invalid"})
                continue
            row: dict[str, Any] = {"address": f"{code.virtual(known[at]):#x}", "instruction": code.text(known[at])}
            file, _, line = code.line(known[at]).rpartition(":")
            rows.append(row | ({"location": self._source(file), "line": int(line)} if file else {}))
        return {"instructions": rows}


def _group(arguments: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(part) for part in str(arguments.get("group", "0")).split(","))
