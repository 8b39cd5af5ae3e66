"""Errors of HIP programs are found, reported with their place, and set the exit status; good programs are silent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simgpu.tools.page.page import read_document
from tests.simgpu.hip.test_programs import TARGETS, TWO
from tests.support.forks import hip
from tests.support.hip_compiler import program


@pytest.mark.parametrize("target", TWO)
def test_a_race_is_found_with_its_lines(target: str) -> None:
    done = hip("--target", target, "--check", program("race", *TARGETS))
    assert done.returncode == 1
    for said in ("error: race: ", "race.hip:10", "sum+0x"):
        assert said in done.stderr, done.stderr


@pytest.mark.slow
def test_a_page_shows_the_first_launch_of_each_kernel_and_the_model_its_time(tmp_path: Path) -> None:
    page = tmp_path / "race.html"
    done = hip("--check", "--times", "--html", page, program("race", *TARGETS))
    assert done.returncode == 1 and "modelled us" in done.stderr, done.stderr
    document = read_document(page)
    (kernel,) = document["kernels"]
    assert kernel["instructions"] > 1000 and any(finding for finding in kernel["code"]["findings"])
    ((_, columns, ((name, *_, modelled),)),) = document["tables"]
    assert name == "sum(float const*, float*)" and columns[-1] == "modelled us" and 1 < float(modelled) < 100
    again = hip("--html", page, program("race", *TARGETS))
    assert again.returncode == 2 and "--force" in again.stderr


def test_a_race_is_none_of_plain_mode() -> None:
    done = hip(program("race", *TARGETS))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_access_past_an_allocation_names_it_and_where_it_was_made() -> None:
    done = hip(program("out_of_bounds", "gfx942"))
    assert (done.stdout, done.returncode) == ("hipErrorIllegalAddress\n", 1)
    assert "kernel fill(int*, int) failed: MemoryFault: fill+" in done.stderr
    assert "at out_of_bounds.hip:6" in done.stderr
    assert "0 bytes past the end of hipMalloc 1 (out_of_bounds.hip:11) of 400 bytes" in done.stderr
    forgiven = hip("--pad", 4096, program("out_of_bounds", "gfx942"))
    assert (forgiven.stdout, forgiven.stderr, forgiven.returncode) == ("hipSuccess\n", "", 0)
    refused = hip("--pad", 65537, program("out_of_bounds", "gfx942"))
    assert refused.returncode == 2 and "give at most 65536: allocations are that far apart" in refused.stderr
    named = hip("--check", "--pad", 4096, program("out_of_bounds", "gfx942"))
    assert "beyond hipMalloc 1 (out_of_bounds.hip:11) of 400 bytes at " in named.stderr and ", into its padding\n" in named.stderr


def test_an_access_to_freed_memory_names_it() -> None:
    done = hip(program("after_free", "gfx942"))
    assert (done.stdout, done.returncode) == ("hipErrorIllegalAddress\n", 1)
    assert "inside freed memory (hipMalloc 1 (after_free.hip:8) of 256 bytes)" in done.stderr, done.stderr


def test_bytes_that_nobody_wrote() -> None:
    done = hip("--check", program("undefined", "gfx942"))
    assert done.returncode == 1
    assert "error: uninitialized: " in done.stderr and "undefined.hip:6" in done.stderr, done.stderr
    copied = r"error: uninitialized-copy: hipMemcpy to the host: 512 of 512 bytes of hipMalloc 2 \(undefined.hip:12\) of 512 bytes"
    assert re.search(copied, done.stderr), done.stderr
    assert "at undefined.hip:15" in done.stderr
    assert "note: partly-uninitialized-copy: hipMemcpy to the host: 256 of 512 bytes of hipMalloc 1" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("mistake", "found"),
    [((), None), ((0, 1), "s_load_dword"), ((0, 2), "global_load_sbyte"), ((0, 3), "4 of 512 bytes of hipMalloc 1"),
     ((2, 1), "s_load_dword")],
)  # fmt: skip
def test_stores_of_the_host_define_device_memory(mistake: tuple[int, ...], found: str | None) -> None:
    done = hip("--check", program("host_stores", "gfx942"), *mistake)
    assert done.stdout == "PASS\n"
    if found is None:
        assert (done.stderr, done.returncode) == ("", 0)
    else:
        assert re.findall(r"(?:error|note): ([a-z-]+): ", done.stderr) in (["uninitialized"], ["partly-uninitialized-copy"])
        assert found in done.stderr, done.stderr


MISUSES = {
    "copy-past-allocation": ["hipMemcpy reads 260 bytes from byte 0 of hipMalloc 1", "hipMemset writes 256 bytes from byte 4"],
    "double-free": ["hipFree", "was freed before"],
    "use-after-free": ["hipMemcpy reads hipMalloc 2"],
    "invalid-free": ["8 bytes inside hipMalloc 1"],
    "invalid-pointer": ["hipMemcpy writes 4 bytes at 0x40"],
    "use-after-destroy": ["a stream is used that was destroyed before", "an event is used that was destroyed before"],
    "launch": ["kernel fine(int*): a block of 4096 threads; the GPU has at most 1024"],
    "leak": ["hipMalloc 3"],
}


def test_wrong_calls_are_told_with_their_lines() -> None:
    done = hip("--check", program("misuse", "gfx942"))
    assert (done.stdout, done.returncode) == ("ended\n", 1), done.stdout + done.stderr
    told = re.findall(r"(error|note): ([\w-]+): (.*)\n  at (\S+)", done.stderr)
    for kind, texts in MISUSES.items():
        for text in texts:
            assert any(kind == k and text in message for _, k, message, _ in told), (kind, text, done.stderr)
    assert {place.rpartition(":")[0] for *_, place in told} == {"misuse.hip"}
    assert dict((k, place) for _, k, _, place in told)["leak"] == "misuse.hip:12"


def test_wrong_calls_are_the_programs_own_matter_in_plain_mode() -> None:
    done = hip(program("misuse", "gfx942"))
    assert done.returncode == 0 and "error:" not in done.stderr and "note: double-free" in done.stderr


@pytest.mark.parametrize("name", ["vector_add", "streams", "variables", "graphs"])
def test_good_programs_are_silent(name: str) -> None:
    done = hip("--check", program(name, *(TARGETS if name == "vector_add" else ("gfx942",))))
    assert (done.stdout, done.stderr, done.returncode) == ("PASS\n", "", 0)


def test_only_what_is_asked_for_is_checked(tmp_path: Path) -> None:
    path = program("race", *TARGETS)
    other = hip("--check", "--kernels", "nothing", "--json", tmp_path / "a.json", path)
    assert (other.returncode, other.stderr) == (0, "")
    skipped = hip("--check", "--skip", 1, "--json", tmp_path / "b.json", path)
    assert (skipped.returncode, skipped.stderr) == (0, "")
    chosen = hip("--check", "--kernels", "^sum", "--only", 1, "--json", tmp_path / "c.json", path)
    assert chosen.returncode == 1
    counts = [json.loads((tmp_path / f"{name}.json").read_text())["processes"][0]["kernels"][0]["checked"] for name in "abc"]
    assert counts == [0, 0, 1]


def test_the_report_json_and_sarif(tmp_path: Path) -> None:
    done = hip("--check", "--report", "--json", tmp_path / "a.json", "--sarif", tmp_path / "a.sarif", program("race", *TARGETS))
    assert re.search(r"sum\(float const\*, float\*\) +1 +[\d,]+ +4,096 +16 ", done.stderr), done.stderr
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["status"] == 0 and document["processes"][0]["wrong"]
    results = json.loads((tmp_path / "a.sarif").read_text())["runs"][0]["results"]
    assert {result["ruleId"] for result in results} == {"race"}
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("race.hip")


def test_where_numbers_went_wrong() -> None:
    path = program("roots", "gfx942")
    done = hip("--numerics", path, -3)
    assert (done.stdout, done.returncode) == ("8.74597\n", 1), done.stderr
    (first,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "nan: v_sqrt_f32" in first and "3 NaN elements reached memory" in first and "roots.hip:6" in done.stderr, done.stderr
    assert "leak" not in done.stderr
    done = hip("--numerics", path, 1)
    assert (done.stdout, done.returncode, done.stderr) == ("9\n", 0, ""), done.stderr
    done = hip("--numerics", "--check", path, 1)
    assert done.returncode == 2 and "leave --check out" in done.stderr


def test_known_findings_are_not_reported(tmp_path: Path) -> None:
    """Leaves out findings of kernels, by their C++ name, and of calls."""
    known, path = tmp_path / "known.supp", tmp_path / "a.json"
    known.write_text("{\n  the sum's race\n  simgpu:race\n  fun:sum\n  src:race.hip:1?\n}\n")
    done = hip("--check", "--suppressions", known, "--json", path, program("race", *TARGETS))
    assert done.returncode == 0 and "error: race" not in done.stderr, done.stderr
    assert "the sum's race" in done.stderr
    (process,) = json.loads(path.read_text())["processes"]
    assert process["findings"] == [] and process["suppressed"]["the sum's race"] > 0 and process["kernels"][0]["findings"] == 0
    known.write_text("{\n  leaks\n  simgpu:leak\n}\n")
    done = hip("--check", "--suppressions", known, program("misuse", "gfx942"))
    assert done.returncode == 1 and "note: leak" not in done.stderr and "suppressed once: leaks" in done.stderr
    assert hip("--suppressions", known, program("misuse", "gfx942")).returncode == 2
