"""`simgpu check`: silent and 0 on clean kernels, 1 with findings as text, JSON and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.cli import main
from tests.support.checked import assembled

Capture = pytest.CaptureFixture[str]
BROKEN = ["global_load_dword v1, v60, s[4:5]", "v_add_u32 v2, v1, v1"]
CLEAN = [BROKEN[0], "s_waitcnt vmcnt(0)", BROKEN[1]]
LAUNCH = ["--grid", "3", "--arg", "zeros:u32:1024", "--arg", "zeros:u32:1024"]


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "k.co"
    path.write_bytes(assembled("gfx90a", BROKEN))
    return str(path)


def checked(capsys: Capture, *arguments: str, status: int) -> str:
    assert main(["check", *arguments]) == status
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def test_a_clean_kernel_is_silent(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "k.co"
    path.write_bytes(assembled("gfx90a", CLEAN))
    assert checked(capsys, str(path), *LAUNCH, status=0) == ""
    said = checked(capsys, str(path), *LAUNCH, "--verbose", status=0)
    assert said.startswith("k: ")
    assert "wave-instructions executed" in said and said.endswith("nothing found\n")


@pytest.mark.covering(1)
@pytest.mark.parametrize("sizes", [
    "-m 33 -n 17 -k 19 --trans-b --beta 0.5", "-m 1 -n 1 -k 1", "-m 65 -n 130 -k 33 --trans-a --alpha -2",
    "-m 64 -n 32 -k 64 --trans-a --trans-b --lda 80", "-m 7 -n 100 -k 5 --alpha 0 --beta 1",
])  # fmt: skip
@pytest.mark.parametrize("target", ["mi100", "mi210", "mi300x", "mi355x"])
def test_an_emitted_gemm_is_silent(capsys: Capture, target: str, sizes: str) -> None:
    assert checked(capsys, "gemm", *sizes.split(), "--target", target, status=0) == ""


def test_findings_as_text(capsys: Capture, kernel: str) -> None:
    said = checked(capsys, kernel, *LAUNCH, status=1)
    assert "missing-wait: v1 is read before `global_load_dword v1, v60, s[4:5]`" in said
    assert "s_waitcnt vmcnt(0) is needed" in said
    assert "(kernel.s:14)" in said and "seen 3 times" in said


def test_findings_as_json(capsys: Capture, kernel: str) -> None:
    for arguments in (["--json", kernel, *LAUNCH], [kernel, *LAUNCH, "--json"]):
        document = json.loads(checked(capsys, *arguments, status=1))
        (finding,) = document["findings"]
        assert (finding["kind"], finding["count"], finding["place"]) == ("missing-wait", 3, "v1")
        assert document["runs"][0]["kernel"] == "k"
        assert document["runs"][0]["instructions"] > 0


def test_findings_as_sarif(capsys: Capture, kernel: str, tmp_path: Path) -> None:
    path = tmp_path / "found.sarif"
    checked(capsys, kernel, *LAUNCH, "--sarif", str(path), status=1)
    log = json.loads(path.read_text())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["missing-wait"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("kernel.s", 14)
    related = result["relatedLocations"][0]["physicalLocation"]
    assert related["region"]["startLine"] == 13
    assert (result["level"], result["occurrenceCount"]) == ("error", 3)
    assert main(["check", kernel, *LAUNCH, "--sarif", str(path)]) == 2
    assert "exists" in capsys.readouterr().err
    checked(capsys, kernel, *LAUNCH, "--sarif", str(path), "--force", status=1)


def test_a_kernel_that_fails_keeps_its_findings(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "k.co"
    far = ["v_mov_b32 v3, -1", "global_load_dword v4, v3, s[2:3] offset:-8"]
    path.write_bytes(assembled("gfx90a", ["s_mov_b32 s20, 1", "l:", *BROKEN, "s_sub_u32 s20, s20, 1",
                                          "s_cmp_eq_u32 s20, 0", "s_cbranch_scc1 l", *far]))  # fmt: skip
    assert main(["check", str(path), *LAUNCH]) == 1
    out = capsys.readouterr()
    assert "missing-wait" in out.out
    assert out.err.startswith("simgpu check: MemoryFault")


@pytest.mark.parametrize("verb", ["exec", "run"])
def test_exec_and_run_are_left_out(verb: str, capsys: Capture, kernel: str) -> None:
    assert main(["check", verb, kernel, "--grid", "1"]) == 2
    assert f"leave '{verb}' out: simgpu check FILE|OP takes" in capsys.readouterr().err


def test_usage_errors(capsys: Capture, kernel: str) -> None:
    assert main(["check", kernel]) == 2
    assert "--grid" in capsys.readouterr().err
    assert main(["check", "gemm", "-m", "3"]) == 2
    assert main(["check", "nothing.co", *LAUNCH]) == 2


def test_notes_do_not_fail(capsys: Capture, tmp_path: Path) -> None:
    """--performance adds notes to a clean kernel: status 0."""
    path = tmp_path / "k.co"
    path.write_bytes(assembled("gfx90a", ["v_lshlrev_b32 v3, 8, v0", "v_min_u32 v3, 0xf00, v3", "ds_read_b32 v1, v3"]))
    assert checked(capsys, str(path), *LAUNCH, status=0) == ""
    said = checked(capsys, str(path), *LAUNCH, "--performance", status=0)
    assert "note: performance: LDS bank conflicts" in said and "note: resource" in said


def test_a_check_that_fails_itself_has_a_status_of_its_own(
    capsys: Capture, tmp_path: Path, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 3 if nothing else is found; other findings take precedence."""

    def broken(*_: object) -> None:
        raise ValueError("broken on purpose")

    monkeypatch.setattr("simgpu.checks.bounds.Bounds.finish", broken)
    path = tmp_path / "clean.co"
    path.write_bytes(assembled("gfx90a", CLEAN))
    said = checked(capsys, str(path), *LAUNCH, status=3)
    assert "internal error of check Bounds: ValueError: broken on purpose" in " ".join(said.split())
    checked(capsys, kernel, *LAUNCH, status=1)


def test_results_that_are_not_finite_are_told_with_the_option_that_explains_them(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "cube.hip"
    path.write_text('extern "C" __global__ void root(float *x) { x[threadIdx.x] = __builtin_sqrtf(x[threadIdx.x] - 3); }')
    launch = [str(path), "--target", "mi300x", "--grid", "1"]
    said = checked(capsys, *launch, "--arg", "count:f32:64", status=0)
    assert said.startswith("note: after the launch argument 0 has 3 NaN of 64 elements") and "--numerics" in said
    assert "note: after" not in checked(capsys, *launch, "--arg", "count:f32:64", "--numerics", status=1)


def test_known_findings_are_counted_and_not_reported(capsys: Capture, kernel: str, tmp_path: Path) -> None:
    known = tmp_path / "known.supp"
    known.write_text("{\n  the load of v1\n  simgpu:missing-wait\n  fun:k\n  src:kernel.s:*\n}\n")
    assert main(["check", kernel, *LAUNCH, "--suppressions", str(known)]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "suppressed once: the load of v1\n")
    document = json.loads(checked(capsys, kernel, *LAUNCH, "--suppressions", str(known), "--json", status=0))
    assert document["findings"] == document["runs"][0]["findings"] == []
    assert document["suppressed"] == {"the load of v1": 1}
    known.write_text("{\n  another kernel's\n  simgpu:missing-wait\n  fun:other\n}\n")
    assert "missing-wait" in checked(capsys, kernel, *LAUNCH, "--suppressions", str(known), status=1)
    known.write_text("missing-wait\n")
    assert main(["check", kernel, *LAUNCH, "--suppressions", str(known)]) == 2
    assert f"{known}:1: " in capsys.readouterr().err
