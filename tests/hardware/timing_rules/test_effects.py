"""Effects of decoded instructions: every instruction has them, and emitted instructions equal their decoded bytes."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from simgpu import asm
from simgpu.asm.builder.instruction import Instr, set_instruction
from simgpu.hardware import target as board
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa import decode, decode_all
from simgpu.hardware.isa.code.decode import table
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import effect_of, lds_use_of
from simgpu.hardware.timing_rules.waits import DS, FLAT, MESSAGE, SMEM, VM, queue_of
from simgpu.operators import (
    AttentionProblem,
    Band,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
)
from tests.support.clang import assemble
from tests.support.exhaustive import one_in

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


@functools.cache
def random_instructions(target: str) -> list[Instruction]:
    """Returns instructions decoded from random words: all encodings, odd registers and modifiers."""
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


@pytest.mark.parametrize("target", one_in(2, TARGETS))
def test_every_instruction_has_an_effect(target: str) -> None:
    instructions = random_instructions(target)
    assert len({inst.spec for inst in instructions}) > len({spec for spec, _ in table(target).values()}) // 2
    for inst in instructions:
        effect = effect_of(inst)
        assert effect.pending <= effect.access.writes, inst
        assert effect.queue is not None or not effect.pending, inst
        assert effect.access.states >= 1
        assert effect.lds == lds_use_of(inst), inst


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("source", ["s7", "vcc_hi", "v3", "1.0"])
def test_an_accumulator_move_reads_what_a_move_reads(target: str, source: str) -> None:
    """A scalar source follows the rules of scalar registers that vector instructions read."""
    move, plain = assemble([f"v_accvgpr_write_b32 a1, {source}", f"v_mov_b32 v1, {source}"], target)
    assert move and plain
    accesses = [effect_of(decode(line.code, 0, target)).access for line in (move, plain)]
    assert accesses[0].reads == accesses[1].reads
    assert accesses[0].writes == {("a", 1)} and {"valu", "accvgpr_write"} <= accesses[0].classes


@pytest.mark.parametrize("mnemonic, queue", [
    ("global_load_dword", VM), ("buffer_store_dword", VM), ("scratch_load_dword", VM), ("flat_load_dword", FLAT),
    ("ds_read_b32", DS), ("ds_bpermute_b32", DS), ("s_load_dword", SMEM), ("s_memtime", SMEM), ("s_sendmsg", MESSAGE),
    ("v_mov_b32", None), ("s_nop", None),
])  # fmt: skip
def test_queues(mnemonic: str, queue: object) -> None:
    spec = next(spec for spec, _ in table("gfx90a").values() if spec.mnemonic == mnemonic)
    assert queue_of(spec) is queue


def emitted(target: str) -> Iterator[asm.EmittedKernel]:
    """Yields kernels of every operator, with its special features: masks, splits, second kernels."""
    for name in sorted({"f32", "f16", "f64", "fp8"} & set(board(target).dtypes())):
        yield asm.emit(TiledComputation(70, 50, 33, target, dtype=name, beta=0.5, trans_a=True))
    yield asm.emit(TiledComputation(40, 50, 3000, target, bias=True, activation="gelu"))
    yield asm.emit(Softmax(SoftmaxProblem(70, 900, "f16", mask=True, band=Band(9, -9, 1)), target))
    yield asm.emit(Softmax(SoftmaxProblem(1, 300000, "bf16"), target))
    yield asm.emit(Conv2d(Conv2dProblem(1, 64, 14, 14, 32, 3, 3, dtype="f16"), target))
    yield asm.emit(FusedAttention(AttentionProblem(150, 170, 80, 2, causal=True, dtype="bf16"), target))
    for values in ("mfma", "fma"):
        yield asm.emit(FusedAttention(AttentionProblem(70, 200, 48, dtype="f16"), target, "published", values))


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_emitter_builds_is_what_its_bytes_decode_to(target: str) -> None:
    """Compares every instruction of every kernel: specification, operands, modifiers, and so its effect."""
    compared: set[str] = set()
    for kernel in emitted(target):
        code = CodeObject.parse(kernel.assemble())
        for step in kernel.steps:
            info = code.kernels[step.name]
            decoded = decode_all(code.read(info.start, info.code_size), target)
            instructions = [item for item in step.items if isinstance(item, Instr)]
            assert len(decoded) == len(instructions)
            for instr, inst in zip(instructions, decoded, strict=True):
                assert instr.effect == effect_of(inst), instr.text()
                if instr.target or instr.mnemonic == "s_waitcnt":  # their operands are words
                    continue
                made = set_instruction(instr, target)
                mods = {**made.mods, "offset": inst.mods["offset"]} if instr.mnemonic == "ds_swizzle_b32" else made.mods
                assert (made.spec, made.args, mods) == (inst.spec, inst.args, inst.mods), instr.text()
                assert (made.form == "dpp") == (inst.form == "dpp") and inst.src_mods == made.src_mods, instr.text()
                compared.add(inst.mnemonic)
    assert len(compared) > 100


def test_effects_are_equal_in_other_processes() -> None:
    """Hashes of strings differ between processes, so an effect's must not travel with it."""
    effect = effect_of(decode(bytes.fromhex("00010208"), 0, "gfx942"))
    hash(effect)
    program = """import pickle, sys
effect = pickle.load(sys.stdin.buffer)
print(hash(effect) == hash((effect.access, effect.queue, effect.pending, effect.lds, effect.dma, effect.control)))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(effect), capture_output=True, env=environment, check=True
    )
    assert done.stdout == b"True\n"
