"""End of a convolution: stores a wave's accumulators, through the epilogue to Y, or as partial sums."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.pixels import pixel_offset
from simgpu.asm.conv2d.place import ConvPlace, find_lane
from simgpu.asm.conv2d.reduce import PARTS
from simgpu.asm.parts.buffers import REACH, buffer_at, clip
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import log2
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.conv2d.tree import Conv2d

SLOTS = 4  # elements' stores in flight, each with its own data and address registers


class Store:
    """Emits the store of Y[oc][pixel] of every atom. Lane i has pixel i; element r of group g is channel 4g + r (f64: 4r + g).

    acc: accumulators of `atoms`, (atoms along channels, along pixels). Pixels outside Y have the offset OUTSIDE. In nchw the buffer
    ends with the merged group's channels. In nhwc it ends with the image, and channels after the group's also have the offset
    OUTSIDE; a lane stores four adjacent channels at once if the channel counts are multiples of 4.
    """

    def __init__(
        self, k: KernelBuilder, root: Conv2d, place: ConvPlace, arguments: dict[str, Reg], acc: Reg, atoms: tuple[int, int]
    ):  # fmt: skip
        plan: Conv2dPlan = root.plan
        self.k, self.plan, self.place, self.arguments, self.acc, self.atoms = k, plan, place, arguments, acc, atoms
        p = plan.problem
        self.channels, *view = (len(root.axes[axis]) for axis in ("oc", "oh", "ow"))
        self.view = view[0], view[1]  # rows and columns of Y
        self.tile_oc, self.tile_oh, self.tile_ow = (root.loop(axis).tile for axis in ("oc", "oh", "ow"))
        self.sums = plan.second_pass  # True: partial sums are stored, not Y
        self.last = p.layout == "nhwc"
        kind, compute = (p.accumulator, p.accumulator) if self.sums else (p.dtype_c, p.gemm.epilogue_type)
        self.epilogue = Epilogue(k, compute, arguments.get("alpha"), None, "none" if self.sums else p.activation, p.accumulator)
        self.elements = Elements(k, kind, compute, arguments.get("scale_c"))
        self.size, self.words = self.elements.size, self.elements.words
        self.with_bias = "bias" in arguments
        # Consecutive channels of a lane, and distance in channels from one element of a lane to the next.
        self.run, self.apart = (4, 1) if dtype(p.accumulator).registers == 1 else (1, plan.atom.lane_groups)
        self.together = self.run if self.last and not (plan.merged.ocg % 4 or p.oc % 4 or self.channels % 4) else 1
        self.image = p.oh * p.ow * self.size  # bytes of a channel, whose pixels are adjacent unless channels are last
        self.pixel = p.oc * self.size if self.last else self.size

    def emit(self) -> None:
        """Emits everything up to the last store."""
        k, plan = self.k, self.plan
        k.comment(f"Y: {self.atoms[0]} x {self.atoms[1]} atoms of a wave to memory")
        resource, left = self.buffer()
        channel, offset, row, column = self._lane()
        self.epilogue.prepare()
        self.elements.prepare()
        bias = self.bias_buffer(channel, left)
        scratch = self.epilogue.scratch()
        spare = k.v.alloc("spare") if self.size < 4 else Reg("v", 0, 0)
        slots = [(k.v.alloc("Y data", self.words * self.together), k.v.alloc("Y offset")) for _ in range(SLOTS // self.together)]
        pixels = self._pixels(row, column, offset)
        per_atom = plan.atom.acc_registers // dtype(plan.problem.accumulator).registers
        number = 0
        for oc in range(self.atoms[0]):
            for first in range(0, per_atom, self.run):
                place = oc * plan.atom.n + first * self.apart
                added = self.load_bias(bias, place)
                for pixel in range(self.atoms[1]):
                    for r in range(0, self.run, self.together):
                        data, address = slots[number % len(slots)]
                        number += 1
                        elements = [data[e * self.words : (e + 1) * self.words] for e in range(self.together)]
                        self._finish(elements, (oc, pixel, first + r), added[r : r + self.together], scratch)
                        stored = self.elements.narrow(elements, spare)
                        self._store(stored, pixels[pixel], (address, channel, left), place + r, resource)

    # -- buffers and offsets ---------------------------------------------------------------------

    def buffer(self) -> tuple[Reg, Reg]:
        """Returns Y's buffer, and an SGPR with the channels from the tile's first to the group's last."""
        k, p, tile = self.k, self.plan.problem, self.place.tile
        names = "channels left", "first channel", "tile's first channel in the group"
        resource, (left, first, place) = k.s.alloc("Y buffer", 4), map(k.s.alloc, names)
        each = self.size if self.last else self.image
        k.s_mul_i32(place, tile["OC tile"], self.tile_oc)
        k.s_mul_i32(first, tile["group"], self.plan.merged.ocg)
        k.s_add_u32(first, first, place, note="the tile's first channel")
        self.place.channels_left(k, left, place, self.channels, p.oc)
        if self.place.ragged and self.channels > self.tile_oc:
            k.s_max_i32(left, left, 0)
        k.s.free(place)
        images = p.oc * self.image
        part = [(tile["part"], p.n * images)] if self.sums else []
        buffer_at(k, resource, self.arguments[PARTS if self.sums else "Y"], "Y", (tile["image"], images), (first, each), *part)
        if self.last:
            k.s_mul_i32(resource[2], first, self.size)
            k.s_sub_u32(resource[2], images, resource[2], note="to the end of the image")
        else:
            k.s_min_u32(resource[2], left, self.tile_oc)
            k.s_mul_i32(resource[2], resource[2], each, note="the channels that are left")
        k.s.free(first)
        return resource, left

    def _lane(self) -> tuple[Reg, Reg, Reg, Reg]:
        """Returns VGPRs: the lane's first channel in the tile, its bytes, row and column of its first pixel in Y."""
        k, place = self.k, self.place
        lane, channel = find_lane(k)
        offset, scalar = k.v.alloc("channel offset"), k.s.alloc("scratch")
        if self.run > 1:
            k.v_mul_u32_u24(channel, self.run, channel)
        k.s_mul_i32(scalar, place.wave_channel, place.channels)
        k.v_add_u32(channel, scalar, channel, note="lane's first channel in the tile")
        k.s_mov_b32(scalar, self.size if self.last else self.image)
        k.v_mul_lo_u32(offset, channel, scalar)
        k.s.free(scalar)
        row, column = self.pixel_of(lane)
        k.v.free(lane)
        return channel, offset, row, column

    def pixel_of(self, number: Reg) -> tuple[Reg, Reg]:
        """Returns new VGPRs with row and column of Y of a wave's pixel."""
        k, tile, place = self.k, self.place.tile, self.place
        row, column, first, scalar = k.v.alloc("row"), k.v.alloc("column"), k.s.alloc("first row"), k.s.alloc("scratch")
        k.s_mul_i32(first, place.wave_pixel, place.pixels // self.tile_ow)
        k.s_mul_i32(scalar, tile["OH tile"], self.tile_oh)
        k.s_add_u32(first, first, scalar)
        k.s_mul_i32(scalar, tile["OW tile"], self.tile_ow)
        k.v_lshrrev_b32(row, log2(self.tile_ow), number)
        k.v_and_b32(column, self.tile_ow - 1, number)
        k.v_add_u32(column, scalar, column, note="column of Y")
        k.v_add_u32(row, first, row, note="row of Y")
        k.s.free(scalar, first)
        return row, column

    def _pixels(self, row: Reg, column: Reg, offset: Reg) -> list[Reg]:
        """Returns registers with the byte offset of each atom's pixel at the lane's first channel."""
        k, plan, p = self.k, self.plan, self.plan.problem
        found = []
        for pixel in range(self.atoms[1]):
            if pixel:
                k.v_add_u32(row, plan.atom.m // self.tile_ow, row)
            found.append(k.v.alloc(f"pixel {pixel}"))
            pixel_offset(k, found[-1], (row, column), self.view, p.ow, offset, self.pixel, "pixels outside of Y: outside")
        k.v.free(row, column, offset)
        return found

    # -- elements --------------------------------------------------------------------------------

    def bias_buffer(self, channel: Reg, left: Reg) -> tuple[Reg, Elements, Reg, list[Reg]] | None:
        """Returns a buffer of the bias from the tile's first channel to the group's last. left: SGPR with their number.

        Also returns its type, a VGPR for offsets, and registers for the values of a run.
        """
        if not self.with_bias:
            return None
        k, p, tile = self.k, self.plan.problem, self.place.tile
        kind = Elements(k, p.gemm.dtype_addend, p.gemm.epilogue_type)
        resource = k.s.alloc("bias buffer", 4)
        terms = (tile["group"], self.plan.merged.ocg * kind.size), (tile["OC tile"], self.tile_oc * kind.size)
        buffer_at(k, resource, self.arguments["bias"], "bias", *terms)
        k.s_lshl_b32(resource[2], left, log2(kind.size))
        offset, whole = k.v.alloc("bias offset"), k.v.alloc("bias", self.run * kind.words)
        k.v_lshlrev_b32(offset, log2(kind.size), channel)
        return resource, kind, offset, [whole[e * kind.words : (e + 1) * kind.words] for e in range(self.run)]

    def load_bias(self, bias: tuple[Reg, Elements, Reg, list[Reg]] | None, place: int) -> list[Reg]:
        """Returns the bias of a run of channels in the epilogue's type.

        place: the run's first channel, from the lane's first on.
        """
        if bias is None:
            return [Reg("v", 0, 0)] * self.run
        resource, kind, offset, registers = bias
        for e, register in enumerate(registers):
            kind.load(register, offset, resource, (place + e) * kind.size, f"bias of channel {place + e}")
        return [kind.widen(register, register, 0) for register in registers]

    def _finish(self, elements: list[Reg], number: tuple[int, int, int], added: list[Reg], scratch: list[Reg]) -> None:
        """Applies the epilogue to sums of adjacent channels. number: atom along channels and pixels, element of the lane."""
        k, plan, (oc, pixel, r) = self.k, self.plan, number
        words = dtype(plan.problem.accumulator).registers
        for e, element in enumerate(elements):
            start = (oc * self.atoms[1] + pixel) * plan.atom.acc_registers + (r + e) * words
            k.move(element[0:words], self.acc[start : start + words])
            self.epilogue.scale(element)
            if self.with_bias:
                self.epilogue.add(element, added[e])
            self.epilogue.activate(element, scratch)

    def _store(self, data: Reg, pixel: Reg, places: tuple[Reg, Reg, Reg], channel: int, resource: Reg) -> None:
        """Stores adjacent channels of a pixel.

        places: VGPR for the address, the lane's first channel, SGPR with the channels left.
        """
        k, (address, lane, left) = self.k, places
        note = f"Y channel {channel} + {self.run}g"
        if not self.last:
            k.v_add_u32(address, channel * self.image, pixel)
            self.elements.store(data, address, resource, note=note)
            return
        offset, base = channel * self.size, pixel
        if self.channels % self.tile_oc or self.place.ragged:
            limit = k.s.alloc("limit")
            k.s_sub_u32(limit, left, channel)
            clip(k, address, pixel, limit, lane, note="channels that the group has not: outside")
            k.s.free(limit)
            base = address
        if offset >= REACH:
            k.v_add_u32(address, offset - offset % REACH, base)
            base, offset = address, offset % REACH
        self.elements.store(data, base, resource, offset, note, self.together)
