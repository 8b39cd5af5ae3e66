"""Outputs of plans that add zeros to the filter, whose sums met an infinity or NaN: computed again, each from its own taps.

A merged filter multiplies other groups' channels by 0. A filter whose taps are channels may have taps of weight 0. For an infinity
or NaN in X, such a product is NaN. A wave with a NaN among its sums, and only such a wave, computes its outputs by a plain loop: a
pixel a lane, one output channel after another.
"""

from __future__ import annotations

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.conv2d.place import input_strides, pixel_offset, under_first_tap
from simgpu.asm.conv2d.store import Store
from simgpu.asm.parts.buffers import advance_buffer, clip, new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.lanes import lane_number
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg


class OwnTaps:
    """Emits the test for a NaN in `acc`, and the plain loop for waves that have one.

    For plans without a split.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.k, self.plan, self.place, self.acc = store, store.k, store.plan, store.place, store.acc
        p = self.plan.problem
        self.bytes = p.element.bytes
        self.channel_bytes, self.pixel_bytes, self.image_bytes = input_strides(p)
        self.words = dtype(p.accumulator).registers
        self.kind = Elements(self.k, p.dtype, p.accumulator)

    def emit(self) -> None:
        """Emits all outputs of a wave, whose registers are as `branch` left them, and the wave's end."""
        k = self.k
        k.comment("OwnTaps: sums with a NaN are computed again")
        resource, left = self.store.buffer()
        self.store.epilogue.prepare()
        self.store.elements.prepare()
        left_of_wave = of(left) - of(self.place.wave_channel) * self.place.channels
        channels = k.scalar("output channels left", left_of_wave.least(self.place.channels, "i32"))
        ended = k.new_label("no_more_outputs")
        k.branch(k.s_cmp_lt_i32(channels, 1), ended)
        count = k.s.alloc("channel of the wave")
        with k.loop("own_pixels", self.place.pixels, WAVEFRONT) as pixels:
            pixel, target = self._pixel(pixels.left)
            k.s_mov_b32(count, channels)
            with k.loop("own_channel", count):
                self._output(pixel, target, count, channels, left, resource)
        k.label(ended)
        k.s_endpgm()

    def branch(self, label: str) -> None:
        """Branches to `label` if there is a NaN among the wave's sums.

        A tap of weight 0 has it in all output channels, so one sum of each pixel is enough: in nchw, a register of each atom of
        pixels; in nhwc, all registers of these atoms.
        """
        k, words, add = self.k, self.words, f"v_add_{self.plan.problem.accumulator}"
        total, value = k.v.alloc("sum of all", words), k.v.alloc("one sum", words)
        each, apart = self.plan.atom.acc_registers, words if self.store.last else self.plan.atom.acc_registers
        for start in range(0, self.acc.count, words) if self.plan.groups > 1 else range(0, self.store.atoms[1] * each, apart):
            target = value if start else total
            k.move(target, self.acc[start : start + words])
            if start:
                k.emit(add, total, total, value, note="NaN if any is")
        k.emit(f"v_cmp_u_{self.plan.problem.accumulator}", "vcc", total, total)
        k.s_cbranch_vccnz(label)
        k.v.free(total, value)

    def _pixel(self, left: Reg) -> tuple[tuple[Reg, Reg], Reg]:
        """Returns VGPRs: row and column of X under the first tap of the lane's pixel, and the pixel's offset in Y."""
        k, p, place = self.k, self.plan.problem, self.place
        target, lane = k.v.alloc("Y offset"), k.v.alloc("pixel of the wave")
        lane_number(k, lane)
        k.set(lane, place.pixels - of(left) + lane)
        pixel = self.store.pixel_of(lane)
        pixel_offset(k, target, pixel, self.store.view, p.ow, 0, self.store.pixel, "pixels outside of Y: outside")
        clip(k, target, target, place.pixels, lane, note="pixels of other waves: outside")
        under_first_tap(k, p, pixel)
        k.v.free(lane)
        return pixel, target

    def _output(self, pixel: tuple[Reg, Reg], target: Reg, count: Reg, channels: Reg, left: Reg, resource: Reg) -> None:
        """Computes and stores one output channel of the lanes' pixels. count: channels left; channels: all of the wave's."""
        k, store, place = self.k, self.store, self.place
        names = "channel in the tile", "own group"
        channel, group = (k.s.alloc(name) for name in names)
        k.set(channel, of(channels) - count + of(place.wave_channel) * place.channels)
        k.set(group, of(place.tile["OC tile"]) * store.tile_oc + channel)
        k.set(group, of(group, self.plan.grid[2] * store.tile_oc) // self.plan.problem.ocg)
        total = k.v.alloc("Y", store.words)
        k.move(total, 0)
        self._sum(total, pixel, group, channel)
        lane, offset, spare = (k.v.alloc(name) for name in ("output channel", "offset", "spare"))
        k.v_mov_b32(lane, channel)
        bias = store.bias_buffer(lane, left)
        added, scratch = store.load_bias(bias, 0)[0], store.epilogue.scratch()
        store.epilogue.apply(total, added, scratch)
        k.set(offset, of(channel) * (store.size if store.last else store.image) + target)
        store.elements.store(store.elements.narrow([total], spare), offset, resource, note="Y")
        k.s.free(channel, group)

    def _sum(self, total: Reg, pixel: tuple[Reg, Reg], group: Reg, channel: Reg) -> None:
        """Emits total += the products of a group's channels. group, channel: SGPRs, in the merged group and the tile."""
        k, p, plan, tile = self.k, self.plan.problem, self.plan, self.place.tile
        first = k.scalar("input channel", of(group) * p.icg)
        merged = tile["group"], plan.merged.icg * self.channel_bytes
        x = new_buffer(k, self.store.arguments["X"], "X", (tile["image"], self.image_bytes), merged, (first, self.channel_bytes))
        block = plan.ic_steps * plan.window[0] * plan.window[1] * plan.taps.packed_bytes
        merged = tile["group"], -(-self.store.channels // self.store.tile_oc) * block
        w = new_buffer(k, self.store.arguments["W"], "W", merged, (tile["OC tile"], block), (channel, plan.tile_ic * self.bytes))
        with k.loop("own_input", p.icg):
            with k.loop("own_tap", p.kh * p.kw) as taps:
                self._product(total, pixel, (x, w), first, taps.left)
            advance_buffer(k, x, self.channel_bytes, "X")
            k.s_add_u32(first, first, 1)
        k.s.free(x, w, first)

    def _product(self, total: Reg, pixel: tuple[Reg, Reg], buffers: tuple[Reg, Reg], channel: Reg, left: Reg) -> None:
        """Emits total += X * W of one tap. channel: SGPR, the input channel of the merged group. left: SGPR, taps left."""
        k, p = self.k, self.plan.problem
        number = k.scalar("tap", p.kh * p.kw - of(left))
        tap = of(number, p.kh * p.kw)
        row, column = tap // p.kw, tap % p.kw
        y = k.vector("row of X", of(pixel[0]) + row * p.dilation[0])
        x = k.vector("column of X", of(pixel[1]) + column * p.dilation[1])
        offset = k.v.alloc("offset")
        pixel_offset(k, offset, (y, x), (p.ih, p.iw), p.iw, 0, self.pixel_bytes, "outside of X: reads 0")
        a, b = k.v.alloc("X", self.words), k.v.alloc("W", self.words)
        self.kind.load(a, offset, buffers[0], note="X")
        k.set(offset, self._filter_place(of(channel), row, column))
        self.kind.load(b, offset, buffers[1], note="W")
        one, other = (self.kind.widen(value, value, 0) for value in (a, b))
        k.emit(f"v_fma_{p.accumulator}", total, one, other, total)
        k.free(y, x, offset, a, b, number)

    def _filter_place(self, channel: Formula, y: Formula, x: Formula) -> Formula:
        """Returns the bytes from a packed output channel's first element to a tap (y, x) of an input channel.

        The order is (channel steps, windows' rows, windows' columns, rows, columns of a window, channels of a step). `factor` rows
        and columns of taps are outermost in these channels.
        """
        plan, f = self.plan, self.plan.factor
        (down, across), (high, wide) = plan.windows, plan.window
        inner = channel % plan.step_channels + (y % f * f + x % f) * plan.step_channels
        place, y, x = channel // plan.step_channels, y // f, x // f
        for count, index in ((down, y // high), (across, x // wide), (high, y % high), (wide, x % wide)):
            place = place * count + index
        return place * plan.taps.packed_bytes + inner * self.bytes
