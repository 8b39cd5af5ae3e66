"""Makes the cases of `simgpu.tools.robustness.fuzz` from a `random.Random`: damaged code objects and random instructions."""

from __future__ import annotations

import functools
import random
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import simgpu
from simgpu.asm import assemble
from simgpu.hardware.architectures import TARGETS
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.descriptor import DESCRIPTOR_BYTES
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.errors import DecodeError
from simgpu.hardware.isa.code.decode import MEMORY_PREFIX, SEGMENTS, SOP_PREFIX, decode, table
from simgpu.hardware.isa.instructions.mai import LOAD_SCALE
from simgpu.tools.robustness import hostile
from simgpu.tools.robustness.fuzz_files import FILES

BUFFER_BYTES = 4096
STREAM_DWORDS = 96  # of random code in a stream, and of zeros in the kernel that receives it
ATTEMPTS = 16  # attempts at an encoding's free bits before another instruction is chosen
INTERESTING = (0, 1, 2, 4, 7, 8, 0x40, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
               0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)  # fmt: skip
SPECIAL_DWORDS = (0, 1, 2, 31, 32, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0xFF800000,
                  0x7FC00000, 0x7F800001, 0x00000001, 0x3FF00000, 0x7FF00000, 0x3C003C00)  # fmt: skip

# Loads the operands of the random code: s[8:11] a V# and s[16:47] dwords from the buffer, s[12:13] = v[4:5] = the buffer, v[6:9] a
# row of it, v3 a small offset; LDS offsets are small in v0.
KERNEL = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl fuzz
.p2align 8
.type fuzz,@function
fuzz:
  s_load_dwordx2 s[12:13], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_load_dwordx4 s[8:11], s[12:13], 0x0
  s_load_dwordx16 s[16:31], s[12:13], 0x40
  s_load_dwordx16 s[32:47], s[12:13], 0x80
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v3, 2, v0
  v_mov_b32 v5, s13
  v_add_u32 v4, s12, v3
  global_load_dwordx4 v[6:9], v3, s[12:13] offset:256
  s_mov_b32 m0, -1
  s_waitcnt vmcnt(0) lgkmcnt(0)
  .fill {dwords}, 4, 0
  s_endpgm
.Lend:
.size fuzz, .Lend-fuzz
.section .rodata,"a"
.p2align 6
.amdhsa_kernel fuzz
  .amdhsa_group_segment_fixed_size 4096
  .amdhsa_private_segment_fixed_size 64
  .amdhsa_kernarg_size 64
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_vgpr_workitem_id 0
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 96
  {accum}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - {{ .name: buffer, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global }}
      - {{ .name: n, .offset: 8, .size: 4, .value_kind: by_value }}
      - {{ .name: f, .offset: 12, .size: 4, .value_kind: by_value, .value_type: f32 }}
      - {{ .name: hidden, .offset: 16, .size: 4, .value_kind: hidden_block_count_x }}
      - {{ .name: group, .offset: 20, .size: 2, .value_kind: hidden_group_size_x }}
    .group_segment_fixed_size: 4096
    .kernarg_segment_align: 8
    .kernarg_segment_size: 64
    .max_flat_workgroup_size: 256
    .name: fuzz
    .private_segment_fixed_size: 64
    .sgpr_count: 96
    .symbol: fuzz.kd
    .vgpr_count: 256
    .wavefront_size: 64
amdhsa.target: amdgcn-amd-amdhsa--{target}
amdhsa.version: [1, 2]
...
.end_amdgpu_metadata
"""


@functools.cache
def template(target: str) -> bytes:
    """Assembles a code object with kernel `fuzz`, whose body has room for STREAM_DWORDS dwords."""
    unified = target != "gfx908"
    accum = ".amdhsa_accum_offset 256" if unified else ""
    text = KERNEL.format(
        target=target, dwords=STREAM_DWORDS, accum=accum, vgprs=512 if unified else 256
    )
    return assemble(text, target)


def run(kind: str, rng: random.Random, objects: tuple[str, ...], instructions: int) -> None:
    """Runs the case that `rng` draws; raises the simulator's errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "objects":
            target, data = damaged_object(rng, objects)
            launch_all(rng, target, data, instructions)
        elif kind == "streams":
            target = rng.choice(TARGETS)
            launch_all(rng, target, stream_object(rng, target), instructions)
        elif kind == "cache":
            hostile.damage_cache(rng)
        elif kind == "arrays":
            hostile.read_array(rng)
        elif kind in FILES:
            FILES[kind](rng, template("gfx90a"))
        else:
            target = rng.choice(TARGETS)
            hostile.read_all(hostile.GENERATORS[kind](rng, source(target).data, target), target)


# -- launching -----------------------------------------------------------------------------------


def launch_all(rng: random.Random, target: str, data: bytes, instructions: int) -> None:
    """Loads `data` and launches its first kernels with arguments by its metadata."""
    gpu = simgpu.Device(target, threads=1, max_instructions=instructions)
    module = gpu.load(data)
    buffer = gpu.alloc(BUFFER_BYTES)
    buffer.write(np.array(contents(rng, buffer.address), np.uint32))
    for name in list(module)[:2]:
        kernel = module[name]
        args = [_argument(rng, argument.size, argument.is_pointer, buffer) for argument in kernel.arguments]
        block, size = _geometry(rng, kernel.info)
        try:
            kernel.launch(global_size=size, block=block, args=args, dynamic_lds=rng.choice((0, 64, 1024)))
        finally:
            _no_internal_errors(module)


def _no_internal_errors(module: simgpu.Module) -> None:
    """Raises RuntimeError for a reachable instruction that could not be lowered for an internal reason."""
    for program in module.programs:
        for why in program.problems.values():
            if why.startswith("internal"):
                raise RuntimeError(why)


def contents(rng: random.Random, address: int) -> list[int]:
    """Draws dwords of the buffer: a V#, addresses inside, special and random values."""
    words = [
        rng.choice(SPECIAL_DWORDS) if rng.random() < 0.5 else rng.getrandbits(32)
        for _ in range(BUFFER_BYTES // 4)
    ]
    stride = rng.choice((0, 0, 4, 16, rng.getrandbits(14)))
    flags = rng.choice((0, rng.getrandbits(32)))
    words[:4] = [address & 0xFFFFFFFF, address >> 32 | stride << 16, rng.choice((64, BUFFER_BYTES)), flags]
    for at in range(16, 48, 4):
        inside = address + 4 * rng.randrange(BUFFER_BYTES // 8)
        words[at : at + 2] = [inside & 0xFFFFFFFF, inside >> 32]
    return words


def _argument(rng: random.Random, size: int, pointer: bool, buffer: simgpu.Buffer) -> object:
    if pointer:
        return buffer
    if size == 8 and rng.random() < 0.5:
        return buffer.address + 8 * rng.randrange(16)
    return rng.randrange(64).to_bytes(min(size, 4096), "little") if size else b""


def _geometry(rng: random.Random, info: KernelInfo) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draws block and work-items of a small launch, often with a partial last workgroup."""
    required = info.required_workgroup_size
    drawn = rng.choice(((64, 1, 1), (1, 1, 1), (96, 1, 1), (8, 8, 1), (4, 4, 8)))
    block = required if len(required) == 3 else drawn
    return block, tuple(b * rng.randrange(1, 3) + rng.choice((0, 0, b // 2)) for b in block[:2])


# -- damaged code objects ------------------------------------------------------------------------


@dataclass(frozen=True)
class IntactObject:
    """An intact code object, and the byte ranges of its parts that are worth damaging."""

    target: str
    data: bytes
    ranges: tuple[tuple[int, int], ...]


@functools.cache
def source(path: str) -> IntactObject:
    """Reads a file; for a target's name, makes the template with some instructions in it."""
    if path in TARGETS:
        rng = random.Random(path)
        data = stream_object(rng, path)
    else:
        data = Path(path).read_bytes()
    code = CodeObject.parse(data)
    data = code.data  # a bundle's entry
    ranges = [(0, 64 + 56 * 8), (max(0, len(data) - 64 * 16), len(data))]
    note = data.find(b"AMDGPU\0\0")
    if note >= 0:
        size = struct.unpack_from("<I", data, note - 8)[0]
        ranges.append((note - 12, note + 8 + size))
    for kernel in code.kernels.values():
        ranges.append(_in_file(data, code.read(kernel.descriptor_address, DESCRIPTOR_BYTES)))
        body = _in_file(data, code.read(kernel.start, min(256, kernel.code_size)))
        ranges += [body, (body[0], body[0] + kernel.code_size)]
    return IntactObject(code.target, data, tuple((a, min(b, len(data))) for a, b in ranges if a < b))


def _in_file(data: bytes, piece: bytes) -> tuple[int, int]:
    at = data.find(piece)
    return (at, at + len(piece)) if at >= 0 else (0, len(data))


def damaged_object(rng: random.Random, objects: tuple[str, ...]) -> tuple[str, bytes]:
    """Returns target and bytes of a code object after one to four kinds of damage."""
    chosen = source(rng.choice(objects or TARGETS))
    data = bytearray(chosen.data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        first, last = rng.choice(chosen.ranges) if rng.random() < 0.9 else (0, len(data))
        last = min(last, len(data))
        if first >= last:
            continue
        at = rng.randrange(first, last)
        kind = rng.randrange(8)
        if kind == 0:
            for _ in range(rng.randrange(1, 9)):
                data[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.getrandbits(8)
        elif kind == 2:
            at -= at % 4
            data[at : at + 4] = struct.pack("<I", rng.choice(INTERESTING))
        elif kind == 3:
            at -= at % 8
            value = rng.choice((rng.choice(INTERESTING), rng.getrandbits(64), (1 << 64) - 1, 1 << 63))
            data[at : at + 8] = struct.pack("<Q", value)
        elif kind == 4:
            count = rng.randrange(1, 65)
            data[at : at + count] = rng.randbytes(count)
        elif kind == 5:
            count = rng.randrange(1, 65)
            other = rng.randrange(len(data))
            data[at : at + count] = data[other : other + count]
        elif kind == 6:
            at -= at % 4
            word = int.from_bytes(data[at : at + 4], "little") + rng.choice((-256, -8, -1, 1, 8, 256, 1 << 16))
            data[at : at + 4] = struct.pack("<I", word & 0xFFFFFFFF)
        elif rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        elif rng.random() < 0.5:
            del data[at : at + rng.randrange(1, 33)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 33))
    return chosen.target, bytes(data)


# -- random instructions -------------------------------------------------------------------------


def stream_object(rng: random.Random, target: str) -> bytes:
    """Fills the template with random code: one stream in four is raw dwords."""
    data = bytearray(template(target))
    body = bytes(4 * STREAM_DWORDS)
    at = data.index(body)
    if rng.random() < 0.25:
        code = rng.randbytes(4 * rng.randrange(1, STREAM_DWORDS + 1))
    else:
        code = b"".join(instruction(rng, target) for _ in range(rng.randrange(1, 24)))
    end = struct.pack("<I", 0xBF810000)  # s_endpgm
    code = code[: len(body)] + end * ((len(body) - len(code[: len(body)])) // 4)
    data[at : at + len(body)] = code
    return bytes(data)


@functools.cache
def prefixes(target: str) -> tuple[tuple[str, int, int], ...]:
    """Returns each opcode of the target: encoding, the fixed bits of its first dword, and their mask."""
    fixed: dict[str, tuple[int, int, int]] = {
        "vop1": (0x3F << 25, 9, 0xFF), "vopc": (0x3E << 25, 17, 0xFF), "vop2": (0, 25, 0x3F),
        "sopk": (0xB << 28, 23, 0x1F), "sop2": (0x2 << 30, 23, 0x7F), "vop3p": (0x1A7 << 23, 16, 0x7F),
        **{name: (high << 23, shift, mask) for high, (name, shift, mask) in SOP_PREFIX.items()},
        **{name: (high << 26, shift, mask) for high, (name, shift, mask) in MEMORY_PREFIX.items()},
    }  # fmt: skip
    rows = []
    for encoding, opcode in table(target):
        flat = encoding in SEGMENTS
        base, shift, mask = fixed["flat" if flat else "vop3p" if encoding == "scaled" else encoding]
        segment = SEGMENTS.index(encoding) << 14 if flat else 0
        lowest = 25 if encoding in ("vop1", "vop2", "vopc") else 26 if base >> 26 in MEMORY_PREFIX else 23
        covered = 0xFFFFFFFF >> lowest << lowest | mask << shift | (3 << 14 if flat else 0)
        rows.append((encoding, base | opcode << shift | segment, covered))
    return tuple(rows)


def instruction(rng: random.Random, target: str) -> bytes:
    """Draws an instruction that decodes, mostly with operands that hold something useful."""
    while True:
        rows = prefixes(target)
        if rng.random() < 0.4:
            wanted = rng.choice(sorted({row[0] for row in rows}))
            rows = tuple(row for row in rows if row[0] == wanted)
        encoding, bits, mask = rng.choice(rows)
        for _ in range(ATTEMPTS):
            low = rng.getrandbits(32) & ~mask | bits
            high = rng.getrandbits(32)
            if rng.random() < 0.85:
                low, high = tame(rng, encoding, low, high)
                low = low & ~mask | bits
            raw = struct.pack("<II", low, high)
            if encoding == "scaled":
                load = 0x1A7 << 23 | LOAD_SCALE << 16
                raw = struct.pack("<II", load, rng.getrandbits(32)) + raw
            try:
                found = decode(raw, 0, target)
            except DecodeError:
                continue
            return raw[: found.size]


def tame(rng: random.Random, encoding: str, low: int, high: int) -> tuple[int, int]:
    """Changes the free bits so that addresses and jumps stay inside the kernel's set-up."""
    def put_field(word: int, shift: int, count: int, value: int) -> int:
        return word & ~(((1 << count) - 1) << shift) | value << shift

    small = rng.choice((0, 4, 8, 16, 60))
    if encoding in ("sopp", "sopk"):
        return put_field(low, 0, 16, rng.choice((0, 1, 2, 3, 8, 0xFFFF, 0xFFFE, 0xFFFC))), high
    if encoding == "smem":
        low = put_field(low, 0, 6, rng.choice((4, 6, 8, 10)))
        return put_field(low, 14, 4, 0b1000), put_field(high, 0, 32, small)
    if encoding in ("flat", "global", "scratch"):
        wide = encoding == "flat" or (encoding == "global" and rng.random() < 0.5)
        saddr = 0x7F if wide or encoding == "scratch" else 12
        high = put_field(high, 16, 7, saddr)
        return put_field(low, 0, 14, small), put_field(high, 0, 8, 4 if wide else 3)
    if encoding == "ds":
        return put_field(low, 0, 17, small), put_field(high, 0, 8, rng.choice((0, 3)))  # no gds
    if encoding in ("mubuf", "mtbuf"):
        high = put_field(put_field(high, 0, 8, rng.choice((0, 2, 3))), 16, 5, rng.choice((2, 2, 4, 8)))
        return put_field(low, 0, 12, small), put_field(high, 24, 8, 128)
    if encoding in ("vop3", "vop3p", "scaled"):
        for shift in (0, 9, 18):
            code = rng.choice((256 + 2 * rng.randrange(8), 128 + rng.randrange(65), 240, 4 * rng.randrange(24)))
            high = put_field(high, shift, 9, code)
        if rng.random() < 0.5:  # no modifiers; 3 in op_sel_hi is their default
            low = put_field(low, 8, 8, 0)
            high = put_field(high, 27, 5, 3 if encoding == "vop3p" else 0)
        return put_field(low, 0, 8, 4 * rng.randrange(24)), high
    return low, high
