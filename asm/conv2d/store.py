"""End of a convolution: stores a wave's accumulators, through the epilogue to Y, or as partial sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.place import ConvPlace, pixel_offset
from simgpu.asm.conv2d.reduce import PARTS
from simgpu.asm.parts.buffers import clip, new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.lanes import lane_places
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.lds import ATOM
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.conv2d.tree import Conv2d

# Buffer, type, VGPR with offsets, and registers of a bias.
Bias = tuple[Reg, Elements, Reg, list[Reg]]
WIDE = 1 << 30  # columns of a view without a limit
SLOTS = 4  # elements' stores in flight, each with its own data and address registers


class Store:
    """Emits the store of Y[oc][pixel] of every atom.

    In nchw, lane i has pixel i, and element r of group g is channel 4g + r (f64: 4r + g). In nhwc, pixels and channels change
    places. So neighbours always store adjacent elements. acc: accumulators of `atoms`, (atoms along channels, along pixels). Pixels
    outside Y have the offset OUTSIDE. In nchw the buffer ends with the merged group's channels. In nhwc it ends with the image, and
    channels after the group's also have the offset OUTSIDE.
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
        # Consecutive elements of a lane, and the distance from one to the next, in channels (nhwc: in pixels).
        self.run, self.apart = (4, 1) if dtype(p.accumulator).registers == 1 else (1, plan.atom.lane_groups)
        # Channels whose bias a lane has at a time, counted from its first one.
        self.biased = range(0, atoms[0] * plan.atom.n, plan.atom.n) if self.last else range(self.run)
        self.image = p.oh * p.ow * self.size  # bytes of a channel, whose pixels are adjacent unless channels are last
        self.pixel = p.oc * self.size if self.last else self.size

    def emit(self) -> None:
        """Emits everything up to the last store."""
        k, plan = self.k, self.plan
        k.comment(f"Y: {self.atoms[0]} x {self.atoms[1]} atoms of a wave to memory")
        resource, left = self.buffer()
        channel, offset, pixel = self._lane()
        self.epilogue.prepare()
        self.elements.prepare()
        bias = self.bias_buffer(channel, left)
        self.scratch = self.epilogue.scratch()
        self.spare = k.v.alloc("spare") if self.size < 4 else Reg("v", 0, 0)
        self.per_atom = plan.atom.acc_registers // dtype(plan.problem.accumulator).registers
        if self.last:
            self._channels_last(pixel, offset, bias, (channel, left), resource)
        else:
            self._pixels_last(pixel, offset, bias, resource)

    def _pixels_last(self, lane: Reg, offset: Reg, bias: Bias | None, resource: Reg) -> None:
        """Emits the stores in nchw. lane: its pixel in an atom; offset: its first channel's bytes."""
        k, plan = self.k, self.plan
        pixels = self._pixels(*self.pixel_of(lane), offset)
        slots = self._slots(True)
        for oc in range(self.atoms[0]):
            for first in range(0, self.per_atom, self.run):
                place = oc * plan.atom.n + first * self.apart
                added = self.load_bias(bias, place)
                for pixel in range(self.atoms[1]):
                    for r in range(self.run):
                        data, address = next(slots)
                        stored = self._finish(data, (oc, pixel, first + r), added[r])
                        k.v_add_u32(address, (place + r) * self.image, pixels[pixel])
                        self.elements.store(stored, address, resource, note=f"Y channel {place + r} + {self.run}g")

    def _channels_last(self, pixel: Reg, offset: Reg, bias: Bias | None, ends: tuple[Reg, Reg], resource: Reg) -> None:
        """Emits the stores in nhwc.

        pixel: the lane's first in an atom; offset: its channel's bytes; ends: its channel, and the channels left.
        """
        k, plan, p, (channel, left) = self.k, self.plan, self.plan.problem, ends
        added, places = self.load_bias(bias, 0), self._first_pixels(pixel, offset)
        step = plan.atom.m // self.tile_ow  # rows from one atom to the next
        clips = self.channels % self.tile_oc > 0 or self.place.ragged
        slots = self._slots(clips)
        for atom in range(min(self.atoms[1], -(-self.view[0] // step))):
            for r, place in enumerate(places):
                if atom:
                    k.v_add_u32(place, step * p.ow * self.pixel, place, note="the next atom; rows past Y are past the buffer")
                for oc in range(self.atoms[0]):
                    (data, address), first = next(slots), oc * plan.atom.n
                    stored = self._finish(data, (oc, atom, r), added[oc])
                    if clips:
                        clip(k, address, place, of(left) - first, channel, note="channels that the group has not: outside")
                    self.elements.store(stored, address if clips else place, resource, first * self.size, f"Y channel {first} + i")

    def _slots(self, addresses: bool) -> Iterator[tuple[Reg, Reg]]:
        """Returns data and address registers of the stores in flight, in turn. addresses: False if a store has its own."""
        k, spare = self.k, Reg("v", 0, 0)
        slots = [(k.v.alloc("Y data", self.words), k.v.alloc("Y offset") if addresses else spare) for _ in range(SLOTS)]
        return itertools.cycle(slots)

    def _first_pixels(self, pixel: Reg, offset: Reg) -> list[Reg]:
        """Returns byte offsets of a lane's elements in the first atom. pixel: the first one's; offset: the channel's bytes."""
        k, p, found = self.k, self.plan.problem, []
        in_a_row = self.tile_ow % self.run == 0 if self.run > 1 else self.tile_ow >= self.plan.atom.m
        for r in range(self.per_atom):
            if r and not in_a_row:
                k.v_add_u32(pixel, self.apart, pixel)
            if r == 0 or not in_a_row:
                first, column = self.pixel_of(pixel)
                pixel_offset(k, first, (first, column), (self.view[0], WIDE), p.ow, offset, self.pixel, "rows outside of Y")
            across = r * self.apart * in_a_row
            found.append(k.vector(f"element {r}", of(first) + across * self.pixel))
            clip(k, found[r], found[r], self.view[1] - across, column, note="columns outside of Y: outside")
            if r + 1 == self.per_atom or not in_a_row:
                k.v.free(first, column)
        k.v.free(pixel, offset)
        return found

    # -- buffers and offsets ---------------------------------------------------------------------

    def buffer(self) -> tuple[Reg, Reg]:
        """Returns Y's buffer, and an SGPR with the channels from the tile's first to the group's last."""
        k, p, tile = self.k, self.plan.problem, self.place.tile
        left = k.s.alloc("channels left")
        each = self.size if self.last else self.image
        place = k.scalar("tile's first channel in the group", of(tile["OC tile"]) * self.tile_oc)
        first = k.scalar("first channel", of(tile["group"]) * self.plan.merged.ocg + place)
        self.place.channels_left(k, left, place, self.channels, p.oc)
        if self.place.ragged and self.channels > self.tile_oc:
            k.s_max_i32(left, left, 0)
        k.s.free(place)
        images = p.oc * self.image
        part = [(tile["part"], p.n * images)] if self.sums else []
        nbytes = images - of(first) * self.size if self.last else of(left).least(self.tile_oc) * each
        terms = (tile["image"], images), (first, each), *part
        resource = new_buffer(k, self.arguments[PARTS if self.sums else "Y"], "Y", *terms, nbytes=nbytes)
        k.s.free(first)
        return resource, left

    def _lane(self) -> tuple[Reg, Reg, Reg]:
        """Returns VGPRs: the lane's first channel in the tile, its bytes, and the lane's first pixel in an atom."""
        k, place = self.k, self.place
        lane, group = lane_places(k, ATOM)
        channel, pixel = (lane, group) if self.last else (group, lane)
        if self.run > 1:
            k.v_mul_u32_u24(group, self.run, group)
        k.set(channel, of(place.wave_channel) * place.channels + channel, note="lane's first channel in the tile")
        return channel, k.vector("channel offset", of(channel) * (self.size if self.last else self.image)), pixel

    def pixel_of(self, number: Reg) -> tuple[Reg, Reg]:
        """Returns new VGPRs with row and column of Y of a wave's pixel."""
        k, tile, place = self.k, self.place.tile, self.place
        first = of(place.wave_pixel) * (place.pixels // self.tile_ow) + of(tile["OH tile"]) * self.tile_oh
        row = k.vector("row of Y", of(number) // self.tile_ow + first)
        return row, k.vector("column of Y", of(number) % self.tile_ow + of(tile["OW tile"]) * self.tile_ow)

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

    def bias_buffer(self, channel: Reg, left: Reg) -> Bias | None:
        """Returns a buffer of the bias from the tile's first channel to the group's last. left: SGPR with their number.

        Also returns its type, a VGPR for offsets, and registers for the values of `biased` channels.
        """
        if "bias" not in self.arguments:
            return None
        k, p, tile = self.k, self.plan.problem, self.place.tile
        kind = Elements(k, p.gemm.dtype_addend, p.gemm.epilogue_type)
        terms = (tile["group"], self.plan.merged.ocg * kind.size), (tile["OC tile"], self.tile_oc * kind.size)
        resource = new_buffer(k, self.arguments["bias"], "bias", *terms, nbytes=of(left) * kind.size)
        offset, whole = k.vector("bias offset", of(channel) * kind.size), k.v.alloc("bias", len(self.biased) * kind.words)
        return resource, kind, offset, [whole[e * kind.words : (e + 1) * kind.words] for e in range(len(self.biased))]

    def load_bias(self, bias: Bias | None, place: int) -> list[Reg] | list[None]:
        """Returns the bias of `biased` channels in the epilogue's type, None without one. place: added to these channels."""
        if bias is None:
            return [None] * len(self.biased)
        resource, kind, offset, registers = bias
        for e, register in zip(self.biased, registers, strict=True):
            kind.load(register, offset, resource, (place + e) * kind.size, f"bias of channel {place + e}")
        return [kind.widen(register, register, 0) for register in registers]

    def _finish(self, data: Reg, number: tuple[int, int, int], added: Reg | None) -> Reg:
        """Returns a sum after the epilogue, rounded. number: atom along channels and pixels, element of the lane."""
        k, plan, (oc, pixel, r) = self.k, self.plan, number
        words = dtype(plan.problem.accumulator).registers
        start = (oc * self.atoms[1] + pixel) * plan.atom.acc_registers + r * words
        k.move(data[0:words], self.acc[start : start + words])
        self.epilogue.apply(data, added, self.scratch)
        return self.elements.narrow([data], self.spare)
