"""Kernel builder: registers, operand checks, loops, LDS, arguments, and the code object."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.builder.interleave import Backlog, overlap, stream
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import RegisterFile, operand_text
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import ResourceError, TargetError, ToolchainError
from simgpu.hardware.isa.instruction import EXEC, M0, VCC, Reg

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
v, s, a = (RegisterFile(letter, 256) for letter in "vsa")


def builder(target="gfx908"):
    return KernelBuilder("kernel", target, 64)


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        (v[0], "v0"),
        (v[0:3], "v[0:3]"),
        (v[4:7][0], "v4"),
        (v[4:7][1:3], "v[5:6]"),
        (a[0:15], "a[0:15]"),
        (Reg("s", VCC, 2), "vcc"),
        (Reg("s", EXEC), "exec_lo"),
        (Reg("s", M0), "m0"),
        (-16, "-16"),
        (64, "64"),
        (65, "0x41"),
        (-17, "0xffffffef"),
        (0x80000000, "0x80000000"),
        (1.0, "1.0"),
        (-2.0, "-2.0"),
        (0.0, "0"),
        (3.0, "0x40400000"),
        ("off", "off"),
    ],
)
def test_operands_are_spelt_as_llvm_spells_them(operand, text):
    assert operand_text(operand) == text


def test_ranges_are_handed_out_lowest_first_and_aligned():
    file = RegisterFile("v", 16)
    one, four = file.alloc("one"), file.alloc("four", 4)
    assert (one, four) == (v[0], v[1:4])
    file.free(one)
    assert file.alloc("two", 2) == v[5:6] and file.alloc("again") == v[0]
    even = RegisterFile("v", 16, even=True)
    even.alloc("one")
    assert even.alloc("pair", 2) == v[2:3]
    scalars = RegisterFile("s", 102)
    scalars.alloc("one")
    assert scalars.alloc("resource", 4) == s[4:7] and scalars.alloc("pair", 2) == s[2:3]
    with pytest.raises(ResourceError, match="no 12 consecutive registers left for more in file v: 9 of 16"):
        file.alloc("more", 12)
    with pytest.raises(ResourceError, match="v0 is freed twice"):
        file.free(v[0], v[0])


@pytest.mark.parametrize(
    ("emit", "error", "message"),
    [
        (lambda k: k.v_add_f32(v[1], v[2]), ToolchainError, "2 operands, it takes 3"),
        (lambda k: k.v_add_f32(v[1], v[2:3], v[4]), ToolchainError, "2 registers, it takes 1"),
        (lambda k: k.s_add_u32(s[1], s[2:3], 1), ToolchainError, "2 registers, it takes 1"),
        (lambda k: k.buffer_load_dwordx4(v[0:2], v[9], s[4:7], 0), ToolchainError, "it takes 4"),
        (lambda k: k.buffer_load_dword(v[0], v[9], s[4:5], 0), ToolchainError, "it takes 4"),
        (lambda k: k.ds_read_b128(v[0:1], v[9]), ToolchainError, "it takes 4"),
        (lambda k: k.ds_write_b64(v[9], v[0]), ToolchainError, "it takes 2"),
        (lambda k: k.s_load_dwordx4(s[4:5], s[0:1], 0), ToolchainError, "it takes 4"),
        (lambda k: k.v_mfma_f32_16x16x4f32(a[0:2], v[1], v[2], a[0:3]), ToolchainError, "it takes 4"),
        (lambda k: k.v_pk_fma_f32(v[0:1], v[2:3], v[4:5], v[6:7]), TargetError, "gfx908 has no"),
        (lambda k: k.v_no_such(v[1]), TargetError, "v_no_such"),
    ],
)
def test_operands_are_checked_against_the_instruction_set(emit, error, message):
    with pytest.raises(error, match=message) as caught:
        emit(builder())
    assert error is TargetError or "test_builder.py:" in str(caught.value)


def test_unknown_attributes_are_no_instructions():
    with pytest.raises(AttributeError):
        builder().nonsense(1)


def test_each_instruction_remembers_its_line():
    k = builder()
    k.v_mov_b32(v[1], 0, note="nought")
    line = sys._getframe().f_lineno - 1
    (instr,) = k.items
    assert instr.where == f"asm/test_builder.py:{line}"
    assert f"; nought  [asm/test_builder.py:{line}]" in k.finish().text


def test_registers_of_a_block_are_freed_but_for_those_it_keeps():
    k = builder()
    before = k.v.alloc("before", 2)
    with k.block_registers() as kept:
        kept.append(k.v.alloc("kept", 4))
        k.v.alloc("temporary", 3)
        k.v.free(before[1])
    assert [index for index, used in enumerate(k.v.in_use()) if used] == [0, before.index, *range(kept[0].index, kept[0].index + 4)]
    assert "temporary" in [name for _, name in k.v.names]


def test_widths_follow_from_the_data_and_moves_from_the_files():
    k = builder()
    k.ds_read(v[4:7], v[0], offset=16)
    k.ds_write(v[0], v[4:5])
    k.buffer_load(v[1], v[0], s[4:7], 0, offen=True)
    k.move(a[0:1], v[4:5])
    k.move(v[4:5], a[0:1])
    k.move(v[4], 0)
    with k.lanes("vcc"):
        pass
    assert [instr.text() for instr in k.items] == [
        "ds_read_b128 v[4:7], v0 offset:16", "ds_write_b64 v0, v[4:5]", "buffer_load_dword v1, v0, s[4:7], 0 offen",
        "v_accvgpr_write_b32 a0, v4", "v_accvgpr_write_b32 a1, v5", "v_accvgpr_read_b32 v4, a0", "v_accvgpr_read_b32 v5, a1",
        "v_mov_b32 v4, 0", "s_mov_b64 exec, vcc", "s_mov_b64 exec, -1",
    ]  # fmt: skip


def test_lds_regions_are_aligned_and_bounded():
    k = builder()
    first, second = k.region("first", 20), k.region("second", 64)
    assert (first.offset, second.offset, k.lds_bytes) == (0, 32, 96)
    with pytest.raises(ResourceError, match="gfx908 has 65536 for a workgroup"):
        k.region("third", 65536)
    builder("gfx950").region("all", 163840)


@pytest.mark.parametrize("target", TARGETS)
def test_the_object_says_what_the_instructions_use(target):
    k = builder(target)
    k.argument("x", 8, "global_buffer")
    k.argument("n", 4, value_type="i32")
    k.argument("y", 8, "global_buffer")
    k.argument("scale", 4, value_type="f32")
    k.region("tile", 1024)
    arguments = k.load_arguments()
    high = k.v.reserve(40, 1, "high")[0]
    k.v_mul_f32(high, arguments["scale"], high)
    k.v_accvgpr_write_b32(a[20], high)
    k.s_mov_b32(s[50], arguments["n"])
    k.s_endpgm()
    finished = k.finish()
    text, used = finished.text, finished.resources
    assert (used.vgprs, used.agprs, used.sgprs, used.lds) == (41, 21, 51, 1024)
    code = CodeObject.parse(asm.assemble(text, target))
    kernel = code.kernels["kernel"]
    descriptor = kernel.descriptor
    assert [(x.name, x.offset, x.size, x.value_kind) for x in kernel.arguments] == [
        ("x", 0, 8, "global_buffer"),
        ("n", 8, 4, "by_value"),
        ("y", 16, 8, "global_buffer"),
        ("scale", 24, 4, "by_value"),
    ]
    assert kernel.kernarg_size == descriptor.kernarg_size == 28
    assert kernel.group_segment_size == descriptor.group_segment_size == 1024
    assert kernel.max_flat_workgroup_size == 64 and kernel.required_workgroup_size == (64, 1, 1)
    assert descriptor.accum_offset == (0 if target == "gfx908" else 44)
    assert descriptor.vgprs == (44 if target == "gfx908" else 72)
    assert descriptor.sgprs >= 57 and descriptor.user_sgprs == 2
    assert descriptor.enable_kernarg_segment_ptr and not descriptor.enable_private_segment_buffer
    assert descriptor.enable_workgroup_id_x and descriptor.enable_workgroup_id_y
    assert not descriptor.enable_workgroup_id_z and descriptor.workitem_id_mode == 0
    assert (descriptor.denorm_f32, descriptor.denorm_f16_f64, descriptor.ieee_mode) == (3, 3, True)
    assert kernel.agpr_count == 21


def test_loops_count_down_at_the_end_or_in_the_middle():
    k = builder()
    with k.loop("outer", s[8]), k.loop("inner", s[9], step=4) as inner:
        k.v_mov_b32(v[1], 0)
        inner.countdown()
        k.v_mov_b32(v[2], 0)
    k.s_endpgm()
    lines = [line.split(";")[0].strip() for line in k.finish().text.splitlines()]
    body = [line for line in lines if line][lines.index("kernel:") - len(lines) :]
    assert body[body.index(".Lkernel_outer_0:") : body.index("s_endpgm") + 1] == [
        ".Lkernel_outer_0:",
        ".Lkernel_inner_0:",
        "v_mov_b32 v1, 0",
        "s_sub_u32 s9, s9, 4",
        "s_cmp_le_i32 s9, 0",
        "s_cbranch_scc1 .Lkernel_inner_exit_0",
        "v_mov_b32 v2, 0",
        "s_branch .Lkernel_inner_0",
        ".Lkernel_inner_exit_0:",
        "s_sub_u32 s8, s8, 1",
        "s_cmp_gt_i32 s8, 0",
        "s_cbranch_scc1 .Lkernel_outer_0",
        ".Lkernel_outer_exit_0:",
        "s_endpgm",
    ]


@given(st.lists(st.tuples(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=6)), max_size=20), st.integers(1, 4))
def test_what_hides_behind_others_comes_late_but_not_too_late(steps, room):
    """Hidden instructions stay in order, at most `room` after each instruction, but precede any use of the same register."""
    k = KernelBuilder("x", "gfx90a", 64)
    backlog, first, hidden = Backlog(k, room), [], []
    for register, fillers in steps:
        with stream(k) as main:
            k.v_mov_b32(v[register], 1)
        with stream(k) as behind:
            for other in fillers:
                k.v_mov_b32(v[other], 2)
        backlog.emit(main)
        backlog.hide(behind)
        first += main
        hidden += [(item, other, len(first)) for item, other in zip(behind, fillers, strict=True)]
    backlog.flush()
    place = {id(item): number for number, item in enumerate(k.items)}
    assert len(place) == len(k.items) == len(first) + len(hidden)
    assert [item for item in k.items if any(item is x for x in first)] == first
    assert [item for item in k.items if any(item is x for x, _, _ in hidden)] == [item for item, _, _ in hidden]
    for item, other, after in hidden:
        assert place[id(item)] > place[id(first[after - 1])]
        assert all(place[id(item)] < place[id(first[n])] for n in range(after, len(first)) if steps[n][0] == other)
    for n, main in enumerate(first[:-1]):  # a register's use may force more than `room`
        between = k.items[place[id(main)] + 1 : place[id(first[n + 1])]]
        assert len(between) <= room or between[-1].operands == (v[steps[n + 1][0]], 2)


def test_reads_of_lds_overtake_what_waits_but_no_barrier_and_nothing_of_their_registers():
    """Expects the first read after the barrier, and the last after the instruction that computes its address."""
    k = KernelBuilder("x", "gfx90a", 64)
    backlog = Backlog(k, 1)
    with stream(k) as behind:
        k.v_mov_b32(v[1], 0)
        k.s_barrier()
        k.v_mov_b32(v[2], 0)
        for target, address in ((4, 3), (5, 3), (6, 2)):
            k.ds_read_b32(v[target], v[address])
    order = [0, 1, 3, 4, 2, 5]
    backlog.hide(behind)
    for _ in order[1:]:
        backlog.hide(())
    assert [next(n for n, item in enumerate(behind) if item is one) for one in k.items] == order


def test_overlap_hides_fillers_and_keeps_scalar_ones_before_a_barrier():
    def emitted(filler):
        k = KernelBuilder("overlap", "gfx942", 64)

        def products():
            for number in range(4):
                k.v_mov_b32(k.v[1], number)
                if number == 1:
                    k.s_barrier()

        overlap(k, 1, products, lambda: filler(k))
        return [item.text() for item in k.items]

    vector = emitted(lambda k: [k.v_mov_b32(k.v[2], 8), k.v_mov_b32(k.v[3], 9)])
    scalar = emitted(lambda k: [k.s_mov_b32(k.s[4], 8), k.v_mov_b32(k.v[3], 9)])
    assert [text for text in vector if "v2" not in text and "v3" not in text] == [
        "v_mov_b32 v1, 0", "v_mov_b32 v1, 1", "s_barrier", "v_mov_b32 v1, 2", "v_mov_b32 v1, 3",
    ]  # fmt: skip
    assert vector.index("v_mov_b32 v3, 9") > vector.index("s_barrier")
    assert scalar.index("v_mov_b32 v3, 9") < scalar.index("s_barrier")
    assert scalar.index("s_mov_b32 s4, 8") > scalar.index("v_mov_b32 v1, 0")
