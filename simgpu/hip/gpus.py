"""A program's simulated GPUs: their memory, modules and launches, as its library requests them."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.device import Device, Kernel, Module
from simgpu.engine.allocations import Allocation
from simgpu.engine.footprint import Footprint, first_common
from simgpu.engine.launch import launch
from simgpu.engine.node import DeviceNode
from simgpu.engine.result import Run
from simgpu.engine.series import launches
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.memory_model import Scope, scope_of
from simgpu.hip.memory import Arena, ArenaMemory
from simgpu.hip.options import Observe, Options
from simgpu.hip.protocol import CALLS, AllocationKind, Change

if TYPE_CHECKING:
    from simgpu.timing.history import LaunchHistory
    from simgpu.timing.predict import Prediction

MANAGED = ".managed"  # clang's suffix of a managed variable's name
SEEN_BY_HOST = (AllocationKind.HOST, AllocationKind.MANAGED, AllocationKind.REGISTERED)


@dataclass
class OwnedAllocation:
    """An allocation of the program."""

    kind: AllocationKind
    device: int
    number: int  # its number among allocations of its kind
    address: int
    nbytes: int
    fine: bool  # False for coarse-grained memory
    sites: tuple[int, ...]  # return addresses of the calls that allocated it
    home: int = 0  # address of the bytes in the arena, if it is mapped memory
    access: int = 0  # GPUs that can access mapped memory, as bits
    read_only: int = 0  # GPUs that may not write it, as bits
    name: str = ""  # that another runtime of the program gave it
    freed: bool = False
    adopted: dict[int, Allocation] = field(default_factory=dict)  # its allocation on each GPU that can access it

    @property
    def label(self) -> str:
        """Name of the allocation in messages."""
        return self.name or f"{CALLS[self.kind]} {self.number}"


@dataclass(frozen=True)
class LaunchShape:
    """Shape of a launch."""

    size: tuple[int, int, int]  # work-items in x, y and z
    block: tuple[int, int, int]  # work-items of a workgroup
    lds: int  # bytes of dynamic LDS
    cooperative: bool

    def call(self, args: list[bytes]) -> dict[str, Any]:
        """Returns the arguments of `Kernel.launch`."""
        return {"block": self.block, "args": args, "dynamic_lds": self.lds, "global_size": self.size}

    @cached_property
    def geometry(self) -> Geometry:
        """Shape in the engine's terms."""
        return Geometry.of(None, self.block, self.lds, self.size)


@lru_cache(1024)
def shape_of(sx: int, sy: int, sz: int, bx: int, by: int, bz: int, lds: int, cooperative: int) -> LaunchShape:
    """Returns the shape of a message's figures, which most launches of a program share."""
    return LaunchShape((sx, sy, sz), (bx, by, bz), lds, bool(cooperative))


class LoadedFunction:
    """A kernel of a loaded module. plain: the same kernel for launches without checks."""

    def __init__(self, device: int, kernel: Kernel, plain: Kernel) -> None:
        self.device, self.kernel, self.plain = device, kernel, plain
        self.name = kernel.title
        self._places = [slice(argument.offset, argument.offset + argument.size) for argument in kernel.arguments]

    def args(self, segment: bytes) -> list[bytes]:
        """Returns the bytes of each argument in a segment."""
        return [segment[place] for place in self._places]


class GPU:
    """Two devices that share memory: one for launches with checks or in weak or late mode, one for launches without."""

    def __init__(self, board: str, options: Options, arena: Arena, node: DeviceNode | None, index: int) -> None:
        self.checking = Device(
            board, check=options.check, threads=options.threads, max_instructions=options.max_instructions, timeout=options.timeout,
            ring=options.ring, weak=options.weak, late=options.late,
        )  # fmt: skip
        self.checking.node, self.checking.number = node, index
        self.memory = self.checking.memory = ArenaMemory(arena, self.checking.memory.checked)
        self.plain = self.checking.sharing([])
        self.plain.weak = self.plain.late = self.plain.node = None
        self.plain.stdout = self.plain.stderr = None  # the program's own launches print elsewhere
        self.peers: set[int] = set()


class GPUs:
    """Devices of a program. A thread that changes them holds `busy`. `launch` may run in a thread for each device."""

    def __init__(self, options: Options, arena: Arena) -> None:
        self.options = options
        self.arena = arena
        self.busy = threading.RLock()
        node = DeviceNode() if len(options.boards) > 1 else None
        self.gpus = [GPU(board, options, arena, node, index) for index, board in enumerate(options.boards)]
        self.owned: dict[int, OwnedAllocation] = {}  # by address; freed ones stay for messages
        self.modules: dict[int, tuple[int, Module, Module]] = {}  # GPU, and the module on its two devices
        self.functions: list[LoadedFunction] = []
        self.names: dict[int, str] = {}  # of memory that is about to be registered, by address

    @property
    def track_definedness(self) -> bool:
        """True if memory tracks undefined bits: in checked mode, unless only numerics are checked."""
        return self.gpus[0].memory.checked

    def want_footprints(self, on: bool) -> None:
        """Tells checked launches whether to find their footprint."""
        for gpu in self.gpus:
            gpu.checking.footprints = on

    # -- memory --------------------------------------------------------------------------------

    def change(self, entry: Any, pad: int) -> None:
        """Applies an entry of the log."""
        change, address = Change(int(entry["kind"])), int(entry["address"])
        device = int(entry["device"])
        if change is Change.ALLOCATE:
            before = self.owned.get(address)  # a graph's memory is allocated again
            sites = tuple(int(site) for site in entry["sites"]) if before is None else before.sites
            owned = OwnedAllocation(
                AllocationKind(int(entry["memory"])), device, int(entry["number"]), address, int(entry["bytes"]),
                not entry["coarse"], sites,
                int(entry["home"]), int(entry["access"]), int(entry["read_only"]), self.names.pop(address, ""),
            )  # fmt: skip
            self.owned[address] = owned
            for index in range(len(self.gpus)):
                if self._reaches(index, owned):
                    self._adopt(index, owned, pad)
        elif change is Change.FREE and address in self.owned:
            owned = self.owned[address]
            owned.freed = True
            for number, allocation in owned.adopted.items():
                self.gpus[number].memory.free(allocation)
            owned.adopted.clear()
            if owned.kind is AllocationKind.SHARED:
                self.arena.unshare(address)
        elif change is Change.UNDEFINED and address in self.owned:
            for allocation in self.owned[address].adopted.values():
                allocation.whole = False
        elif change in (Change.PEER, Change.UNPEER):
            self._set_peer(device, int(entry["memory"]), change is Change.PEER, pad)

    def _reaches(self, index: int, owned: OwnedAllocation) -> bool:
        if owned.kind is AllocationKind.MAPPED:
            return bool(owned.access >> index & 1)
        return owned.kind is not AllocationKind.DEVICE or owned.device == index or owned.device in self.gpus[index].peers

    def _adopt(self, index: int, owned: OwnedAllocation, pad: int) -> None:
        memory = self.gpus[index].memory
        if owned.kind is AllocationKind.REGISTERED:
            owned.adopted[index] = memory.adopt_registered(owned.address, owned.nbytes, owned.label)
        elif owned.kind is AllocationKind.MAPPED:
            writable = not owned.read_only >> index & 1
            owned.adopted[index] = memory.adopt_mapped(owned.address, owned.nbytes, owned.label, owned.home, writable)
        elif owned.kind is AllocationKind.SHARED:
            owned.adopted[index] = memory.adopt_shared(owned.address, owned.nbytes, owned.label)
        else:
            reachable = -(-owned.nbytes // pad) * pad if pad else owned.nbytes
            owned.adopted[index] = memory.adopt(owned.address, owned.nbytes, owned.label, reachable)
        owned.adopted[index].fine = owned.fine

    def _set_peer(self, index: int, peer: int, on: bool, pad: int) -> None:
        (self.gpus[index].peers.add if on else self.gpus[index].peers.discard)(peer)
        for owned in self.owned.values():
            if owned.kind is not AllocationKind.DEVICE or owned.device != peer or owned.freed:
                continue
            if on:
                self._adopt(index, owned, pad)
            else:
                self.gpus[index].memory.free(owned.adopted.pop(index))

    def owner(self, address: int) -> OwnedAllocation | None:
        """Returns the allocation of a byte, also one that is freed; None if there is none."""
        return next((owned for owned in self.owned.values() if 0 <= address - owned.address < owned.nbytes), None)

    def may_signal(self, index: int, footprint: Footprint) -> bool:
        """True if the host may poll what a launch on a GPU wrote: in fine-grained memory, by stores that serve system scope.

        gfx908's and gfx90a's stores all do. There, those to managed memory do not count, which is seldom polled.
        """
        arch = self.gpus[index].checking.arch
        every = scope_of(arch, "store", ()) >= Scope.SYSTEM
        if not (len(footprint.atomics) or (every and len(footprint.writes))):
            return False
        seen = [owned for owned in self.owned.values() if owned.fine and not owned.freed and owned.kind in SEEN_BY_HOST]
        plain = [owned for owned in seen if every and owned.kind is not AllocationKind.MANAGED]
        for written, places in ((footprint.atomics, seen), (footprint.writes, plain)):
            ranges = np.array(sorted((owned.address, owned.address + owned.nbytes) for owned in places)).reshape(-1, 2)
            if first_common(written, ranges) is not None:
                return True
        return False

    def leaks(self) -> list[OwnedAllocation]:
        """Returns the allocations that the program did not free, except managed memory."""
        return [owned for owned in self.owned.values() if not owned.freed and owned.kind is not AllocationKind.MANAGED]

    # -- modules -------------------------------------------------------------------------------

    def load(self, index: int, data: bytes) -> tuple[int, list[tuple[int, int]]]:
        """Loads a module; returns its number, and address and bytes of each of its segments.

        A managed variable is compiled to a pointer, NAME, and an initial value, NAME.managed. The pointer is set to the address of
        that value, which the host can also access. (The library redirects the program's own managed variables, which all devices
        share.) Raises DecodeError and LaunchError.
        """
        module = self.gpus[index].checking.load(data)
        number = len(self.modules) + 1
        self.modules[number] = (index, module, module.on(self.gpus[index].plain))
        exported = module.code.symbols.exported
        for name, symbol in exported.items():
            variable = exported.get(name.removesuffix(MANAGED))
            if name.endswith(MANAGED) and symbol.defined and variable is not None and variable.defined:
                pointer = self.arena.view(variable.address + module.bias, 8)
                pointer[:] = np.frombuffer(struct.pack("<Q", symbol.address + module.bias), np.uint8)
        return number, [(segment.address + module.bias, segment.memory_size) for segment in module.code.segments]

    def function(self, module: int, name: str) -> tuple[int, Kernel]:
        """Returns a kernel's number and the kernel. Raises KeyError if the module has none of the name."""
        index, loaded, plain = self.modules[module]
        kernel = loaded[name]
        self.functions.append(LoadedFunction(index, kernel, plain[name]))
        return len(self.functions) - 1, kernel

    def symbol(self, module: int, name: str) -> tuple[int, int]:
        """Returns address and bytes of a variable. Raises KeyError if the module has none of the name."""
        _, loaded, _ = self.modules[module]
        if loaded.code.symbols.exported[name].kind != "object":
            raise KeyError(name)
        return loaded.symbol(name)

    # -- launches ------------------------------------------------------------------------------

    def launches(
        self, function: LoadedFunction, shape: LaunchShape, calls: Sequence[bytes], checked: bool, printed: io.StringIO,
        observe: Observe | None = None,
    ) -> Iterator[tuple[int, Run, dict[str, Any]]]:  # fmt: skip
        """Runs a launch for each segment of arguments. Yields numbers of launches, the sum of their runs, and the data of `observe`
        for a page, {} without `observe`.

        The kernel's output is added to `printed`, even if the kernel fails. Raises the errors of `Kernel.launch`. observe: for one
        call only
        """
        kernel = function.kernel if checked else function.plain
        kernel.module.device.stdout = printed
        each = [function.args(arguments) for arguments in calls]
        if observe:
            yield 1, *observe(kernel, **shape.call(each[0]))
        elif shape.cooperative:
            for args in each:
                yield 1, launch(kernel, shape.geometry, args, cooperative=True), {}
        else:
            for count, run in launches(kernel, shape.geometry, each):
                yield count, run, {}
        if self.track_definedness and not checked:
            self._all_defined()

    def predict(self, function: LoadedFunction, shape: LaunchShape, arguments: bytes, before: LaunchHistory | None) -> Prediction:
        """Predicts the launch's time on a real GPU by the timing model. Raises the errors of `Kernel.time`.

        before: lines that the launch before left; None without one.
        """
        return function.plain.time(**shape.call(function.args(arguments)), warm=before or False)

    def _all_defined(self) -> None:
        """Marks all memory as defined, after a launch that did not track its writes."""
        with self.busy:
            for owned in self.owned.values():
                for allocation in owned.adopted.values():
                    if allocation.undefined is not None and not allocation.whole:
                        allocation.undefined[:] = 0
                        allocation.whole = True

