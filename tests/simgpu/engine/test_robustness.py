"""Any bytes give a result or a SimError. `python -m simgpu.tools.robustness.fuzz` runs the same at length."""

from __future__ import annotations

import random
import struct

import pytest

import simgpu
from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import DecodeError, LaunchError, SimError, UnsupportedInstruction
from simgpu.hardware.isa import decode, text
from simgpu.tools.robustness import fuzz, fuzz_cases
from tests.support.exhaustive import examples
from tests.support.kernels import KernelText, assemble

SEED = 20
PROGRAM_HEADERS = 64  # file offset; 56 bytes each
LOAD, EXECUTE = 1, 1


@pytest.fixture(scope="module")
def toolchain():
    """Skips the test if nothing can assemble."""
    assemble("gfx90a", KernelText("k", "s_nop 0"))


@pytest.fixture
def patience(monkeypatch):
    """A case that hangs is found later than by default: on a loaded machine, others take many times as long."""
    monkeypatch.setattr(fuzz, "CASE_SECONDS", 600)
    monkeypatch.setattr(fuzz, "READING_SECONDS", 300)


@pytest.mark.parametrize(("kind", "count"), [("objects", examples(60)), ("streams", examples(30)), ("host_calls", examples(220))])
def test_fuzz_in_small(toolchain, patience, kind, count):
    cases = (fuzz.FuzzCase(kind, SEED, number) for number in range(count))
    found = {case: outcome for case, outcome, _ in fuzz.run_all(iter(cases), 1, [])}
    assert len(found) == count
    failed = [f"{case.repeat([])}: {outcome}" for case, outcome in found.items() if outcome.failed]
    assert not failed, "\n".join(failed)
    assert len({outcome.name for outcome in found.values()}) >= 3, "the cases reach different ends"


@pytest.mark.parametrize("count", [12, pytest.param(150, marks=pytest.mark.exhaustive)])
def test_files_that_are_read(toolchain, patience, count):
    """A sample of the files that `docs/reference/security.md` describes; one process reads them, as many as it may."""
    kinds = [kind for kind in fuzz.KINDS if kind not in fuzz.LAUNCHED]
    cases = (fuzz.FuzzCase(kind, SEED, number) for kind in kinds for number in range(count))
    found = {case: outcome for case, outcome, _ in fuzz.run_all(cases, 1, [])}
    failed = [f"{case.repeat([])}: {outcome}" for case, outcome in found.items() if outcome.failed]
    assert not failed and len(found) == count * len(kinds), "\n".join(failed)
    for kind in kinds:
        assert "run" in {outcome.name for case, outcome in found.items() if case.kind == kind}, f"some {kind} are read to the end"


def test_a_case_is_the_same_every_time(toolchain):
    for number in range(5):
        case = fuzz.FuzzCase("objects", 1, number)
        assert fuzz_cases.damaged_object(case.rng, ()) == fuzz_cases.damaged_object(case.rng, ())
    assert fuzz_cases.damaged_object(random.Random(1), ()) != fuzz_cases.damaged_object(random.Random(2), ())


@pytest.mark.parametrize("target", TARGETS)
def test_random_instructions_cover_the_instruction_set(target):
    rng = random.Random(target)
    seen = {decode(fuzz_cases.instruction(rng, target), 0, target).mnemonic for _ in range(2000)}
    assert len(seen) > 700


class Broken(fuzz.FuzzWorker):
    """A worker that dies, or never answers, instead of running cases."""

    code = ""

    def command(self, objects):
        return [*super().command(objects)[:1], "-c", self.code]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import os; input(); os.abort()", fuzz.CRASHED),
        ("import time; input(); time.sleep(60)", fuzz.HUNG),
    ],
)
def test_crashes_and_hangs_are_pinned_on_their_case(monkeypatch, code, name):
    monkeypatch.setattr(fuzz, "CASE_SECONDS", 0.5)
    monkeypatch.setattr(fuzz, "FuzzWorker", type("FuzzWorker", (Broken,), {"code": code}))
    cases = [fuzz.FuzzCase("streams", 1, number) for number in range(2)]
    found = [(case, outcome.name) for case, outcome, _ in fuzz.run_all(iter(cases), 1, [])]
    assert found == [(case, name) for case in cases]


def test_an_unexpected_exception_is_a_failure(monkeypatch):
    def broken(*unused):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(fuzz_cases, "run", broken)
    outcome = fuzz.run_case(fuzz.FuzzCase("streams", 1, 1), ())
    assert outcome.failed and "ZeroDivisionError" in outcome.detail


# -- findings of fuzzing, each in its own words --------------------------------------------------


def load_headers(data):
    """Returns file offsets of the program headers of loaded segments."""
    count = struct.unpack_from("<H", data, 56)[0]
    offsets = [PROGRAM_HEADERS + 56 * number for number in range(count)]
    return [at for at in offsets if struct.unpack_from("<I", data, at)[0] == LOAD]


def changed(data, at, layout, *values):
    copy = bytearray(data)
    struct.pack_into(layout, copy, at, *values)
    return bytes(copy)


@pytest.fixture(scope="module")
def plain(toolchain):
    return assemble("gfx90a", KernelText("k", "s_nop 0"))


def test_segments_that_overlap_or_span_too_much(plain):
    first, second, *_ = load_headers(plain)
    address = struct.unpack_from("<Q", plain, second + 16)[0]
    with pytest.raises(DecodeError, match="overlap"):
        CodeObject.parse(changed(plain, first + 40, "<Q", address + 64))
    with pytest.raises(DecodeError, match="span"):
        CodeObject.parse(changed(plain, load_headers(plain)[-1] + 40, "<Q", 1 << 40))


def test_code_that_would_fill_the_hosts_memory(plain):
    executable = [at for at in load_headers(plain) if struct.unpack_from("<I", plain, at + 4)[0] & EXECUTE]
    last = max(load_headers(plain), key=lambda at: struct.unpack_from("<Q", plain, at + 16)[0])
    data = changed(plain, executable[0] + 4, "<I", 4)
    data = changed(data, last + 4, "<I", 5)
    data = changed(data, last + 40, "<Q", 1 << 26)
    with pytest.raises(SimError, match=r"bytes of code|no executable segment"):
        simgpu.Device("gfx90a").load(data)


def descriptor_of(data):
    code = CodeObject.parse(data)
    kernel = code.kernels["k"]
    return data.index(code.read(kernel.descriptor_address, 64))


def launch(data, target="gfx90a"):
    simgpu.Device(target, threads=1, max_instructions=10_000).load(data)["k"].launch(grid=1)


def test_more_preloaded_arguments_than_user_registers(toolchain):
    data = assemble("gfx90a", KernelText("k", ".fill 80, 4, 0xbf800000"))
    with pytest.raises(LaunchError, match="user SGPRs"):
        launch(changed(data, descriptor_of(data) + 58, "<H", 127))


def test_accumulators_that_begin_past_the_registers(plain):
    at = descriptor_of(plain)
    launch(changed(plain, at + 0x2C, "<I", 63))


def run_words(target, *words):
    """Runs 64-bit or 32-bit words of code, given as dwords."""
    lines = "\n".join(f".long {word:#x}" for word in words)
    launch(assemble(target, KernelText("k", lines, options={"group_segment_fixed_size": 64})), target)


ODD = {
    "v_subb_co_u32_e64 v52, s[0:1], s52, 11, v[10:11]": ((0xD11D0034, 0x04291634 | 1 << 26), "vector registers"),
    "v_cmpx_lt_u32_e64 src_lds_direct, v0, v1": ((0xD0D900FE, 0x00020300), "constant"),
    "v_mfma_f64_4x4x4f64 v[0:1], v[2:3], v[4:5], v[6:7] abid:11": ((0xD3EF5800, 0x041A0902), "takes no cbsz or abid"),
}


@pytest.mark.parametrize("shown", ODD)
def test_operands_that_decode_but_cannot_be(toolchain, shown):
    words, why = ODD[shown]
    assert text(decode(struct.pack("<2I", *words), 0, "gfx90a")) == shown
    with pytest.raises(UnsupportedInstruction, match=why):
        run_words("gfx90a", *words)


def test_a_special_source_as_a_buffer_offset(toolchain):
    """buffer_load_dword v0, off, s[4:7], src_scc through a null resource: reads nothing."""
    run_words("gfx90a", *[0xBE840180 | n << 16 for n in range(0, 4, 2)], 0xE0500000, 0xFD010000)
