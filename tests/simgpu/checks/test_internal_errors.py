"""A check that is broken on purpose: the error has its name, and the launch's result is plain mode's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.checks.bounds import Bounds
from simgpu.checks.performance import Performance
from simgpu.checks.uninitialized import findings as uninitialized
from simgpu.checks.uninitialized.runtime import UndefinedUse
from simgpu.engine.check import Check, GuardedCheck
from simgpu.engine.events import FORMATTERS, event, finding_of, report
from simgpu.engine.failures import CheckFailed
from simgpu.engine.finding import Finding
from tests.support.engine_kernel import Kernel

LINES = """
global_load_dword v1, v60, s[4:5]
ds_write_b32 v60, v0
s_waitcnt vmcnt(0) lgkmcnt(0)
v_add_u32 v1, 5, v1
s_cbranch_scc0 on
v_mov_b32 v1, 0
on:
v_add_u32 v1, v1, v0
"""
HOOKS = ("concerns", "plan", "before", "after", "access", "overwrite", "transfer", "end", "conflicts", "finish")


def broken(*_: Any) -> Any:
    raise ValueError("broken on purpose")


def test_every_method_of_a_check_is_guarded() -> None:
    names = {name for base in Check.__mro__ for name, value in vars(base).items() if callable(value) and name[0] != "_"}
    assert names <= set(vars(GuardedCheck))


class Sound(Check):
    """Reports at every v_add."""

    def before(self, frame: Any, inst: Any, planned: Any) -> None:
        if inst.mnemonic == "v_add_u32":
            report(frame, SAID, 1, 7, 0)


SAID = event("said by a sound check")


@finding_of(SAID)
def _said(launch: Any, event: Any) -> Finding:
    return Finding("said", "here", event.record, "")


def launched(*checks: Check) -> tuple[np.ndarray, list[Finding], int]:
    """Returns v1, the findings and the number of instructions run; launches twice, as the second launch finds compiled
    handlers."""
    ready = Kernel("gfx90a", LINES, ["v1"], check=bool(checks), group_segment_fixed_size=256)
    ready.gpu.checks = checks
    runs = [ready.run(np.arange(64, dtype=np.uint32)) for _ in range(2)]
    first, second = runs
    assert [f.message for f in first.run.findings] == [f.message for f in second.run.findings]
    return second["v1"], second.run.findings, second.run.instructions


@pytest.mark.parametrize("hook", HOOKS)
def test_the_result_stays_and_the_check_is_named(hook: str) -> None:
    plain, nothing, count = launched()
    assert nothing == []
    bad = type(f"Broken_{hook}", (Check,), {hook: broken})  # a unique name: handlers are kept on disk by it
    got, found, executed = launched(bad(), Sound())
    np.testing.assert_array_equal(got, plain)
    assert executed == count
    mine = [f for f in found if f.kind == "internal-error"]
    assert len(mine) == 1 and mine[0].severity == "error"
    for words in (f"check Broken_{hook}: ValueError: broken on purpose", "test_internal_errors.py:", "please report"):
        assert words in mine[0].message


@pytest.mark.parametrize("hook", ["prepare", "resume"])
def test_where_a_launch_cannot_go_on(hook: str) -> None:
    class Stops(Check):
        def transfer(self, frame: Any, target: Any, index: Any) -> None:
            if hook == "resume":
                frame.exit(8, target)  # Status.PATH
                frame.build.ret_void()
                frame.build.position_at_end(frame.build.append_basic_block("never"))

    Stops.__name__ = f"Stops_{hook}"
    setattr(Stops, hook, broken)
    with pytest.raises(CheckFailed, match=rf"internal error of check Stops_{hook}: ValueError: broken on purpose .*please report"):
        launched(Stops())


def test_a_failed_checks_own_findings_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other checks' findings stay: the undefined register is found, and Bounds' final fault becomes its own error."""
    monkeypatch.setattr(Bounds, "finish", broken)
    lines = "global_store_dword v60, v9, s[4:5]\ns_load_dword s20, s[4:5], 0x2\ns_waitcnt vmcnt(0) lgkmcnt(0)"
    found = Kernel("gfx90a", lines, check=True).run().run.findings
    assert sorted(f.kind for f in found) == ["internal-error", "uninitialized"]


def test_a_formatter_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*_: Any) -> Any:
        raise KeyError("no such register")

    told.__module__ = uninitialized.__name__
    monkeypatch.setitem(FORMATTERS, UndefinedUse.STORE, told)
    (finding,) = Kernel("gfx90a", "global_store_dword v60, v9, s[4:5]", check=True).run().run.findings
    assert finding.kind == "internal-error" and "KeyError" in finding.message


def test_what_is_not_supported_is_not_the_checks_fault() -> None:
    with pytest.raises(simgpu.SimError, match="gds") as caught:
        Kernel("gfx908", "ds_add_u32 v1, v2 gds", check=True).run()
    assert not isinstance(caught.value, CheckFailed)


def test_notes_are_guarded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Performance, "conflicts", broken)
    ready = Kernel("gfx90a", LINES, ["v1"], check="performance", group_segment_fixed_size=256)
    assert "internal-error" in {f.kind for f in ready.run(np.arange(64, dtype=np.uint32)).run.findings}
