"""Traces a value backward through a workgroup's run to arguments, constants and unwritten registers.

A register's bits are traced to the instruction that wrote them last; bytes of memory and LDS to their last store; an element of
a matrix instruction's D to its products, through the fragment maps. The result of any other instruction is traced to the bits
that it depends on (`influence`). Addresses and directions of branches are not traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.flow import matrix
from simgpu.debugger.flow.influence import SCC, Alone, Word, place_of
from simgpu.debugger.flow.nodes import WHOLE, FlowNode, walk
from simgpu.debugger.flow.stores import Stores
from simgpu.debugger.flow.traces import AccessNote, WaveTrace, traces
from simgpu.debugger.named import name_of
from simgpu.debugger.native.noting import FlowNotes
from simgpu.debugger.place import WavePlace
from simgpu.debugger.replay import Replay, debugging
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import EXEC, M0, VCC, Instruction, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.machine import layout
from simgpu.machine.layout import LANES

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

STATES = {"vcc": (VCC, VCC + 1), "exec": (EXEC, EXEC + 1), "m0": (M0,), "scc": (SCC,)}
MOST = 400_000  # nodes of one question
COPIES = frozenset(("v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32"))


class Why:
    """Origins of values in the whole run of a debugger's workgroup."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        with debugger.excursion():
            debugger.replay.restart()
            writes = self._follow(debugger)
        self._writes: dict[Any, list[int]] = {}
        for at, registers in writes.items():
            for register in registers:
                for word in _words(register):
                    self._writes.setdefault(word, []).append(at)
        every = [one for trace in self.traces for held in trace.accesses.values() for one in held]
        self._stores = {True: Stores(one for one in every if one.space == "lds"),
                        False: Stores(one for one in every if one.space != "lds")}  # fmt: skip
        self._positions: dict[tuple[int, str, int], np.ndarray] = {}
        self._alone: dict[int, Alone] = {}
        self._texts: dict[int, str] = {}  # text of instructions by record
        self._nodes: dict[tuple[Any, ...], FlowNode] = {}
        self._pending: list[FlowNode] = []

    def _follow(self, debugger: Debugger) -> dict[int, Iterable[Any]]:
        """Runs the workgroup once and keeps its traces. Returns the registers that each instruction writes, by record."""
        kernel = debugging(debugger.kernel, [FlowNotes()])
        replay = Replay(kernel, debugger.geometry, debugger.args, debugger.replay.group, debugger.replay.initial,
                        debugger.replay.whole)
        try:
            replay.restart()
            while replay.resume().kind == "wave ended":
                pass
            self.traces: list[WaveTrace] = traces(replay)
            programs = tuple(replay.launch.programs.values())
            self.instructions = {at: inst for program in programs for at, inst in program.instructions.items()}
            self._mode = replay.launch.program.mode
            self._shared = list(replay.launch.table.written_ranges()) if replay.whole else []  # memory that others may have written
            self._kernarg = replay.worker.given.kernarg, replay.worker.given.arguments
            return {at: program.effect(at).access.writes for program in programs for at in program.instructions}
        finally:
            replay.close()

    # -- questions -----------------------------------------------------------------------------

    def register(self, word: Word, wave: int, retired: int, mask: int = WHOLE) -> FlowNode:
        """Returns the origin of the bits of a wave's register after `retired` instructions."""
        return self._answer(lambda: self.word(wave, retired, word, mask))

    def memory(self, address: int, nbytes: int) -> FlowNode:
        """Returns the origin of bytes of device memory, as the workgroup leaves them."""
        root = FlowNode("stored", name_of(self._debugger.names, address) or f"memory at {address:#x}", address=address, size=nbytes)

        def ask() -> FlowNode:
            root.sources = self._bytes(False, address, range(nbytes), 1 << 31)
            return root

        return self._answer(ask)

    def writer(self, word: Word, wave: int, retired: int) -> WavePlace | None:
        """Returns the place of the last instruction that wrote a register's word before `retired` instructions, None if none
        did."""
        at = self.last_writer(wave, retired, word)
        return None if at is None else WavePlace(self._debugger.replay.group, wave, at)

    def record_at(self, place: WavePlace) -> int:
        """Returns the record of the instruction that a wave executed at a place."""
        return int(self.traces[place.wave].records[place.retired])

    def _answer(self, ask: Callable[[], FlowNode]) -> FlowNode:
        try:
            return self._complete(ask())
        except RecursionError:
            raise LaunchError("the value was moved too many times to trace it: ask at an earlier place") from None

    def _complete(self, root: FlowNode) -> FlowNode:
        while self._pending:
            pending, self._pending = self._pending, []
            states = self._states({(node.place.wave, node.place.retired): self._needs(node) for node in pending if node.place})
            for node in pending:
                self._influences(node, *states[node.place.wave, node.place.retired])  # type: ignore[union-attr]
            if len(self._nodes) > MOST:
                raise LaunchError(f"more than {MOST} values lead there: ask for one that fewer make up")
        self._fill(root)
        for node in walk(root):
            if node.kind == "product":
                matrix.settle(node, self.instructions[node.record])
        return root

    # -- registers -----------------------------------------------------------------------------

    def last_writer(self, wave: int, retired: int, word: Word) -> int | None:
        """Returns the last instruction before the count `retired` that wrote the word, None if none did.

        The result is the number of instructions that the wave had retired before it.
        """
        file, number, lane = word
        key = wave, file, number
        trace = self.traces[wave]
        if key not in self._positions:
            self._positions[key] = np.flatnonzero(np.isin(trace.records, self._writes.get((file, number), [])))
        positions = self._positions[key]
        for before in range(int(np.searchsorted(positions, retired)) - 1, -1, -1):
            at = int(positions[before])
            if file == "s" or self._serves(trace, at, lane):
                return at
        return None

    def _serves(self, trace: WaveTrace, at: int, lane: int) -> bool:
        inst = self.instructions[int(trace.records[at])]
        if inst.spec.kind == "matrix" or Flag.IGNORE_EXEC in inst.spec.flags or inst.mnemonic.startswith("v_writelane"):
            return True
        return bool(trace.exec_before(at) >> lane & 1)

    def word(self, wave: int, retired: int, word: Word, mask: int) -> FlowNode:
        """Returns the node of a register's bits after `retired` instructions."""
        at = self.last_writer(wave, retired, word)
        key = wave, -1 if at is None else at, word, mask
        if key in self._nodes:
            return self._nodes[key]
        place = WavePlace(self._debugger.replay.group, wave, -1 if at is None else at)
        if at is None:
            node = FlowNode("initial", _initial(word), word, mask, WavePlace(place.group, wave, 0))
            self._nodes[key] = node
            return node
        record = int(self.traces[wave].records[at])
        inst = self.instructions[record]
        if record not in self._texts:
            self._texts[record] = self._debugger.code.text(record)
        node = FlowNode("instruction", self._texts[record], word, mask, place, record)
        self._nodes[key] = node
        if inst.spec.kind == "matrix":
            if matrix.is_sparse(inst):
                node.kind = "sum"
                self._pending.append(node)
            else:
                matrix.follow(self, node, inst)
        elif inst.spec.kind == "memory":
            self._follow_load(node, inst)
        elif inst.mnemonic in COPIES and inst.form in ("e32", "e64", "vop3p", "mai") and isinstance(inst.args["src0"], Reg):
            source = inst.args["src0"]
            lane = word[2] if source.file != "s" else 0
            node.sources = [self.word(wave, at, (source.file, source.index, lane), mask)]
        elif inst.spec.kind != "control":
            self._pending.append(node)
        return node

    # -- memory --------------------------------------------------------------------------------

    def _follow_load(self, node: FlowNode, inst: Instruction) -> None:
        assert node.place and node.word and inst.spec.memory
        memory = inst.spec.memory
        file, number, lane = node.word
        destination = next((inst.args[name] for name in ("vdst", "sdst", "vdata", "sdata") if name in inst.args), None)
        assert isinstance(destination, Reg)
        part = number - destination.index
        found = self._part(self.traces[node.place.wave], node.place.retired, 0 if file == "s" else lane, part, memory)
        if found is not None:
            one, first = found
            narrow = memory.bits // 8 if memory.bits < 32 else 4
            low = 2 if memory.d16 == "hi" else 0
            wanted = [byte for byte in range(narrow) if node.mask >> 8 * (byte + low) & 0xFF or (memory.sign and narrow < 4)]
            if wanted:
                node.sources += self._bytes(one.space == "lds", first, wanted, one.order)
        else:
            node.text += ", out of range: 0"
        if memory.d16:
            kept = node.mask & (0x0000FFFF if memory.d16 == "hi" else 0xFFFF0000)
            if kept:
                node.sources.append(self.word(node.place.wave, node.place.retired, node.word, kept))

    def _part(self, trace: WaveTrace, retired: int, lane: int, part: int, memory: Any) -> tuple[AccessNote, int] | None:
        """Returns the access that loaded one of a lane's registers, and the address of its bytes; None if none did.

        part: number of the register in the destination.
        """
        held = [one for one in trace.accesses.get(retired, ()) if one.reads and one.lanes >> lane & 1]
        if memory.stride:  # two elements, each with an access of its own
            each = max(1, memory.bits // 32)
            return (held[part // each], int(held[part // each].addresses[lane]) + 4 * (part % each)) if held else None
        for one in held:
            address = int(held[0].addresses[lane]) + 4 * part
            if one.addresses[lane] <= address < one.addresses[lane] + one.size:
                return one, address
        return None

    def _bytes(self, lds: bool, address: int, offsets: Sequence[int], order: int) -> list[FlowNode]:
        """Returns the nodes of bytes of memory or LDS before an access: each store to some of them, and each run of consecutive
        bytes that nobody stored.

        offsets: of the bytes from the address, ascending.
        """
        found: dict[tuple[Any, ...], FlowNode] = {}
        masks: dict[tuple[int, int, int, int, int], int] = {}
        bare: list[list[int]] = []  # runs of consecutive bytes
        for byte, store in self._last_stores(lds, address + offsets[0], offsets[-1] - offsets[0] + 1, order):
            if byte - address not in offsets:
                continue
            if store is None:
                if not bare or bare[-1][-1] != byte - 1:
                    bare.append([])
                bare[-1].append(byte)
                continue
            one, lane = store
            away = byte - int(one.addresses[lane])
            key = one.wave, one.retired, lane, away // 4, self.traces[one.wave].accesses[one.retired].index(one)
            masks[key] = masks.get(key, 0) | 0xFF << 8 * (away % 4)
        for (wave, retired, lane, part, number), mask in masks.items():
            for node in self._follow_store(wave, retired, lane, part, number, mask, order):
                found[id(node),] = node
        return [*found.values(), *(self._bare(lds, run[0], len(run)) for run in bare)]

    def _last_stores(self, lds: bool, address: int, nbytes: int, order: int) -> Iterator[tuple[int, tuple[AccessNote, int] | None]]:
        """Yields each byte's address and its last store before an access, None if nothing stored it.

        A dword whose bytes all come from one store, or that nothing stored, is looked up only once.
        """
        stores, at = self._stores[lds], address
        while at < address + nbytes:
            here = min(4 - at % 4, address + nbytes - at)
            found = stores.whole_before(at, here, order)
            for byte in range(at, at + here):
                yield byte, stores.last_store(byte, order) if found is True else found or None
            at += here

    def _bare(self, lds: bool, address: int, nbytes: int) -> FlowNode:
        key = "memory", lds, address, nbytes
        if key not in self._nodes:
            first, given = self._kernarg
            value = None
            if lds:
                text = f"LDS {address:#x}, which nobody wrote"
            elif first <= address < first + len(given):
                text = self._argument(address - first)
                value = int.from_bytes(given[address - first : address - first + nbytes], "little")
            else:
                text = name_of(self._debugger.names, address) or f"memory at {address:#x}"
                if any(base + start <= address < base + end for base, start, end in self._shared):
                    text += ", as another workgroup may have left it"
            kind = "constant" if lds else "argument" if value is not None else "memory"
            self._nodes[key] = FlowNode(kind, text, address=address if kind == "memory" else -1, size=nbytes, value=value)
        return self._nodes[key]

    def _argument(self, offset: int) -> str:
        info = self._debugger.kernel.info
        for argument in (*info.named_arguments, *info.arguments):
            if argument.offset <= offset < argument.offset + argument.size:
                return f"argument {argument.name}"
        return f"byte {offset} of the kernel arguments"

    def _follow_store(self, wave: int, retired: int, lane: int, part: int, number: int, mask: int, order: int) -> list[FlowNode]:
        """Returns the nodes of the data that a store wrote for a lane, and of an atomic's old value.

        part: number of the lane's dword; number: of the instruction's access; order: position of the access that reads them.
        """
        record = int(self.traces[wave].records[retired])
        inst = self.instructions[record]
        memory = inst.spec.memory
        one = self.traces[wave].accesses[retired][number]
        if memory is not None and (memory.lds or inst.mods.get("lds")):
            read = next(other for other in self.traces[wave].accesses[retired] if other.reads and other.lanes >> lane & 1)
            return self._bytes(False, int(read.addresses[lane]) + 4 * part, range(min(4, read.size)), read.order)
        names = [name for name in ("vdata", "data0", "data1", "sdata") if isinstance(inst.args.get(name), Reg)]
        if not names:
            return []
        data = inst.args[names[min(number, len(names) - 1)] if memory and memory.count == 2 and len(names) > 1 else names[0]]
        assert isinstance(data, Reg)
        if memory is not None and memory.d16 == "hi":
            mask = mask << 16 & WHOLE
        word = (data.file, min(data.index + part, data.index + data.count - 1), 0 if data.file == "s" else lane)
        nodes = [self.word(wave, retired, word, mask)]
        if one.reads:  # an atomic: the old value, too
            nodes += self._bytes(one.space == "lds", int(one.addresses[lane]), range(one.size), one.order)
        return nodes

    # -- any other instruction -----------------------------------------------------------------

    def _candidates(self, node: FlowNode, inst: Instruction) -> list[Word]:
        """Returns the words that the result may depend on: scalars other than EXEC, and registers in the lanes concerned."""
        assert node.word
        file, number, lane = node.word
        registers = self._effect(node.record).read() | frozenset(
            (reg.file, reg.index + at) for name in ("vdst", "sdst") if isinstance(reg := inst.args.get(name), Reg)
            for at in range(reg.count)
        )  # fmt: skip
        if inst.form == "dpp" or inst.spec.kind == "wave":
            lanes: Iterable[int] = range(LANES)
        elif file == "s":
            shift = 32 if number % 2 and number != SCC else 0
            lanes = [bit + shift for bit in range(32) if node.mask >> bit & 1]
        else:
            lanes = (lane,)
        found: list[Word] = []
        for register in sorted(registers, key=str):
            for one in _words(register):
                if one[0] == "s":
                    if one[1] not in (EXEC, EXEC + 1):
                        found.append(("s", one[1], 0))
                else:
                    found += [(one[0], one[1], each) for each in lanes]
        return found

    def _effect(self, record: int) -> Any:
        from simgpu.hardware.timing_rules.effects import effect_of

        return effect_of(self.instructions[record]).access

    def _needs(self, node: FlowNode) -> list[int]:
        """Returns the offsets, in the wave's state, of the vector registers that an instruction reads or writes."""
        inst = self.instructions[node.record]
        access = self._effect(node.record)
        words = [word for register in access.read() | access.writes for word in _words(register) if word[0] != "s"]
        words += [(reg.file, reg.index + at) for name in ("vdst", "vdst1") if isinstance(reg := inst.args.get(name), Reg)
                  and reg.file != "s" for at in range(reg.count)]  # fmt: skip
        return sorted({layout.vector_register(file, number) for file, number in words})

    def _influences(self, node: FlowNode, scalars: np.ndarray, rows: dict[int, np.ndarray]) -> None:
        assert node.place and node.word
        inst = self.instructions[node.record]
        if node.kind == "sum":
            matrix.follow_sparse(self, node, inst, rows)
            return
        if node.record not in self._alone:
            self._alone[node.record] = Alone(inst, self._mode)
        alone = self._alone[node.record]
        needed = self._needs(node)
        alone.load(scalars, [(offset, rows[offset]) for offset in needed])
        for word, mask in alone.sources(node.word, node.mask, self._candidates(node, inst), needed):
            node.sources.append(self.word(node.place.wave, node.place.retired, word, mask))

    def _states(self, wanted: dict[tuple[int, int], list[int]]) -> dict[tuple[int, int], tuple[np.ndarray, dict[int, np.ndarray]]]:
        """Replays the workgroup once. Returns the scalar file with SCC, and the wanted rows by offset, at each moment.

        Moments are (wave, retired instructions). wanted: offsets of rows by moment.
        """
        replay = self._debugger.replay
        queues = {wave: sorted(n for w, n in wanted if w == wave) for wave in {w for w, _ in wanted}}
        found: dict[tuple[int, int], tuple[np.ndarray, dict[int, np.ndarray]]] = {}
        with self._debugger.excursion():
            replay.restart()
            for wave, queue in queues.items():
                replay.aim(wave, queue[0])
            while any(queues.values()):
                halt = replay.resume(1 << 62)
                if halt.kind == "wave ended":
                    continue
                if halt.kind != "arrived":
                    raise LaunchError(f"the replay did not return to its place: {halt.message or halt.kind}")
                retired = queues[halt.wave].pop(0)
                held = replay.bytes_of(halt.wave)
                scalars = held[: layout.SCC + 4].view(np.uint32).copy()
                offsets = set(wanted[halt.wave, retired])
                found[halt.wave, retired] = scalars, {o: held[o : o + layout.ROW].view(np.uint32).copy() for o in offsets}
                replay.aim(halt.wave, queues[halt.wave][0] if queues[halt.wave] else None)
        return found

    def _fill(self, root: FlowNode) -> None:
        """Fills in the values of nodes: a register's after the instruction that wrote it, memory's as the launch began."""
        wanted: dict[tuple[int, int], list[int]] = {}
        nodes: list[tuple[FlowNode, tuple[int, int]]] = []
        for node in walk(root):
            if node.word and node.place and node.value is None:
                after = 0 if node.kind == "initial" else 1
                key = node.place.wave, node.place.retired + after
                row = [] if node.word[0] == "s" else [place_of((node.word[0], node.word[1], 0))]
                wanted[key] = sorted({*wanted.get(key, []), *row})
                nodes.append((node, key))
            elif node.address >= 0 and node.value is None and node.kind == "memory":
                node.value = int.from_bytes(self._debugger.initial_bytes(node.address, min(8, node.size)), "little")
        states = self._states(wanted) if wanted else {}
        for node, key in nodes:
            assert node.word
            scalars, rows = states[key]
            file, number, lane = node.word
            node.value = int(scalars[number] if file == "s" else rows[place_of((file, number, 0))][lane])


def _words(register: Any) -> list[tuple[str, int]]:
    """Returns (file, number) for each register that an effect's entry stands for: a state's name, or such a pair."""
    if isinstance(register, str):
        return [("s", number) for number in STATES.get(register, ())]
    return [] if register[0] == "hwreg" else [register]


def _initial(word: Word) -> str:
    file, number, _ = word
    return f"{file}{number} as the wave begins" if number < 32 and file != "a" else f"{file}{number}, which nothing wrote"
