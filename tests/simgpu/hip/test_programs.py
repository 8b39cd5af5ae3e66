"""HIP programs, compiled as users compile them, on the simulated boards: each checks its own results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forks import hip
from tests.support.hip_compiler import PROGRAMS, compiled, linked, program

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
# For what does not depend on the board: test_a_program_ends_as_on_hardware has run on all four.
TWO = ("gfx908", "gfx950", *(pytest.param(target, marks=pytest.mark.exhaustive) for target in ("gfx90a", "gfx942")))


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_ends_as_on_hardware(target: str) -> None:
    done = hip("--target", target, program("vector_add", *TARGETS))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stderr


@pytest.mark.parametrize("version", [1, 2, 3])
def test_device_code_that_is_compressed(version: int) -> None:
    done = hip("--target", "gfx90a", compiled(PROGRAMS / "vector_add.hip", *TARGETS, ccob=version))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stderr


def test_a_program_for_another_board_is_told_which_to_choose() -> None:
    done = hip("--target", "mi100", program("vector_add", "gfx90a"))
    assert "it has code for gfx90a: give --target mi210 or mi250x" in done.stderr
    assert done.returncode == 1 and "hipErrorNoBinaryForGpu" in done.stdout


def test_what_is_no_program_is_said(tmp_path: Path) -> None:
    done = hip(tmp_path / "nothing")
    assert done.returncode == 2 and "no such program" in done.stderr


@pytest.mark.parametrize("name", ["streams", "memory", "newer", "variables", "graphs", "nodes"])
def test_a_program_passes_its_own_checks(name: str) -> None:
    done = hip(program(name, "gfx942"))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stdout + done.stderr


@pytest.mark.parametrize("how", [[], ["--check"]], ids=["plain", "checked"])
def test_memory_of_graphs(how: list[str]) -> None:
    done = hip(*how, program("graph_memory", "gfx942"))
    assert done.stdout == "PASS\n", done.stdout + done.stderr
    assert {line.split(": ")[2] for line in done.stderr.splitlines() if line.startswith("simgpu")} == {"use-after-free"}


@pytest.mark.parametrize("how", [[], ["--check"]], ids=["plain", "checked"])
def test_memory_that_is_mapped_by_hand(how: list[str]) -> None:
    done = hip(*how, program("mapping", "gfx942"))
    assert done.stdout == "PASS\n", done.stdout + done.stderr
    assert "write to read-only memory" in done.stderr and "inside freed memory (hipMemMap 4 (mapping.hip:" in done.stderr
    assert "internal error" not in done.stderr and "uninitialized" not in done.stderr


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("how", [[], ["--check"]], ids=["plain", "checked"])
def test_blocks_that_wait_for_each_other(target: str, how: list[str]) -> None:
    """They run in turns however few threads the host has."""
    done = hip("--target", target, *how, program("cooperative", "gfx90a", "gfx942"))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stdout + done.stderr


def test_two_devices() -> None:
    done = hip("--devices", 2, program("devices", "gfx942"))
    assert done.stdout == "PASS\n", done.stdout + done.stderr
    assert "hipMalloc" not in done.stderr.split("access to")[0] and "kernel take(int*) failed" in done.stderr
    assert done.returncode == 1  # a kernel failed, whatever the program does about it


@pytest.mark.slow
def test_kernels_compiled_while_the_program_runs() -> None:
    done = hip(program("modules", "gfx942"))
    assert done.stdout.endswith("PASS\n") and done.returncode == 0, done.stdout + done.stderr
    assert "broken.hip:1:52: error: use of undeclared identifier 'nothing'" in done.stdout


@pytest.mark.parametrize("target", TWO)
def test_device_code_of_several_files_is_linked_as_one(target: str) -> None:
    done = hip("--target", target, linked(target, "parts", "parts_other"))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stdout + done.stderr


HOW = ("--target gfx950", "--threads 3", "--check --threads 2", "--times --html {page}")
MORE = (*(f"--target {target}" for target in TARGETS if target != "gfx950"), "--threads 1")


@pytest.mark.parametrize("how", [*HOW, *(pytest.param(how, marks=pytest.mark.exhaustive) for how in MORE)])
def test_kernels_and_host_print_in_order(how: str, tmp_path: Path) -> None:
    """Each line appears once, even if parts of a launch run again."""
    done = hip(*how.format(page=tmp_path / "page.html").split(), compiled(PROGRAMS / "prints.hip", *TARGETS, device_library=True))
    want = ""
    for turn in range(3):
        want += f"host before round {turn}\n"
        for block in range(40):
            for thread in (1, 65):
                want += f"round {turn}: block {block}, thread {thread}, {(128 * block + thread) / 2:.1f}\n"
    assert done.stdout == want + "assertion failed: 63 < 63\nhost at the end\n", done.stdout[-500:] + done.stderr
    assert done.returncode == 1 and "kernel below(int const*, int) failed in its launch 2: KernelTrap" in done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_a_device_tells_what_the_board_is(target: str) -> None:
    done = hip("--target", target, program("properties", *TARGETS))
    assert done.stdout.endswith("PASS\n") and done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("AMD Instinct MI") and f" {target}:sramecc+:xnack-\n" in done.stdout
    assert done.stderr.count("hipMallocArray needs images, which the device has not") == 1


def test_a_fault_among_streams_is_told_and_the_program_goes_on() -> None:
    done = hip(program("faults", "gfx942"))
    assert (done.stdout, done.returncode) == ("ended\n", 1), done.stdout + done.stderr
    assert "kernel wild(int*) failed: MemoryFault: " in done.stderr and "at faults.hip:5" in done.stderr
    assert done.stderr.count("failed") == 1


def test_a_program_that_waits_for_a_kernel_that_failed_is_ended() -> None:
    done = hip(program("stubborn", "gfx942"))
    assert done.returncode not in (0, 1) and done.stderr.count("failed: MemoryFault") == 1
    assert "1000000 calls more after a kernel failed" in done.stderr
