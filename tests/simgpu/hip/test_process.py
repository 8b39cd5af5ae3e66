"""Any program ends: with a HIP error or a clear message, never with a hang or a crash of ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simgpu.hip import library
from simgpu.hip.program import inspect
from tests.simgpu.hip.test_programs import TARGETS
from tests.support.forks import hip
from tests.support.hip_compiler import ZIG, host_compiler, program, run
from tests.support.places import PYTHON_PATH

COMMAND = (sys.executable, "-P", "-m", "simgpu.tools.cli", "hip")


def shell(script: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, **more}
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.slow
def test_abuse_is_answered_by_errors() -> None:
    done = hip("--timeout", 1, program("abuse", "gfx942"))
    assert done.stdout == "PASS\n", done.stdout + done.stderr
    assert done.stderr.count("after 1 s (timeout)") == 2
    assert "internal error" not in done.stderr


def test_a_stream_that_is_being_destroyed_takes_no_work() -> None:
    done = hip(program("destroyed", "gfx942"))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stdout + done.stderr


def test_processes_and_threads() -> None:
    done = hip(program("processes", "gfx942"))
    assert (done.stdout, done.returncode) == ("PASS\n", 0), done.stdout + done.stderr
    assert "a process forked after its parent called HIP" in done.stderr


@pytest.mark.parametrize("how", [[], ["--check"]], ids=["plain", "checked"])
def test_processes_that_share_memory_and_events(how: list[str]) -> None:
    done = hip(*how, program("shared", "gfx942"))
    assert (done.stdout, done.returncode, done.stderr) == ("PASS\n", 0, ""), done.stdout + done.stderr


@pytest.mark.slow
def test_programs_that_others_start(tmp_path: Path) -> None:
    good, bad = program("vector_add", *TARGETS), program("race", *TARGETS)
    script = tmp_path / "suite.sh"
    script.write_text(f"#!/bin/sh\n{good} && {bad}\n")
    script.chmod(0o755)
    done = hip("--check", script)
    assert done.returncode == 1 and done.stdout.startswith("PASS\n") and "race.hip:10" in done.stderr, done.stderr
    words = " ".join(COMMAND)
    done = shell(f'eval "$({words} --target mi100 --check --env)" && {script}')
    assert done.returncode == 0 and done.stdout.startswith("PASS\n") and "race.hip:10" in done.stderr, done.stderr


def test_without_a_simulator_there_is_no_device() -> None:
    path = program("vector_add", *TARGETS)
    done = shell(str(path), LD_LIBRARY_PATH=str(library.folder()))
    assert done.returncode == 1 and "hipErrorNoDevice" in done.stdout and "start the program with `simgpu hip`" in done.stderr
    done = shell(str(path), LD_LIBRARY_PATH=str(library.folder()), SIMGPU_HIP_SERVER="false")
    assert done.returncode == 1 and "hipErrorNoDevice" in done.stdout and "it ended before it answered" in done.stderr


ONE_LIBRARY = """
import ctypes
one, other = ctypes.CDLL("libamdhip64.so.6"), ctypes.CDLL("libhiprtc.so")
pointer, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
print(one.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(1000)))
print(other.hipMemPtrGetInfo(pointer, ctypes.byref(nbytes)), nbytes.value)
"""


def test_a_program_that_loads_the_library_by_several_names_has_one() -> None:
    """hip-python does so: its module hip opens libamdhip64.so, its module hiprtc libhiprtc.so."""
    done = hip(sys.executable, "-c", ONE_LIBRARY)
    assert (done.stdout, done.stderr) == ("0\n0 1000\n", "")
    alone = library._temporary(b"content")
    assert len({path.stat().st_ino for path in alone.iterdir()}) == 1
    shutil.rmtree(alone)


TAKEN = """
import ctypes, mmap
libc, fixed = ctypes.CDLL(None), 0x100000
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t, *(4 * [ctypes.c_int]))
for address in [TAKEN]:
    assert libc.mmap(address, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed, -1, 0) == address
hip, pointer = ctypes.CDLL("libamdhip64.so"), ctypes.c_void_p()
print(hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(1000)), (pointer.value or 0) >> 44)
"""


@pytest.mark.parametrize(("taken", "said"), [("0x110000000000", "0 3"), ("0x110000000000, 0x400000000000", "0 2")])
def test_a_program_whose_allocator_has_the_usual_addresses_gets_others(taken: str, said: str) -> None:
    """Mojo's allocator takes some of the addresses that the library prefers."""
    done = hip(sys.executable, "-c", TAKEN.replace("TAKEN", taken))
    assert (done.stdout, done.stderr) == (f"{said}\n", "")
    done = hip(sys.executable, "-c", TAKEN.replace("TAKEN", f"{taken}, 0x2f0000000000, 0x310000000000"))
    assert done.stdout == "2 0\n" and "no range of 32 TiB of addresses can be mapped" in done.stderr


def test_a_program_that_fails_says_which_calls_failed(tmp_path: Path) -> None:
    """Libraries return errors of their own for them: rocBLAS's internal error says nothing of hipModuleLoad."""
    source = tmp_path / "fails.c"
    source.write_text("""#include <dlfcn.h>
int main(int count, char **words) {
    void *library = dlopen("libamdhip64.so.6", RTLD_NOW), *made;
    int (*load)(void **, const char *) = (int (*)(void **, const char *))dlsym(library, "hipModuleLoad");
    int (*allocate)(void **, unsigned long) = (int (*)(void **, unsigned long))dlsym(library, "hipMalloc");
    return load(&made, "missing") && load(&made, "missing") && allocate(&made, 1ul << 60) ? count - 1 : 9;
}
""")
    run([*host_compiler(), source, "-ldl", "-o", tmp_path / "fails"])
    assert hip(tmp_path / "fails").stderr == ""
    done = hip(tmp_path / "fails", "fail")
    assert done.returncode == 1
    said = "hipModuleLoad 2 times (hipErrorFileNotFound), hipMalloc (hipErrorOutOfMemory)"
    assert done.stderr == f"simgpu hip: calls that failed: {said}\n"
    traced = hip("--trace-calls", tmp_path / "fails")
    load, allocate = "hipModuleLoad: hipErrorFileNotFound", "hipMalloc: hipErrorOutOfMemory"
    assert traced.stderr.splitlines() == [f"simgpu hip: {line}" for line in (load, load, allocate)]


def test_what_is_no_hip_program_is_said(tmp_path: Path) -> None:
    source = tmp_path / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    run([*host_compiler(), source, "-o", tmp_path / "hello"])
    done = hip(tmp_path / "hello")
    assert (done.stdout, done.returncode) == ("hello\n", 0) and "nothing called HIP: hello is not linked to it" in done.stderr
    host = library.target().partition("-")[0]
    other = "aarch64" if host == "x86_64" else "x86_64"
    source.write_text("void _start(void) { for (;;) {} }\n")
    for name, machine in (("static", host), ("foreign", other)):
        run([*ZIG, "clang", "-target", f"{machine}-linux-gnu", "-ffreestanding", "-c", source, "-o", tmp_path / "hello.o"])
        run([*ZIG, "ld.lld", "-static", tmp_path / "hello.o", "-o", tmp_path / name])
    done = hip(tmp_path / "static")
    assert done.returncode == 2 and "is statically linked" in done.stderr, done.stderr
    done = hip(tmp_path / "foreign")
    assert done.returncode == 2 and f"is for {other}; this host is {host}" in done.stderr, done.stderr


def test_the_exit_status_is_the_programs(tmp_path: Path) -> None:
    for name, body, status in (("seven", "exit 7", 7), ("killed", "kill -TERM $$", 143)):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        assert hip(script).returncode == status


def test_a_launcher_that_is_killed_takes_its_server_along() -> None:
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    launcher = subprocess.Popen([*COMMAND, program("sleeps", "gfx942")], stdout=subprocess.PIPE, text=True, env=environment)
    assert launcher.stdout is not None
    asleep = int(launcher.stdout.readline())
    try:
        children = {int(word) for word in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()}
        (server,) = children - {asleep}
        launcher.kill()
        launcher.wait(60)
        deadline = time.monotonic() + 120
        while Path(f"/proc/{server}").exists() and Path(f"/proc/{server}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(asleep, signal.SIGKILL)


def test_a_file_of_any_bytes_is_looked_at_without_harm(tmp_path: Path) -> None:
    whole = program("vector_add", *TARGETS).read_bytes()[:4096]
    for length in (0, 3, 20, 63, 64, 200, 1000, 4096):
        path = tmp_path / str(length)
        path.write_bytes(whole[:length])
        assert not inspect(str(path)).kernels
