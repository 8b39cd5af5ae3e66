"""The prompt: what its commands print, and that nothing that is typed ends it but quit."""

from __future__ import annotations

import io
import json

import pytest

from simgpu.tools.cli import main
from simgpu.tools.debug.prompt import Prompt, carry_out
from simgpu.tools.debug.subject import subject

GEMM = "-m 20 -n 18 -k 20 --threads 1".split()


def typed(*commands: str) -> list[str]:
    """What the prompt prints for commands on a GEMM."""
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
    assert lines[-1] == lines[lines.index("(simgpu) why C[3,5]") - 1]  # the moment is the same afterwards


@pytest.mark.parametrize("command", [
    "step x", "step 0", "foo", "b", "b nowhere", "b 0x0 if v3", "b 0x0 if s4 +", "b 0x0 wave 99", "goto", "goto #999999",
    "goto w9 #1",
    "watch", "watch v300", "watch lds[9999999]", "delete 7", "delete x", "log loop", "print", "p v256", "p/q v1", "p nonsense",
    "lane apply 3", "lane apply 0-99 p v1", "tile", "tile v0 D", "tile v[0:3] D v_nothing", "tile s[0:3] D v_mfma_f32_16x16x4f32",
    "lds",
    "lds x", "lds 0 q9", "lds 0 f32 0", "lds 0 f32 9999x9999", "x", "x 0x1", "x C[99,0]", "x C[0,0] f32 x", "info", "info foo",
    "wave 99",
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
        assert len(lines) == 1 and lines[0].startswith(command), command


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


def test_a_batch_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["debug", "gemm", "-m", "5", "-n", "3", "-k", "2", "-ex", "step", "-ex", "step nowhere", "--json"]
    assert main([*command, "--batch"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] and document["output"][0] == "(simgpu) step" and "#1 " in document["output"][1]
    assert main(command) == 2 and "--batch" in capsys.readouterr().err
