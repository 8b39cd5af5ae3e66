"""Effects of decoded instructions: every one has them, and the emitter's analysis of the text agrees."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from simgpu import asm
from simgpu.asm.builder.instruction import Effect, Instr, analyse
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import decode, decode_all
from simgpu.hardware.isa.code.decode import table
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.hardware.timing_rules.waits import DS, FLAT, MESSAGE, SMEM, VM, queue_of
from simgpu.operators import TiledComputation

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


@functools.cache
def random_instructions(target: str) -> list[Instruction]:
    """Whatever random words decode to: all encodings, odd registers and modifiers."""
    words = np.random.default_rng(5).integers(0, 1 << 32, (40_000, 4), np.uint32)
    prefixes = np.array([0xBF800000, 0xD8000000, 0xDC000000, 0xE0000000, 0xE8000000, 0xD3800000, 0xC0000000], np.uint32)
    words[::2, 0] = words[::2, 0] & 0x03FFFFFF | np.resize(prefixes, words[::2].shape[0])
    found = []
    for word in words:
        try:
            found.append(decode(word.tobytes(), 0, target))
        except DecodeError:
            continue
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_instruction_has_an_effect(target: str) -> None:
    instructions = random_instructions(target)
    assert len({inst.spec for inst in instructions}) > len({spec for spec, _ in table(target).values()}) // 2
    for inst in instructions:
        effect = effect_of(inst)
        assert effect.pending <= effect.access.writes, inst
        assert effect.queue is not None or not effect.pending, inst
        assert effect.access.states >= 1


@pytest.mark.parametrize("mnemonic, queue", [
    ("global_load_dword", VM), ("buffer_store_dword", VM), ("scratch_load_dword", VM), ("flat_load_dword", FLAT),
    ("ds_read_b32", DS), ("ds_bpermute_b32", DS), ("s_load_dword", SMEM), ("s_memtime", SMEM), ("s_sendmsg", MESSAGE),
    ("v_mov_b32", None), ("s_nop", None),
])  # fmt: skip
def test_queues(mnemonic: str, queue: object) -> None:
    spec = next(spec for spec, _ in table("gfx90a").values() if spec.mnemonic == mnemonic)
    assert queue_of(spec) is queue


@pytest.mark.parametrize("target", TARGETS)
def test_the_emitter_reads_its_text_as_the_checker_reads_the_bytes(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysed: dict[str, Effect] = {}

    def noted(instr: Instr, arch: str) -> Effect:
        analysed[instr.text()] = effect = analyse(instr, arch)
        return effect

    monkeypatch.setattr("simgpu.asm.builder.kernel.analyse", noted)
    kernel = asm.emit(TiledComputation(70, 50, 33, target=target, beta=0.5, trans_a=True))
    code = CodeObject.parse(kernel.assemble())
    info = code.kernels[kernel.name]
    instructions = decode_all(code.read(info.start, info.code_size), target)
    lines = [line.split(";")[0].strip() for line in kernel.text.splitlines()]
    body = [line for line in lines[lines.index(f"{kernel.name}:") + 1 :] if line and not line.endswith(":")]
    compared = 0
    for line, inst in zip(body, instructions, strict=False):
        if line in analysed and "branch" not in line:
            text, data = analysed[line], effect_of(inst)
            assert (text.queue, text.pending, text.access.writes) == (data.queue, data.pending, data.access.writes), line
            assert text.access.read() == data.access.read(), line
            assert text.access.classes - {"salu"} == data.access.classes - {"salu"}, line
            compared += 1
    assert compared > 100
