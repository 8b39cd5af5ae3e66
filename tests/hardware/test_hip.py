"""`--device hip`: the binding compared with HIP's own declarations and library, the whole path on the stand-in, errors in
words.

No AMD GPU has run any of this. `hip_stand_in.c` checks the arguments of every call, and the simulator runs the launches.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import simgpu
from simgpu.hardware import hip
from simgpu.hardware.code_object.arguments import pack
from simgpu.hardware.errors import HipError, LaunchError
from simgpu.hardware.hip import library as hip_library
from simgpu.tools.bench.clock import clock_mhz
from simgpu.tools.cli import main
from simgpu.tools.shared import processes
from simgpu.tools.shared.launching import combine_runs
from tests.hardware.code_object.test_arguments import CASES, arguments, corpus, geometry, load
from tests.support import forks, hip_server
from tests.support.hip_server import GPU
from tests.support.places import ROOT
from tests.tools.test_exec import SCALE, code_object

HEADER = Path("/usr/include/hip/hip_runtime_api.h")
BINDINGS = importlib.util.find_spec("rocm")
GEMM = ("gemm", "-m", "70", "-n", "33", "-k", "7")  # one kernel: k is too short to split
SPLIT = ("gemm", "-m", "40", "-n", "33", "-k", "900")  # two: partial products, and their sum
Capture = pytest.CaptureFixture[str]

# -- the calls' types ------------------------------------------------------------------------------

C_TYPES = {
    "unsigned int": ctypes.c_uint, "int": ctypes.c_int, "size_t": ctypes.c_size_t,
    "int *": ctypes.POINTER(ctypes.c_int), "size_t *": ctypes.POINTER(ctypes.c_size_t),
    "float *": ctypes.POINTER(ctypes.c_float), "void *": ctypes.c_void_p, "char *": ctypes.c_char_p,
    "void * *": hip_library.POINTERS, "hipMemcpyKind": ctypes.c_int, "hipError_t": ctypes.c_int,
    "hipDeviceProp_t *": ctypes.c_void_p,
    **{f"hip{name}_t": ctypes.c_void_p for name in ("Stream", "Event", "Module", "Function")},
    **{f"hip{name}_t *": hip_library.POINTERS for name in ("Stream", "Event", "Module", "Function")},
}  # fmt: skip


def declared(text: str, name: str) -> tuple[type, ...]:
    """Returns the ctypes of a function's parameters by its C declaration, the first in `text`."""
    found = re.search(rf"(?:hipError_t|char\s*\*)\s*{name}\s*\(([^;{{)]*)\)", text)
    assert found, name
    kinds = []
    for parameter in found[1].split(","):
        plain = re.sub(r"\bconst\b|\benum\b", "", parameter.partition("=")[0]).replace("*", " * ")
        *words, _ = plain.split()  # the last word is the parameter's name
        kinds.append(C_TYPES[" ".join(words)])
    return tuple(kinds)


def header_text() -> str:
    if not HEADER.exists():
        pytest.skip("no HIP header here: apt-get install libamdhip64-dev")
    return HEADER.read_text()


def bindings_text() -> str:
    if BINDINGS is None or not BINDINGS.submodule_search_locations:
        pytest.skip("hip-python is not installed: pip install .[hip]")
    return Path(next(iter(BINDINGS.submodule_search_locations)), "bindings", "hip.pyi").read_text()


@pytest.mark.parametrize("text", [header_text, bindings_text], ids=["header", "hip-python"])
def test_argument_types_are_those_that_hip_declares(text: Callable[[], str]) -> None:
    source = text()
    for name, types in hip_library.PROTOTYPES.items():
        assert declared(source, name) == types, name
    for name in hip_library.TEXTS:
        assert declared(source, name) == (ctypes.c_int,)


def test_a_wrong_type_would_be_seen() -> None:
    assert declared("hipError_t hipMalloc(void** ptr, int size);", "hipMalloc") != hip_library.PROTOTYPES["hipMalloc"]


def test_the_structure_of_hip_5_holds_the_architecture_where_it_is_read(tmp_path: Path) -> None:
    header_text()
    source = tmp_path / "offset.c"
    source.write_text(
        "#define __HIP_PLATFORM_AMD__ 1\n#include <stddef.h>\n#include <hip/hip_runtime_api.h>\n"
        "_Static_assert(HIP_VERSION_MAJOR >= 6 || offsetof(hipDeviceProp_t, gcnArchName) == 396, \"\");\n"
        "_Static_assert(HIP_VERSION_MAJOR < 6 || offsetof(hipDeviceProp_t, gcnArchName) == 1160, \"\");\n"
        "_Static_assert(sizeof(hipDeviceProp_t) <= 4096 && offsetof(hipDeviceProp_t, name) == 0, \"\");\n"
        "_Static_assert(hipErrorOutOfMemory == 2 && hipErrorNoDevice == 100 && hipErrorInvalidDevice == 101, \"\");\n"
        "_Static_assert(hipErrorNotReady == 600 && hipMemcpyHostToDevice == 1 && hipMemcpyDeviceToHost == 2, \"\");\n"
    )
    compiler = [sys.executable, "-m", "ziglang", "cc", "-I/usr/include"]
    subprocess.run([*compiler, "-c", source, "-o", source.with_suffix(".o")], check=True)
    assert {row.arch_offset for row in hip_library.PROPERTIES} == {396, 1160}


# -- the real library -------------------------------------------------------------------------------


def real_library(monkeypatch: pytest.MonkeyPatch) -> hip_library.Library:
    monkeypatch.delenv("SIMGPU_HIP", raising=False)
    try:
        return hip_library.open_library()
    except HipError as error:
        pytest.skip(f"{error} (apt-get install libamdhip64-5)")


def test_the_real_library_has_every_call_and_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    library = real_library(monkeypatch)
    assert re.fullmatch(r"\d+\.\d+\.\d+", library.version) and int(library.version.partition(".")[0]) >= 5
    assert library.words(719).startswith("hipErrorLaunchFailure (719)")


def test_the_real_library_without_a_gpu_ends_in_our_message(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    library = real_library(monkeypatch)
    if library.status("hipInit", 0) == hip_library.SUCCESS:
        pytest.skip("there is an AMD GPU here")
    lines = failing(capfd, "run", *GEMM, "--device", "hip", status=2)
    assert "finds no AMD GPU: hip" in lines[0] and "/dev/kfd" in lines[1]


# -- the whole path on the stand-in -------------------------------------------------------------------


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hip_server.build(tmp_path_factory.mktemp("hip"))


def forked(words: Sequence[str]) -> int:
    """Runs a command on the GPU in a fork, which starts sooner than a new process."""
    done = forks.on_gpu(words, Path.cwd(), processes.environment())
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


@pytest.fixture
def watched_machine(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GPU]:
    """Yields an MI100 for the processes that the test starts. No call may have had wrong arguments."""
    with GPU(library) as gpu:
        for name, value in gpu.environment.items():
            monkeypatch.setenv(name, value)
        yield gpu
    assert gpu.violations == []


@pytest.fixture
def machine(watched_machine: GPU, monkeypatch: pytest.MonkeyPatch) -> GPU:
    """Returns an MI100 on which commands run as forks."""
    monkeypatch.setattr(processes, "supervise", forked)
    return watched_machine


def printed(capfd: Capture, *arguments: str, status: int = 0) -> str:
    """Returns a command's output. It runs in its own process."""
    assert main(arguments) == status
    out = capfd.readouterr()
    assert out.err == ""
    return out.out


def failing(capfd: Capture, *arguments: str, status: int) -> list[str]:
    """Returns the two lines of a command that fails."""
    assert main(arguments) == status
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[0].startswith(f"simgpu {arguments[0]}: ")
    return lines


def test_run_from_the_command_line_to_validated_results(watched_machine: GPU, capfd: Capture) -> None:
    made = json.loads(printed(capfd, "run", *GEMM, "--device", "hip", "--against-sim", "--beta", "0.5", "--json"))
    assert made["pass"] and made["error"]["wrong"] == 0 and made["error"]["total"] == 70 * 33
    assert made["against_sim"]["different"] == 0 and made["seconds"] > 0 and "MI100" in made["device"]
    ((name, launched, _),) = watched_machine.launches
    (kernel,) = made["kernels"]
    assert name == kernel["kernel"] and list(launched.groups) == kernel["grid"] and list(launched.block) == kernel["block"]
    assert watched_machine.calls["hipMalloc"] == 3 and watched_machine.calls["hipModuleLaunchKernel"] == 1
    text = printed(capfd, "run", *GEMM, "--device", "hip")
    assert "PASS" in text and "by HIP events" in text and "Counters" not in text and "does not vouch" not in text


@pytest.mark.slow
def test_several_kernels_run_one_behind_the_other(machine: GPU, capfd: Capture) -> None:
    made = json.loads(printed(capfd, "run", *SPLIT, "--device", "hip", "--against-sim", "--json"))
    assert made["pass"] and made["against_sim"]["different"] == 0 and len(machine.launches) == 2
    made = json.loads(printed(capfd, "bench", *SPLIT, "--device", "hip", "--json"))
    assert made["pass"] and len(made["kernels"]) == 2 and len(made["seconds"]["all"]) == 20
    assert len(machine.launches) == 2 + 2 * (1 + 3 + 20)


def test_other_operators_take_the_same_path(machine: GPU, capfd: Capture) -> None:
    softmax = ("softmax", "--rows", "5", "-n", "40", "--ldy", "43")
    made = json.loads(printed(capfd, "run", *softmax, "--device", "hip", "--against-sim", "--json"))
    assert made["pass"] and made["against_sim"]["different"] == 0 and made["error"]["total"] == 200
    made = json.loads(printed(capfd, "bench", *softmax, "--device", "hip", "--against-sim", "--json"))
    assert made["pass"] and made["same_bits"] and made["gb_per_s"] == pytest.approx(
        2 * 4 * 200 / made["seconds"]["median"] / 1e9
    )
    machine.corrupt = True
    assert "FAIL" in printed(capfd, "run", *softmax, "--device", "hip", "--against-sim", status=1)


@pytest.mark.slow
def test_a_search_whose_trials_run_on_the_gpu(machine: GPU, capfd: Capture) -> None:
    """5 rows of 1,802 elements.

    Each tile is tried once a search, in 1 + 3 + 20 launches of its kernels, and its memory is freed.
    """
    tune = ("tune", "softmax", "--target", "mi100", "--dtype", "f32", "--problems", "1", "--seed", "189", "--budget", "3")
    made = json.loads(printed(capfd, *tune, "--device", "hip", "--json"))
    assert "MI100" in made["timed_by"] and [row["start"] for row in made["rows"]] == ["formula", "random"]
    assert min(row["at the end"] for row in made["rows"]) == 1 <= min(row["first trial"] for row in made["rows"])
    kernels = [name for name, _, _ in machine.launches]
    assert len(kernels) >= 6 * 24 and len(kernels) % 24 == 0 and len(set(kernels)) >= 2
    assert machine.calls["hipMalloc"] == machine.calls["hipFree"] > 0


@pytest.mark.slow
def test_fused_against_unfused(machine: GPU, capfd: Capture) -> None:
    """Compares them as the paper's Table 3 does."""
    attention = ("attention", "-L", "40", "-d", "16", "--against-unfused")
    made = json.loads(printed(capfd, "bench", *attention, "--device", "hip", "--json"))
    assert made["pass"] and len(made["unfused"]["kernels"]) >= 3
    medians = made["unfused"]["seconds"]["median"], made["seconds"]["median"]
    assert made["unfused_over_fused"] == pytest.approx(medians[0] / medians[1])


def test_a_wrong_element_fails(machine: GPU, capfd: Capture) -> None:
    machine.corrupt = True
    made = json.loads(printed(capfd, "run", *GEMM, "--device", "hip", "--against-sim", "--json", status=1))
    assert not made["pass"] and made["error"]["worst"] == [0, 0] and made["against_sim"]["different"] == 1


def test_exec_brings_buffers_back(machine: GPU, capfd: Capture, tmp_path: Path) -> None:
    code = tmp_path / "scale.co"
    code.write_bytes(code_object(SCALE))
    x = np.arange(128, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ["exec", str(code), "--arg", str(tmp_path / "x.npy"), "--arg", "zeros:f32:128", "--arg", "f32:2.5",
                 "--arg", "i32:-7", "--device", "hip", "--against-sim", "--json"]  # fmt: skip
    made = json.loads(printed(capfd, *arguments, "--grid", "2", "--save", f"1={tmp_path / 'y.npy'}"))
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.float32(2.5) * x - np.float32(7))
    assert [row["different"] for row in made["against_sim"]] == [0, 0] and made["resources"]["kernarg_bytes"] == 24
    assert main([*arguments, "--global-size", "100"]) == 2
    assert "whole workgroups" in capfd.readouterr().err


def test_bench_times_launches_on_rotating_buffers(machine: GPU, capfd: Capture) -> None:
    made = json.loads(printed(capfd, "bench", *GEMM, "--device", "hip", "--against-sim", "--json"))
    times = made["seconds"]
    assert made["pass"] and made["same_bits"] and made["against_sim"]["different"] == 0
    assert len(times["all"]) == 20 and times["min"] <= times["median"] == np.median(times["all"]) <= times["max"]
    assert made["tflops"] == pytest.approx(2 * 70 * 33 * 7 / times["median"] / 1e12)
    assert made["gb_per_s"] == pytest.approx(4 * (70 * 7 + 7 * 33 + 70 * 33) / times["median"] / 1e9)
    assert made["percent_of_peak"] == pytest.approx(100 * made["tflops"] / made["peak_tflops"])
    assert len(machine.launches) == 1 + 3 + 20
    timed = [raw for _, _, raw in machine.launches[-20:]]
    assert len(set(timed)) == 20, "small buffers: no launch meets those of another"


def test_bench_sees_launches_that_differ(machine: GPU, capfd: Capture) -> None:
    machine.drift = True
    text = printed(capfd, "bench", *GEMM, "--device", "hip", status=1)
    assert "did not all give the same bits" in text and "FAIL" in text


def test_probe_asks_the_gpu(machine: GPU, capfd: Capture) -> None:
    names = ("v_mfma_f32_4x4x1f32", "v_mfma_i32_16x16x16i8")
    made = json.loads(printed(capfd, "probe", *names, "--device", "hip", "--json"))
    assert made["pass"] and [row["mnemonic"] for row in made["instructions"]] == list(names) and "MI100" in made["device"]
    machine.corrupt = True
    text = printed(capfd, "probe", names[0], "--device", "hip", status=1)
    assert "DISAGREES" in text and "0 of 1 agree" in text


BAD_CALLS = """
import ctypes
from simgpu.hardware.hip.library import Library
library = Library({path!r})
assert library.status("hipMalloc", None, 64) == 1
library.call("hipInit", 0)
assert library.status("hipMalloc", None, 64) == 1
assert library.status("hipFree", 0) == 1
assert library.status("hipMemcpy", 1, 1, 8, 7) == 1
assert library.status("hipEventQuery", 12345) == 1
extra = (ctypes.c_void_p * 5)(1, 1, 3, 1, 2)
assert library.status("hipModuleLaunchKernel", 0x54 << 40, 1, 1, 1, 64, 1, 1, 0, 0x51 << 40, None, extra) == 1
"""


def test_the_stand_in_sees_wrong_arguments(library: Path) -> None:
    with GPU(library) as gpu:
        script = BAD_CALLS.format(path=str(library))
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=gpu.environment, check=True)
    assert [said.partition(":")[0] for said in gpu.violations] == [
        "hipMalloc", "hipMalloc", "hipFree", "hipMemcpy", "hipEventQuery", "hipModuleLaunchKernel"
    ]  # fmt: skip
    assert "initialized" in gpu.violations[0] and "extra[2] == 2" in gpu.violations[-1].replace("(uintptr_t)", "")


def test_the_clock_is_told_where_amdsmi_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert clock_mhz(0) is None
    smi = SimpleNamespace(
        amdsmi_init=lambda: None, amdsmi_shut_down=lambda: None, amdsmi_get_processor_handles=lambda: ["a", "b"],
        amdsmi_get_clock_info=lambda handle, kind: {"clk": 1502 if (handle, kind) == ("b", "gfx") else 0},
        AmdSmiClkType=SimpleNamespace(GFX="gfx"),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    assert clock_mhz(1) == 1502 and clock_mhz(9) is None


# -- errors in two lines ------------------------------------------------------------------------------


def test_no_rocm(monkeypatch: pytest.MonkeyPatch, capfd: Capture, tmp_path: Path) -> None:
    monkeypatch.setenv("SIMGPU_HIP", str(tmp_path / "libnone.so"))
    lines = failing(capfd, "run", *GEMM, "--device", "hip", status=2)
    assert "libnone.so cannot be loaded" in lines[0]
    monkeypatch.delenv("SIMGPU_HIP")
    monkeypatch.setattr(hip_library, "NAMES", ("libnone.so",))
    monkeypatch.setattr(hip_library, "_of_wheels", lambda: iter(()))
    with pytest.raises(HipError, match=r"no HIP runtime: tried libnone\.so") as raised:
        hip_library.open_library()
    assert "Install ROCm" in raised.value.advice


def test_a_library_that_is_no_hip_runtime() -> None:
    with pytest.raises(HipError, match="is no HIP runtime"):
        hip_library.Library("libc.so.6")


def test_rocm_of_wheels_is_found_where_hip_python_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if BINDINGS is None:
        pytest.skip("hip-python is not installed: pip install .[hip]")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so").touch()
    monkeypatch.delenv("SIMGPU_HIP", raising=False)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert next(hip_library.candidates()) == str(tmp_path / "lib" / "libamdhip64.so")


def test_no_gpu(machine: GPU, capfd: Capture) -> None:
    machine.count = 0
    for command in (("bench", *GEMM), ("tune", "softmax", "--target", "mi100")):
        lines = failing(capfd, *command, "--device", "hip", status=2)
        assert "finds no AMD GPU: hipGetDeviceCount: hipErrorNoDevice (100)" in lines[0] and "HIP_VISIBLE_DEVICES" in lines[1]


def test_wrong_target(machine: GPU, capfd: Capture) -> None:
    lines = failing(capfd, "run", *GEMM, "--device", "hip", "--target", "mi300x", status=2)
    assert "gfx908:sramecc+:xnack-) cannot run code for mi300x (gfx942)" in lines[0] and lines[1] == "Give --target mi100."
    machine.target_id = "gfx1100"
    lines = failing(capfd, "run", *GEMM, "--device", "hip", status=2)
    assert "none of simgpu's targets" in lines[0] and "gfx90a" in lines[1]


def test_a_code_object_the_runtime_refuses(machine: GPU, capfd: Capture) -> None:
    machine.fail["hipModuleLoadData"] = 209
    lines = failing(capfd, "run", *GEMM, "--device", "hip", status=2)
    assert "does not take the code object: hipModuleLoadData: hipErrorNoBinaryForGpu (209)" in lines[0]


def test_out_of_memory(machine: GPU, capfd: Capture) -> None:
    machine.largest = 1000
    lines = failing(capfd, "run", *GEMM, "--device", "hip", status=2)
    assert "is out of memory: 1,960 bytes asked for, 1,000 of" in lines[0] and "hipErrorOutOfMemory" in lines[0]
    assert "smaller sizes" in lines[1]


def test_a_kernel_that_faults(machine: GPU, capfd: Capture, tmp_path: Path) -> None:
    """Expects HIP's error: the simulator faults for the stand-in, whose next event then fails."""
    code = tmp_path / "scale.co"
    code.write_bytes(code_object(SCALE))
    arguments = ["exec", str(code), "--arg", "ones:f32:64", "--arg", "u64:64", "--arg", "f32:1", "--arg", "i32:0",
                 "--grid", "1", "--device", "hip"]  # fmt: skip
    lines = failing(capfd, *arguments, status=1)
    assert "scale on GPU 0" in lines[0] and "hipErrorLaunchFailure (719), 'unspecified launch failure'" in lines[0]
    assert "--device sim" in lines[1]


@pytest.mark.slow
def test_a_fault_that_ends_the_process(watched_machine: GPU, capfd: Capture) -> None:
    """ROCm aborts on a page fault. The command is supervised and prints the runtime's message."""
    watched_machine.fail["hipEventQuery"] = hip_server.ABORT
    lines = failing(capfd, "run", *GEMM, "--device", "hip", status=1)
    assert "(SIGABRT): Memory access fault by GPU node-1" in lines[0] and "--device sim" in lines[1]


@pytest.mark.slow
def test_a_kernel_that_hangs(watched_machine: GPU, capfd: Capture) -> None:
    watched_machine.hang = True
    lines = failing(capfd, "run", *GEMM, "--device", "hip", "--timeout", "0.2", status=1)
    assert "hangs: not finished after 0.2 s (1 launch(es), --timeout 0.2)" in lines[0] and "--device sim" in lines[1]


def test_options_that_cannot_be(capfd: Capture) -> None:
    for command, said in (
        (("run", *GEMM, "--against-sim"), "--device hip"),
        (("run", *GEMM, "--device", "hip", "--timeout", "0"), "above 0"),
        (("bench", *GEMM, "--launches", "5"), "20 or more"),
        (("bench", *GEMM, "--against-unfused"), "attention"),
        (("check", *GEMM, "--device", "hip"), "checked mode"),
    ):
        assert main(command) == 2
        err = capfd.readouterr().err
        assert said in err and err.count("\n") == 1


# -- without a library --------------------------------------------------------------------------------


def test_several_launches_are_told_as_one() -> None:
    real = [hip.Run(0.25, "GPU 0"), hip.Run(0.5, "GPU 0")]
    assert combine_runs(real) == hip.Run(0.75, "GPU 0") and combine_runs(real[:1]) is real[0]
    simulated = [simgpu.Run(3, 1.0, {"a": 1}, [], {"exact": 3}), simgpu.Run(4, 2.0, {"a": 2, "b": 5}, [], {"exact": 4})]
    assert combine_runs(simulated) == simgpu.Run(7, 3.0, {"a": 3, "b": 5}, [], {"exact": 7})


@pytest.mark.parametrize(
    ("xnack", "sramecc", "target_id", "said"),
    [
        ("any", "any", "gfx90a:sramecc+:xnack-", ""),
        ("off", "on", "gfx90a:sramecc+:xnack-", ""),
        ("on", "any", "gfx90a:sramecc+:xnack-", "gfx90a:xnack+"),
        ("unsupported", "off", "gfx90a:sramecc+", "gfx90a:sramecc-"),
        ("any", "any", "gfx942:sramecc+:xnack-", "gfx90a"),
        ("on", "any", "gfx90a", ""),
    ],
)
def test_target_features(xnack: str, sramecc: str, target_id: str, said: str) -> None:
    class Code:
        target = "gfx90a"

    code = Code()
    code.xnack, code.sramecc = xnack, sramecc  # type: ignore[attr-defined]
    assert hip.unsuitable(code, target_id) == said  # type: ignore[arg-type]


@corpus
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_launch_of_the_corpus_carries_the_metadata_s_segment(case: dict) -> None:
    kernel = hip.Kernel(None, load(case), 0)  # type: ignore[arg-type]
    shape = geometry(case)
    given = {"block": shape.block, "args": arguments(case), "dynamic_lds": shape.dynamic_lds}
    if any(size % block for size, block in zip(shape.global_size, shape.block, strict=True)):
        with pytest.raises(LaunchError, match="whole workgroups"):
            kernel.prepare(global_size=shape.global_size, **given)
        return
    launch = kernel.prepare(global_size=shape.global_size, **given)
    assert launch.segment == pack(load(case), arguments(case), shape) and len(launch.segment) == load(case).kernarg_size
    assert launch.groups == shape.groups and launch.block == shape.block


@pytest.mark.slow
def test_nothing_imports_hip_unless_asked() -> None:
    script = (
        "import sys; from simgpu.tools.cli import main; "
        f"assert main({['run', *GEMM]!r}) == 0; print('LOADED', 'simgpu.hardware.hip' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("LOADED False\n")
