"""Prompt: the output of its commands, and that only quit ends it."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from simgpu.tools.cases.subject import subject
from simgpu.tools.cli import main
from simgpu.tools.debug import questions
from simgpu.tools.debug.prompt import Prompt, carry_out, interactive, terminal

GEMM = "-m 20 -n 18 -k 20 --threads 1".split()


def typed(*commands: str) -> list[str]:
    """Returns the prompt's output for commands on a GEMM."""
    asked, lines = subject("debug", "gemm", GEMM), []
    with asked.debugger() as debugger:
        carry_out(Prompt(debugger, asked, lines.append), commands)
    return lines


def test_a_session() -> None:
    lines = typed("b barrier", "c", "waves", "delete", "watch C[3,5]", "c", "p C[3,5]", "rs", "print C[3,5]", "who v1[3]", "finish")
    text = "\n".join(lines)
    assert "breakpoint 1, barrier" in text and "* wg(0,0,0) w0 #" in text and "watchpoint 2, C[3,5]: 0x7fc00000 -> " in text
    values = [line for line in lines if line.startswith("C[3,5] = ")]
    assert len(values) == 2 and values[1].startswith("C[3,5] = nan") and "nan" not in values[0]
    assert lines[-1].split("  ")[2] == "s_endpgm"


def test_why_at_a_moment() -> None:
    lines = typed("finish", "reverse-step 12", "why C[3,5]", "where")
    assert any(line.endswith("more, smaller") for line in lines) and "ends in elements: 20 of B, 20 of A" in lines
    assert lines[-1] == lines[lines.index("(simgpu) why C[3,5]") - 1]  # the prompt is back at the same moment


@pytest.mark.parametrize("command", [
    "step x", "step 0", "foo", "b", "b nowhere", "b 0x0 if v3", "b 0x0 if s4 +", "b 0x0 wave 99", "goto", "goto #999999",
    "goto w9 #1",
    "watch", "watch v300", "watch lds[9999999]", "delete 7", "delete x", "log loop", "print", "p v256", "p/q v1", "p nonsense",
    "lane apply 3", "lane apply 0-99 p v1", "tile", "tile v0 D", "tile v[0:3] D v_nothing", "tile s[0:3] D v_mfma_f32_16x16x4f32",
    "lds",
    "lds x", "lds 0 q9", "lds 0 f32 0", "lds 0 f32 9999x9999", "x", "x 0x1", "x C[99,0]", "x C[0,0] f32 x", "info", "info foo",
    "wave 99",
    "b finding nonsense", "b finding if s4 == 1", "b nan if s4", "findings foo", "why 0x10", "watch 0x10", "why 0x10:q7",
    "set", "set v1", "set v300 = 1", "set var nothing = 1", "set $v1[99] = 1", "set C[99,0] = 1", "set v1 = x",
    "workgroup 99", "workgroup x", "who", "who v1", "why C[99,99]", "why v1", "help foo",
])  # fmt: skip
def test_what_cannot_be_done_is_one_line(session: tuple[Prompt, list[str]], command: str) -> None:
    prompt, lines = session
    lines.clear()
    before = prompt.debugger.place
    assert prompt.onecmd(command) is False and prompt.failed
    assert len(lines) == 1 and "\n" not in lines[0] and "internal" not in lines[0] and prompt.debugger.place == before


@pytest.fixture(scope="module")
def session():
    asked, lines = subject("debug", "gemm", GEMM), []
    with asked.debugger() as debugger:
        debugger.step(5)
        yield Prompt(debugger, asked, lines.append), lines


def test_every_command_has_help(session: tuple[Prompt, list[str]]) -> None:
    prompt, lines = session
    for command in prompt.commands():
        lines.clear()
        prompt.onecmd(f"help {command}")
        assert lines[0].startswith(command) and max(map(len, lines)) <= 80, command
    lines.clear()
    prompt.onecmd("help")
    assert max(map(len, lines)) <= 80 and all(any(line.startswith(f"  {name}") for line in lines) for name in prompt.commands())


def test_set_is_gdbs_and_names_are_completed() -> None:
    lines = typed("si 8", "set $v200[5] = 1.5", "set var s7 = -1", "p/f v200[5]", "set C[4,5] = 2.5", "p C[4,5]")
    assert any("1.5" in line for line in lines) and "0xffffffff" in " ".join(lines) and sum("2.5" in line for line in lines) >= 3
    asked = subject("debug", "gemm", GEMM)
    with asked.debugger() as debugger:
        prompt = Prompt(debugger, asked, lambda line: None)
        assert prompt.completions("disp") == (["display"], 4) and prompt.completions("p ex") == (["exec"], 2)
        assert {"A", "B", "C"} <= set(prompt.completions("p ")[0])


def test_the_first_nan_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((4, 3), np.float32)
    values[1, 2] = values[3, 0] = np.nan
    monkeypatch.setattr(questions, "result_of", lambda subject: ("C", values))
    assert questions.first_nan(None) == "C[1,2]"  # type: ignore[arg-type]


def test_the_verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["debug", "gemm", *GEMM, "-ex", "step 3", "--batch"]) == 0
    assert "w0 #3" in capsys.readouterr().out
    assert main(["debug", "gemm", *GEMM, "-ex", "foo", "--batch"]) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("step\n\nfoo\nwhere\n"))
    assert main(["debug", "gemm", *GEMM]) == 0
    said = capsys.readouterr().out
    assert "w0 #2" in said and "'foo' is no command" in said
    assert main(["debug", "gemm", *GEMM, "--group", "9"]) == 2 and "not in the grid" in capsys.readouterr().err
    assert main(["why", "C[3,5]", "gemm", *GEMM]) == 0 and "more, smaller" in capsys.readouterr().out
    assert main(["why", "--worst", "gemm", *GEMM]) == 0 and "in float64" in capsys.readouterr().out
    assert main(["why", "--first-nan", "gemm", *GEMM]) == 2 and "no element of C is NaN" in capsys.readouterr().err
    assert main(["why", "Q[1]", "gemm", *GEMM]) == 2 and "no element of an array" in capsys.readouterr().err


SOURCE = """#include <hip/hip_runtime.h>

__device__ float half_of(float x) {
  return 0.5f * x;
}

__global__ void work(const float *x, float *y) {
  int i = threadIdx.x;

  // nothing here

  y[i] = half_of(x[i]);
}
"""


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("debug") / "k.hip"
    file.write_text(SOURCE)
    return [str(file), *"--target mi300x --grid 1 --arg random:f32:64 --arg zeros:f32:64".split()]


def in_hip(options: list[str], *commands: str) -> list[str]:
    asked, lines = subject("debug", options[0], options[1:]), []
    with asked.debugger() as debugger:
        carry_out(Prompt(debugger, asked, lines.append), commands)
    return lines


def after(lines: list[str], command: str) -> list[str]:
    """Returns the output of a command."""
    rest = lines[lines.index(f"(simgpu) {command}") + 1 :]
    return rest[: next((at for at, line in enumerate(rest) if line.startswith("(simgpu) ")), len(rest))]


def test_list_shows_source(hip: list[str]) -> None:
    lines = in_hip(hip, "list", "l", "list 4", "list k.hip:9", "l 99", "disassemble 2")
    first = after(lines, "list")
    assert [int(line.removeprefix("=>").split()[0]) for line in first] == list(range(3, 13))
    assert "=>    8   int i = threadIdx.x;" in first and sum(line.startswith("=>") for line in first) == 1
    assert after(lines, "l") == ["     13 }"] and after(lines, "list 4")[2] == "      3 __device__ float half_of(float x) {"
    assert after(lines, "l 99") == ["there is no line 99 of k.hip on this machine; `disassemble` shows instructions"]
    assert any(line.startswith("=> work+0x") for line in after(lines, "disassemble 2"))


def test_a_breakpoint_goes_to_the_next_line_with_code(hip: list[str]) -> None:
    lines = in_hip(hip, "b 10", "c", "delete", "b 99", "b k.hip:12", "b other.hip:4")
    assert after(lines, "b 10")[0].startswith("breakpoint 1: 10, work+0x") and after(lines, "b 10")[0].endswith(", k.hip:12")
    assert after(lines, "c")[1].endswith("k.hip:12")
    assert "or a later one; its lines are" in after(lines, "b 99")[0] and "none of it" in after(lines, "b other.hip:4")[0]
    (exact,) = after(lines, "b k.hip:12")
    assert exact.startswith("breakpoint 2: k.hip:12, work+0x") and ", k.hip" not in exact


def test_frames_of_inlined_functions(hip: list[str]) -> None:
    lines = in_hip(hip, "b 4", "c", "bt", "frame 1", "frame 2")
    inner, outer = after(lines, "bt")
    assert inner.startswith("#0  work+0x") and inner.endswith("in half_of at k.hip:4")
    assert outer == "#1  in work(float const*, float*) at k.hip:12"
    assert after(lines, "frame 1") == [outer, "     12   y[i] = half_of(x[i]);"] and "0 to 1" in after(lines, "frame 2")[0]


def test_a_breakpoint_may_have_no_instruction(hip: list[str]) -> None:
    assert after(in_hip(hip, "b barrier"), "b barrier") == ["breakpoint 1: barrier, 0 instructions"]


def test_a_temporary_breakpoint_stops_once() -> None:
    lines = typed("tbreak barrier", "c", "info b", "reverse-continue", "tb 0x0", "delete", "c")
    assert "breakpoint 1, barrier" in lines and after(lines, "info b") == ["no breakpoints or watchpoints"]
    assert lines[-2] == "the workgroup ended"


def test_displays_are_printed_at_every_stop() -> None:
    lines = typed("display s4", "display/x v1[3]", "step", "info display", "undisplay 1", "rs", "display q", "undisplay 7")
    assert after(lines, "step")[1:4:2] == ["1: s4", "2: /x v1[3]"]
    assert after(lines, "info display") == ["1: s4", "2: /x v1[3]"]
    assert not any(line.startswith("1: ") for line in after(lines, "rs")) and "2: /x v1[3]" in after(lines, "rs")
    assert len(after(lines, "display q")) == 1 and after(lines, "undisplay 7") == ["no display 7: there are 2"]


def test_all_registers_that_the_kernel_declares() -> None:
    lines = typed("step 20", "info registers", "info operands", "print s4", "print v1[3]")
    every = after(lines, "info registers")
    assert after(lines, "print s4")[0].split()[-1] in next(line for line in every if line.startswith("s4 "))
    row = next(line for line in every if line.startswith("v1 ")).split(", ")
    assert int(after(lines, "print v1[3]")[0].split()[-1], 16) == int(row[3], 16)
    assert every[0].startswith("exec  0x") and max(map(len, every)) <= 80 and 0 < len(after(lines, "info operands")) < len(every)


def test_a_session_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab completes commands and names; an earlier session's lines come back."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asked, lines = subject("debug", "gemm", GEMM), list[str]()
    with asked.debugger() as debugger:
        prompt = Prompt(debugger, asked, lines.append)
        completer = terminal(prompt).completer
        assert completer is not None
        found = list(completer.get_completions(Document("p exe"), CompleteEvent()))
        assert [(each.text, each.start_position) for each in found] == [("exec", -3)]
        for keys in ("display C[0,0]\rquit\r", "\x1b[A\x1b[A\r\x04"):  # the second: twice the arrow up
            lines.clear()
            with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
                keyboard.send_text(keys)
                prompt.run(terminal(prompt).prompt)
            assert any(line.startswith("C[0,0] = ") for line in lines), (keys, lines)


def test_lines_of_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("step 2\n\np s4"))
    asked = subject("debug", "gemm", GEMM)
    with asked.debugger() as debugger:
        interactive(Prompt(debugger, asked))
    shown = capsys.readouterr().out
    assert "#2 " in shown and "#4 " in shown and "(simgpu) s4 = " in shown and shown.endswith("(simgpu) \n")


def test_findings_are_listed_and_stop() -> None:
    lines = typed("findings", "b finding", "info b", "c")
    assert lines[1].startswith("nothing was found in this workgroup")
    assert lines[3] == "breakpoint 1: finding, none in this workgroup"
    assert lines[-2] == "the workgroup ended"


ANYTHING = (
    "", "[", "]", "/", "#", "-1", "0x", "v", "s999", "lds[", "C[", "if", "wave", "99999999999999999999", "(", "'", "f32(", "\x00",
    "é", "a[0:3]", "D", "wg(", "0", "1", "v3[2]", "C[0,0]", "barrier", "nan", ",", "at rows", "against", "f16", "4x4", "x" * 300,
)  # fmt: skip


def test_no_line_ends_the_session(session: tuple[Prompt, list[str]]) -> None:
    """Commands with random arguments give a line or an answer each, and the prompt is back."""
    prompt, lines = session
    rng = random.Random(25)
    names = [name for name in prompt.commands() if name not in ("quit", "findings", "why", "who")]  # these take long the first time
    for _ in range(400):
        line = " ".join((rng.choice(names), *rng.choices(ANYTHING, k=rng.randrange(4))))
        if "finding" in line:
            continue
        lines.clear()
        assert prompt.onecmd(line) is False, line
        assert not prompt.failed or (len(lines) == 1 and "\n" not in lines[0] and "internal" not in lines[0]), (line, lines)


def test_a_launch_of_a_triton_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="Triton is an optional extra")
    script = tmp_path / "double.py"
    script.write_text(SCRIPT)
    commands = [word for command in ("next", "watch out[3]", "continue", "print out[3]") for word in ("-ex", command)]
    assert main(["debug", "--launch", "double:2", *commands, "--batch", str(script), "1000"]) == 0
    said = capsys.readouterr().out
    assert "out[3] = 12" in said and ".py:8" in said and "done" not in said
    assert main(["why", "--launch", "2", "out[3]", str(script), "1000"]) == 0
    assert "ends in elements: 1 of x" in capsys.readouterr().out
    assert main(["why", "--launch", "doubl", "out[3]", str(script), "1000"]) == 2
    assert "did you mean double?); it launched double (2)" in capsys.readouterr().err
    own = "\nimport simgpu.triton\nsimgpu.triton.device('mi210').__enter__()\ndouble["
    script.write_text(SCRIPT.replace("\ndouble[", own, 1))
    assert main(["why", "out[3]", str(script), "1000"]) == 0  # on a device of the script's own
    assert "ends in elements: 1 of x" in capsys.readouterr().out
    assert main(["debug", "--launch", "x:0", str(script)]) == 2 and main(["debug", str(tmp_path / "no.py")]) == 2


SCRIPT = """import sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

x = np.arange(1000, dtype=np.float32)
out = np.zeros_like(x)
double[(4,)](x, out, int(sys.argv[1]), BLOCK=256)
double[(4,)](out, x, int(sys.argv[1]), BLOCK=256)
print("done")
"""


def test_a_batch_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["debug", "gemm", "-m", "5", "-n", "3", "-k", "2", "-ex", "step", "-ex", "step nowhere", "--json"]
    assert main([*command, "--batch"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] and document["output"][0] == "(simgpu) step" and "#1 " in document["output"][1]
    assert main(command) == 2 and "--batch" in capsys.readouterr().err
