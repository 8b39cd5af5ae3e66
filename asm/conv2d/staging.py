"""Staging of a convolution's operands through LDS to fragments: input halo by channel steps, packed filter by taps."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.conv2d.place import compare_below, input_strides, pixel_offset, tap_offsets
from simgpu.asm.parts.buffers import OUTSIDE, REACH, advance_buffer, load_offset_to_row_end, shift_down
from simgpu.asm.parts.integer_math import add_wide
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Pair
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.resources import DS_REACH


def split_offset(k: KernelBuilder, address: Reg, offset: int, reach: int, scratch: Reg) -> tuple[Reg, int]:
    """Returns (VGPR, immediate) for address + offset. If offset >= reach, the VGPR is `scratch`, with the rest added."""
    if offset < reach:
        return address, offset
    k.v_add_u32(scratch, offset - offset % reach, address)
    return scratch, offset % reach


class HaloStaging:
    """Emits the staging of X: a work-item moves a piece of a halo pixel, `plan.channels_of_piece` channels in chunks.

    In nchw, elements are loaded one by one, and neighbours have the same piece of adjacent pixels. In nhwc, up to 16 bytes are
    loaded at once, and neighbours have adjacent pieces of a pixel. resource: raw buffer at the step's first channel of
    the image; reads outside it return 0. In nchw it ends with the group's channels. In nhwc it ends with the image, and begins
    the bytes of a load earlier if a group's end cuts loads (`plan.end_of_channels`).
    """

    def __init__(self, k: KernelBuilder, plan: Conv2dPlan, region: LdsRegion, resource: Reg, scratch: Reg) -> None:
        self.k, self.plan, self.region, self.resource, self.scratch = k, plan, region, resource, scratch
        p = plan.problem
        self.bytes, self.words, self.layout = p.element.bytes, p.element.registers, plan.halo
        self.chunk_words = self.layout.chunk // 4
        self.channels = plan.step_channels
        self.last = p.layout == "nhwc"  # True if channels are last
        self.channel_bytes, self.pixel_bytes, self.image_bytes = input_strides(p)
        clips = plan.tails != () and plan.end_of_channels == "buffer"
        self.records = k.s.alloc("bytes to the end of the image") if clips else resource[2]
        self.windowed = plan.windows != (1, 1)
        self.write_address, self.last_address = k.v.alloc("X write address"), k.v.alloc("X last write address")
        self.last_lanes = k.s.alloc("lanes with a last pixel", 2)
        self.window = (k.s.alloc("window's first row"), k.s.alloc("window's first column")) if self.windowed else None
        self.read_address = k.v.alloc("X read address")

    def allocate(self) -> tuple[Reg, Reg]:
        """Allocates and returns the registers of staging and fragments."""
        k, plan = self.k, self.plan
        self.staged = k.v.alloc("X staging", plan.batch * plan.piece_words)
        self.fragments = k.v.alloc("X fragments", plan.pixels // plan.waves_p // plan.atom.m * plan.fragment_words)
        return self.staged, self.fragments

    def allocate_offsets(self) -> None:
        """Allocates the registers that hold the offsets of a work-item's pixels, from the prologue on.

        With windows of taps they hold rows and columns under the first window instead, because other pixels are outside the image
        under each window. If not only the buffer ends channels, the last register holds a lane's first channel.
        """
        words = self.plan.offset_words
        self.offsets = self.k.v.alloc("X offsets", words)
        self.first_channel = self.offsets[words - 1 : words]

    # -- addresses ---------------------------------------------------------------------------

    def prepare_loads(self, top: Reg, left: Reg) -> None:
        """Emits byte offsets of a work-item's pixels in a channel.

        top, left: SGPRs with the halo's first row and column in the image.
        """
        k, plan, layout, each = self.k, self.plan, self.layout, self.plan.slots_at_once
        k.comment(f"X halo: {layout.slots} slots of {layout.chunks} x {layout.chunk} bytes, {plan.positions} piece(s) a work-item")
        slot, piece, first = k.v.alloc("slot"), *self._first_slot()
        for position in range(plan.positions):
            last = position == plan.positions - 1
            k.set(slot, of(first) + position * each)
            if last:
                compare_below(k, self.last_lanes, layout.slots, slot)
                k.v_min_u32(slot, layout.slots - 1, slot, note="work-items without a last slot load and write nothing")
                k.set(self.last_address, of(slot) * layout.chunk + self.region.offset, note="X halo in LDS")
            at = of(slot, layout.slots + plan.threads)
            in_row = at % layout.pitch
            if layout.problem.stride[1] > 1:
                in_row = in_row % layout.phase_columns * layout.problem.stride[1] + in_row // layout.phase_columns
            row, column = k.vectors(row=at // layout.pitch * plan.lattice[0] + top, column=in_row * plan.lattice[1] + left)
            if last and layout.slots % each:
                k.v_cndmask_b32(row, OUTSIDE, row, self.last_lanes, note="no slot: a row outside the image")
            if self.windowed:
                k.v_mov_b32(self.offsets[2 * position], row)
                k.v_mov_b32(self.offsets[2 * position + 1], column)
            else:
                self._place(position, row, column)
            k.v.free(row, column)
        k.set(self.write_address, of(first) * layout.chunk + self.region.offset, note="X halo in LDS")
        if plan.pieces > 1:
            self._begin_piece(piece, slot)
        elif plan.end_of_channels != "buffer":
            k.v_mov_b32(self.first_channel, 0, note="the piece's first channel")
        k.v.free(slot, piece, first)

    def _first_slot(self) -> tuple[Reg, Reg]:
        """Emits a work-item's piece and the first slot of which it has that piece, in new VGPRs."""
        plan, item = self.plan, of(self.k.work_item, self.plan.threads)
        piece, slot = item // plan.slots_at_once, item % plan.slots_at_once
        if self.last:
            piece, slot = item % plan.pieces, item // plan.pieces
        held = self.k.vectors(piece=piece, slot=slot)
        return held[0], held[1]

    def _begin_piece(self, piece: Reg, scratch: Reg) -> None:
        """Adds a work-item's piece to its offsets and LDS addresses."""
        k, plan, layout = self.k, self.plan, self.layout
        if plan.end_of_channels != "buffer":
            k.set(self.first_channel, of(piece) * plan.channels_of_piece, note="the piece's first channel")
        k.set(scratch, of(piece) * (plan.channels_of_piece * self.channel_bytes))
        for position in range(plan.positions):
            k.v_add_u32(self.offsets[position], scratch, self.offsets[position], note="the piece's first channel")
        k.set(scratch, of(piece) * (layout.chunks // plan.pieces * layout.plane))
        for address in (self.write_address, self.last_address):
            k.v_add_u32(address, scratch, address, note="the piece's first chunk")

    def _place(self, position: int, row: Reg, column: Reg) -> None:
        """Emits the offset of a pixel or, with `factor` > 1, of each of the pixels that are its channels."""
        if (factor := self.plan.factor) == 1:
            self._offset(self.offsets[position], (row, column), f"pixel {position}")
            return
        taps = range(position * factor**2, (position + 1) * factor**2)
        tap_offsets(self.k, [self.offsets[tap] for tap in taps], (row, column), self.plan.problem, factor)

    def _offset(self, target: Reg, pixel: tuple[Reg, Reg], note: str) -> None:
        """Emits target = byte offset of a pixel (row, column) of X, OUTSIDE if not in the image. target may be the row."""
        p = self.plan.problem
        pixel_offset(self.k, target, pixel, (p.ih, p.iw), p.iw, 0, self.pixel_bytes, f"{note}: bytes, or outside the image")

    def first_window(self, number: Reg) -> None:
        """Sets the first window of taps. number: SGPR."""
        assert self.window is not None
        plan, (down, across) = self.plan, self.plan.problem.dilation
        place = of(number, plan.windows[0] * plan.windows[1])
        row, column = place // plan.windows[1], place % plan.windows[1]
        self.k.assign(self.window, (row * (plan.window[0] * down), column * (plan.window[1] * across)), ("", ""))

    def begin(self, group: Reg, first: Reg, left: Reg) -> None:
        """Emits the buffer's size.

        group, first: SGPRs with the merged group and the part's first input channel in it. left: SGPR, its channels from there on.
        """
        k = self.k
        if not self.last:
            self.limit(left)
            return
        records, channel = self.records, of(group) * self.plan.merged.icg + first
        k.set(records, self.image_bytes - channel * self.bytes, note="bytes to the end of the image")
        if self.plan.end_of_channels == "cut load":
            earlier = self.plan.channels_at_once * self.bytes
            add_wide(k, self.resource, -earlier, -1, note="a load earlier")
            k.s_add_u32(records, records, earlier)

    def prepare_reads(self, pixel: Reg, group: Reg, first: Reg) -> None:
        """Emits the read address.

        pixel: VGPR, the lane's place in an atom. group: VGPR, its g. first: SGPR, the wave's first byte in a plane.
        """
        k, plan, layout = self.k, self.plan, self.layout
        row, column = of(pixel, plan.atom.m) // plan.tile_ow, of(pixel, plan.atom.m) % plan.tile_ow
        slot = row * (plan.tiled_problem.stride[0] * layout.pitch) + column
        start = of(first) + self.region.offset
        k.set(self.read_address, slot * layout.chunk + of(group) * layout.plane + start, note="X fragments in LDS")

    # -- moves -------------------------------------------------------------------------------

    def load(self, batch: int, left: Reg) -> None:
        """Loads a batch of pieces. left: SGPR with the channels from the step's first on."""
        k, plan, f = self.k, self.plan, self.plan.factor
        places = list(enumerate(self._positions(batch)))
        addresses = [self.offsets[position * f * f : (position + 1) * f * f] for _, position in places]
        if self.windowed:
            addresses = self._window_addresses(places)
        pieces = [(place, f"X pixel {position}", addresses[place]) for place, position in places]
        of_tap = plan.channels_of_piece // f**2
        for source, tap in product(range(0, of_tap, plan.channels_at_once), range(f * f)):
            channel = tap * of_tap + source
            if plan.tails and tap == 0:
                self._end_channels(source, left)
            for place, note, taps in pieces:
                address, immediate = split_offset(k, taps[tap], source * self.channel_bytes, REACH, self.scratch)
                if plan.end_of_channels != "buffer":
                    address = self._registers(place, channel)[0]
                if plan.end_of_channels == "cut load":
                    k.v_add_u32(address, self.scratch, taps[tap])
                elif plan.end_of_channels == "piece":
                    k.v_cndmask_b32(address, OUTSIDE, taps[tap], "vcc")
                self._load(place, channel, address, immediate, note)

    def _end_channels(self, source: int, left: Reg) -> None:
        """Emits, for a load from channel `source` on: the lanes' offsets in `scratch`, VCC, or the buffer's size.

        With offsets, a load that the group's end cuts begins earlier, so that it ends with the group's channels.
        """
        k, plan, note = self.k, self.plan, f"channel {source}, if the group has it"
        if plan.end_of_channels == "buffer":
            k.s_cmp_gt_i32(left, source)
            k.s_cselect_b32(self.resource[2], self.records, 0, note=note)
            return
        after = of(left) - source
        if plan.end_of_channels == "cut load":
            load_offset_to_row_end(k, self.scratch, 0, self.first_channel, after, plan.channels_at_once, self.bytes)
            return
        with k.temporary(after) as channels:
            k.v_cmp_gt_i32("vcc", channels, self.first_channel, note=note)

    def _load(self, place: int, channel: int, address: Reg, offset: int, note: str) -> None:
        """Loads the channels of a piece from `channel` on, as many as at once."""
        target, nbytes = self._registers(place, channel), self.plan.channels_at_once * self.bytes
        self.k.buffer_load(target, address, self.resource, 0, offset=offset, nbytes=nbytes, note=f"{note}, channel {channel}")

    def _registers(self, place: int, channel: int) -> Reg:
        """Returns the registers of the channels that one load stages from `channel` on."""
        at_once, first = self.plan.channels_at_once, place * self.plan.piece_words
        words = at_once * self.bytes // 4 if at_once > 1 else self.words
        first += channel // at_once * words
        return self.staged[first : first + words]

    def _window_addresses(self, places: list[tuple[int, int]]) -> list[Reg]:
        """Returns registers with the offsets of pixels under the window."""
        assert self.window is not None
        k, first = self.k, 2 * self.plan.positions
        column = self.offsets[first]
        found = []
        for place, position in places:
            target = self.offsets[first + 1 + place]
            k.v_add_u32(target, self.window[0], self.offsets[2 * position])
            k.v_add_u32(column, self.window[1], self.offsets[2 * position + 1])
            self._offset(target, (target, column), f"pixel {position} under the window")
            found.append(self.offsets[first + 1 + place : first + 2 + place])
        return found

    def _positions(self, batch: int) -> range:
        return range(batch * self.plan.batch, min((batch + 1) * self.plan.batch, self.plan.positions))

    def write(self, batch: int, left: Reg) -> None:
        """Writes the batch from registers to LDS. Narrow elements, loaded one by one, are packed first. left: as in `load`."""
        k, plan, layout, words = self.k, self.plan, self.layout, self.chunk_words
        for tail in plan.tails:
            if tail % plan.channels_at_once:
                self._move_cut(batch, tail, left)
        if self.bytes < 4 and plan.channels_at_once == 1:
            self._pack(batch)
        for place, position in enumerate(self._positions(batch)):
            first = place * plan.piece_words
            last = position == plan.positions - 1
            base, start = (self.last_address, 0) if last else (self.write_address, position * plan.slots_at_once * layout.chunk)
            with k.lanes(self.last_lanes) if last and layout.slots % plan.slots_at_once else nullcontext():
                for chunk in range(layout.chunks // plan.pieces):
                    address, immediate = split_offset(k, base, start + chunk * layout.plane, DS_REACH, self.scratch)
                    source = self.staged[first + chunk * words : first + (chunk + 1) * words]
                    k.ds_write(address, source, offset=immediate, note=f"X pixel {position}, chunk {chunk} to LDS")

    def _move_cut(self, batch: int, tail: int, left: Reg) -> None:
        """Moves the channels of loads that began earlier to their places, in a step of `tail` channels."""
        k, plan, at_once = self.k, self.plan, self.plan.channels_at_once
        each, taps = plan.channels_of_piece, plan.factor**2
        piece, channel = divmod(tail, each // taps)
        k.s_cmp_eq_u32(left, tail)
        with k.jump_over("scc0", "whole_loads"):
            k.v_cmp_eq_u32("vcc", piece * each, self.first_channel, note="the piece that the group's end cuts")
            with k.lanes("vcc") if plan.pieces > 1 else nullcontext():
                for place, tap in product(range(len(self._positions(batch))), range(taps)):
                    shift_down(k, self._registers(place, tap * each // taps + channel), (at_once - tail % at_once) * self.bytes)

    def _pack(self, batch: int) -> None:
        """Packs the batch's elements of less than 4 bytes, which have a register each."""
        k, plan, each = self.k, self.plan, 4 // self.bytes
        for place, _ in enumerate(self._positions(batch)):
            first = place * plan.piece_words
            for word in range(plan.channels_of_piece // each):
                target = self.staged[first + word]
                for i in range(1, each):
                    low = self.staged[first + word * each] if i == 1 else target
                    k.v_lshl_or_b32(target, self.staged[first + word * each + i], 8 * self.bytes * i, low)

    def advance(self, left: Reg) -> None:
        """Advances to the next step: the next window of taps or, after the last window, the next channels.

        left: SGPR with the channels from the step's first on, 0 or less after the last step.
        """
        k, p, plan, step = self.k, self.plan.problem, self.plan, self.k.s.alloc("bytes to the next step")
        same = k.new_label("next_window")
        for axis in (1, 0) if self.window is not None else ():
            assert self.window is not None
            k.s_add_u32(self.window[axis], self.window[axis], plan.window[axis] * p.dilation[axis], note="next window of taps")
            k.branch(k.s_cmp_lt_u32(self.window[axis], (p.kh, p.kw)[axis] * p.dilation[axis]), same)
            k.s_mov_b32(self.window[axis], 0)
        k.s_sub_u32(left, left, self.channels)
        k.s_cmp_gt_i32(left, 0)
        k.s_cselect_b32(step, self.channels * self.channel_bytes, 0, note="stay where the last step's channels are")
        if self.last:  # a buffer that begins before X has a byte: with none, it looks like one whose size was forgotten
            none = int(plan.end_of_channels == "cut load")
            k.s_cselect_b32(self.records, self.records, none, note="after the last step, loads find nothing")
        advance_buffer(k, self.resource, step, "X")
        if self.last:
            k.s_sub_u32(self.records, self.records, step)
        else:
            self.limit(left)
        if self.window is not None:
            k.label(same)
        k.s.free(step)

    def limit(self, left: Reg) -> None:
        """Ends the buffer with the group's channels."""
        nbytes = of(left).least(self.channels, "i32") * self.channel_bytes
        self.k.set(self.resource[2], nbytes.most(1, "i32"), note="none: no element fits, or the first, which nothing uses")

    def read(self, atom: int, tap: Pair) -> None:
        """Reads the fragment of an atom's pixels under a tap. The tap's row counts from the read address."""
        k, plan, layout, words = self.k, self.plan, self.layout, self.chunk_words
        first = atom * plan.fragment_words
        rows = atom * plan.atom.m // plan.tile_ow
        slots = layout.tap(*tap) + layout.pixel(rows, 0)
        for h in range(layout.reads):
            offset = slots * layout.chunk + h * layout.groups * layout.plane
            address, immediate = split_offset(k, self.read_address, offset, DS_REACH, self.scratch)
            target = self.fragments[first + h * words : first + (h + 1) * words]
            note = f"X fragment: pixels {atom * plan.atom.m}.., tap {tap[0]},{tap[1]}"
            k.ds_read(target, address, offset=immediate, note=note)

    def next_row(self) -> None:
        """Moves the read address to the next tap row."""
        step = self.layout.tap(1, 0) * self.layout.chunk
        self.k.v_add_u32(self.read_address, step, self.read_address, note="next tap row")

    def first_row(self, rows: int) -> None:
        """Moves the read address back by `rows` tap rows."""
        step = self.layout.tap(1, 0) * self.layout.chunk * rows
        self.k.v_subrev_u32(self.read_address, step, self.read_address, note="first tap row")


class TapStaging:
    """Emits the staging of the packed W, in which all taps of a block are contiguous in the order of use.

    resource: raw buffer from the block's first tap to its last.
    """

    def __init__(self, k: KernelBuilder, plan: Conv2dPlan, region: LdsRegion, resource: Reg, scratch: Reg) -> None:
        self.k, self.plan, self.region, self.resource, self.scratch = k, plan, region, resource, scratch
        self.layout = layout = plan.taps
        whole = (vec for vec in (16, 8) if vec <= layout.chunk and layout.packed_bytes % (vec * plan.threads) == 0)
        self.vec = next(whole, 4)
        self.pieces = layout.packed_bytes // self.vec
        self.loads = -(-self.pieces // plan.threads)
        self.spare = self.pieces % plan.threads > 0
        self.chunk_words = layout.chunk // 4
        self.load_offset = k.v.alloc("W load offset")
        self.write_address, self.read_address = k.v.alloc("W write address"), k.v.alloc("W read address")
        self.stage_step = k.s.alloc("bytes to the other stage of W")
        self.busy_lanes = k.s.alloc("lanes with a piece of W", 2)

    def allocate(self) -> Reg:
        """Allocates and returns the registers of the fragments."""
        k, plan = self.k, self.plan
        self.fragments = k.v.alloc("W fragments", plan.tile_oc // plan.waves_oc // plan.atom.n * plan.fragment_words)
        return self.fragments

    def allocate_staging(self) -> Reg:
        """Allocates and returns the registers that hold a tap between load and LDS write."""
        self.staged = self.k.v.alloc("W staging", self.loads * self.vec // 4)
        return self.staged

    def _chunk(self, channel: Formula, group: Formula) -> Formula:
        """Returns the LDS byte of a chunk, from its channel's row on."""
        line, step, count = self.layout.swizzle_terms
        return (channel // line % count * step ^ group) * self.layout.chunk

    def prepare(self, channel: Reg, group: Reg, first: Reg) -> None:
        """Emits the load offset, and the LDS addresses to write and read.

        channel: VGPR, the lane's place in an atom. group: VGPR, its g. first: SGPR, the wave's first byte of a tap.
        """
        k, layout = self.k, self.layout
        row = layout.row * layout.reads
        k.comment(f"W: taps of {layout.channels} x {row} bytes, two in LDS, {self.loads} load(s) of {self.vec} bytes")
        byte = of(k.set(self.load_offset, of(k.work_item) * self.vec))
        if self.spare:
            spare_from = self.pieces - (self.loads - 1) * self.plan.threads
            compare_below(k, self.busy_lanes, spare_from, k.work_item)
        place, lane = byte // row, of(channel)
        written = self._chunk(place, byte // layout.chunk % layout.groups) + place * layout.row + byte % layout.chunk
        if layout.reads > 1:
            written += byte // layout.row % layout.reads * layout.part
        k.set(self.write_address, written + self.region.offset, note="W in LDS")
        start = of(first) + self.region.offset
        k.set(self.read_address, self._chunk(lane, of(group)) + lane * layout.row + start, note="W in LDS")
        k.s_mov_b32(self.stage_step, layout.nbytes)

    def load(self) -> None:
        """Loads the next tap into registers; after the last tap, 0."""
        k, words = self.k, self.vec // 4
        for load in range(self.loads):
            address, immediate = split_offset(k, self.load_offset, load * self.plan.threads * self.vec, REACH, self.scratch)
            target, note = self.staged[load * words : (load + 1) * words], f"W tap, load {load}"
            k.buffer_load(target, address, self.resource, 0, offset=immediate, note=note)
        k.v_add_u32(self.load_offset, self.layout.packed_bytes, self.load_offset, note="next tap")

    def write(self) -> None:
        """Writes the staged tap to LDS."""
        k, words = self.k, self.vec // 4
        step = self.plan.threads * self.vec // self.layout.reads  # a multiple of the swizzle's period
        for load in range(self.loads):
            with k.lanes(self.busy_lanes) if self.spare and load == self.loads - 1 else nullcontext():
                data = self.staged[load * words : (load + 1) * words]
                k.ds_write(self.write_address, data, offset=load * step, note=f"W tap to LDS, load {load}")

    def read(self, atom: int) -> None:
        """Reads the fragment of an atom's output channels."""
        k, words, first = self.k, self.chunk_words, atom * self.plan.fragment_words
        for h in range(self.layout.reads):
            target = self.fragments[first + h * words : first + (h + 1) * words]
            offset = atom * self.plan.atom.n * self.layout.row + h * self.layout.part
            k.ds_read(target, self.read_address, offset=offset, note=f"W fragment: channels {atom * self.plan.atom.n}..")

    def other_stage(self) -> None:
        """Switches writes and reads to the other stage."""
        k = self.k
        for address in (self.write_address, self.read_address):
            k.v_add_u32(address, self.stage_step, address, note="the other stage")
        k.s_sub_u32(self.stage_step, 0, self.stage_step)
