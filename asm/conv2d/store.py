"""The end of a convolution: a wave's pixels by channels from accumulators to rows of Y, or of its part of the sum."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.pixels import pixel_offset
from simgpu.asm.conv2d.place import Place, find_lane
from simgpu.asm.parts.buffers import ELEMENT_STORES, raw_buffer
from simgpu.asm.parts.integer_math import add_product, log2
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.tiles import Conv2dPlan

SLOTS = 4  # stores in flight, each with its data and its address


def store(k: KernelBuilder, plan: Conv2dPlan, place: Place, pointer: Reg, acc: Reg, atoms: tuple[int, int]) -> None:
    """Stores Y[oc][pixel] of every atom: lane i has pixel i, element r of group g channel 4g + r, in f64 4r + g.

    pointer: of Y, or of the parts of its sum; acc: the accumulators of `atoms` along channels and pixels. Pixels outside of Y get
    offsets outside, the buffer ends with the group's channels.
    """
    p, tile = plan.problem, place.tile
    size, words = dtype(p.dtype_c).bytes, dtype(p.dtype_c).registers
    channels_a_group, channels_an_element = (4, 1) if words == 1 else (1, plan.atom.lane_groups)
    image = p.oh * p.ow * size
    k.comment(f"Y: {atoms[0]} x {atoms[1]} atoms of a wave to memory")
    resource, channels = k.s.alloc("Y buffer", 4), k.s.alloc("channels")
    raw_buffer(k, resource, pointer, (0, 0), "Y")
    places = [(tile["image"], p.oc), (tile["group"], p.ocg), (tile["OC tile"], plan.tile_oc), (tile["part"], p.n * p.oc)]
    for index, count in places[: 4 if plan.split_ic > 1 else 3]:
        add_product(k, resource[0:2], index, count * image)
    k.s_mul_i32(channels, tile["OC tile"], plan.tile_oc)
    k.s_sub_u32(channels, p.ocg, channels)
    k.s_min_u32(channels, channels, plan.tile_oc)
    k.s_mul_i32(resource[2], channels, image, note="the channels that are left")
    lane, group = find_lane(k)
    channel = k.v.alloc("channel offset")
    k.s_mul_i32(channels, place.wave_channel, plan.tile_oc // plan.waves_oc)
    k.v_mul_u32_u24(group, channels_a_group, group)
    k.v_add_u32(group, channels, group, note="lane's first channel in the tile")
    k.s_mov_b32(channels, image)
    k.v_mul_lo_u32(channel, group, channels)
    slots = [(k.v.alloc("Y data", words), k.v.alloc("Y offset")) for _ in range(SLOTS)]
    first, row = k.s.alloc("wave's first row"), k.v.alloc("row")
    k.s_mul_i32(first, place.wave_pixel, plan.pixels // plan.waves_p // plan.tile_ow)
    scratch = k.s.alloc("scratch")
    k.s_mul_i32(scratch, tile["OH tile"], plan.tile_oh)
    k.s_add_u32(first, first, scratch)
    k.s_mul_i32(scratch, tile["OW tile"], plan.tile_ow)
    shift = log2(plan.tile_ow)
    k.v_lshrrev_b32(row, shift, lane)
    k.v_and_b32(lane, plan.tile_ow - 1, lane)
    k.v_add_u32(lane, scratch, lane, note="column of Y")
    k.v_add_u32(row, first, row, note="row of Y")
    number = 0
    for pixel in range(atoms[1]):
        if pixel:
            k.v_add_u32(row, plan.atom.m // plan.tile_ow, row)
        pixel_offset(k, group, (row, lane), (p.oh, p.ow), channel, size, "pixels outside of Y: outside")
        for oc in range(atoms[0]):
            for r in range(plan.atom.acc_registers // words):
                data, address = slots[number % SLOTS]
                number += 1
                start = (oc * atoms[1] + pixel) * plan.atom.acc_registers + r * words
                for word in range(words):
                    k.v_accvgpr_read_b32(data[word], acc[start + word])
                channel_number = oc * plan.atom.n + r * channels_an_element
                k.v_add_u32(address, channel_number * image, group)
                k.emit(f"buffer_store_{ELEMENT_STORES[size]}", data, address, resource, 0, offen=True,
                       note=f"Y atom {oc},{pixel}: channel {channel_number} + {channels_a_group}g")  # fmt: skip
