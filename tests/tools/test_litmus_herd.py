"""Litmus tests in the form of herdtools: their translation, their verdicts, and what has no translation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.cli import main
from simgpu.tools.litmus.axioms import allowed_results
from simgpu.tools.litmus.form import APART, DEVICES, TOGETHER
from simgpu.tools.litmus.herd import is_herd, parse_herd
from simgpu.tools.shared.errors import UsageError

PTX = """PTX MP
"A message, with {put} and {see}"
{{ x=0; flag=0; P1:r0=0; P1:r1=0; }}
 P0@cta 0,gpu 0   | P1@cta {cta},gpu {gpu} ;
 ld r0, 7         |                        ;
 st.weak x, r0    | {see} r0, flag         ;
 {put} flag, 1    | ld.weak r1, x          ;
{claim}
"""
VULKAN = """Vulkan mp
{{ x=0; y=0; P1:r0=0; P1:r1=0; }}
 P0@sg 0,wg 0,qf 0           | P1@sg 0,wg 1,qf 0           ;
 st.{av}sc0 x, 1             | ld.atom.acq.dv.sc0.semsc0{semvis} r0, y ;
 st.atom.rel.dv.sc0.semsc0{semav} y, 1 | ld.{vis}sc0 r1, x ;
exists (P1:r0 == 1 /\\ P1:r1 == 0)
"""
WEAK = "exists (P1:r0 == 1 /\\ P1:r1 != 7)"


def ptx(put: str = "st.release.gpu", see: str = "ld.acquire.gpu", cta: int = 1, gpu: int = 0, claim: str = WEAK) -> str:
    return PTX.format(put=put, see=see, cta=cta, gpu=gpu, claim=claim)


def vulkan(av: str = "nonpriv.", vis: str = "nonpriv.", semav: str = ".semav", semvis: str = ".semvis") -> str:
    return VULKAN.format(av=av, vis=vis, semav=semav, semvis=semvis)


@pytest.mark.parametrize(
    "text, holds",
    [
        (ptx(), False), (ptx(put="st.relaxed.gpu"), True), (ptx(see="ld.relaxed.gpu"), True), (ptx(put="st.release.cta"), True),
        (ptx("st.release.sys", "ld.acquire.sys", gpu=1), False), (ptx(cta=0), False), (ptx(gpu=1), True),
        (ptx(claim="~exists (P1:r0 == 1 /\\ P1:r1 == 0)"), True), (ptx(claim="forall (P1:r0 == 0 \\/ P1:r1 == 7)"), True),
        (ptx(see="ld.relaxed.gpu", claim="forall (P1:r0 == 0 \\/ P1:r1 == 7)"), False),
        (vulkan(), False), (vulkan("av.dv.", "vis.dv.", "", ""), False),
    ],
)  # fmt: skip
def test_verdicts(text: str, holds: bool) -> None:
    test = parse_herd(text, "mp.litmus")
    assert is_herd(text) and test.claim is not None and test.claim.holds(allowed_results(test)) is holds


def test_places_and_scopes() -> None:
    assert [parse_herd(ptx(cta=cta, gpu=gpu), "f").place for cta, gpu in ((0, 0), (1, 0), (0, 1))] == [TOGETHER, APART, DEVICES]
    text = str(parse_herd(ptx("membar.gl | ;\n st.relaxed.gpu"), "f"))
    assert "  store a 7\n  fence seq_cst agent\n  store b 1 monotonic agent\n" in text and "# exists r0=1 r1!=7" in text


@pytest.mark.parametrize(
    "text, said",
    [
        (ptx(put="bar.cta.sync"), "`bar.cta.sync flag, 1` has no translation"), (ptx().replace("x=0", "x=1"), "that are 0"),
        (ptx().replace("x=0", "s @ surface aliases x"), "aliases"), (ptx(claim="exists (x == 1)"), "the condition `x == 1`"),
        (ptx(see="atom.relaxed.gpu.exch"), "no translation"), (ptx().replace("P0@cta 0,gpu 0", "P0"), "a header"),
        (ptx(claim="exists (P1:r0 == 1 /\\ (P1:r1 == 0 \\/ P1:r1 == 7))"), "alternatives inside"), ("PTX x\n", "a test has"),
        (ptx().replace("x, r0", "x, r9"), "that was loaded"), (vulkan(semav=""), "narrow scope"),
        (ptx("st.weak x, 1, "), "operands"),
    ],
)  # fmt: skip
def test_what_has_no_translation_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"f\.litmus: ") as caught:
        parse_herd(text, "f.litmus")
    assert said in str(caught.value)


def test_the_command_prints_the_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mp.litmus"
    file.write_text(ptx(see="ld.relaxed.gpu"))
    assert main(["litmus", str(file), "--target", "mi300x"]) == 0
    assert "exists r0=1 r1!=7: true by the model; " in capsys.readouterr().out
    assert main(["litmus", str(file), "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["tests"]
    assert document["holds"] is True and document["claim"] == "exists r0=1 r1!=7"
