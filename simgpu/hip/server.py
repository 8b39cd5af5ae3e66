"""Server of one program: answers its HIP library, runs its kernels, reports faults.

One thread answers requests. Each device has a thread that runs its launches in the order of arrival, so kernels of several
devices run at the same time and may wait for each other. A thread holds `GPUs.busy` to use shared state, but not while its
kernel runs.
"""

from __future__ import annotations

import io
import mmap
import os
import re
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simgpu import hardware
from simgpu.device import Kernel
from simgpu.engine.finding import Finding, Severity
from simgpu.hardware.code_object.bundle import entries
from simgpu.hardware.code_object.demangled import readable
from simgpu.hardware.code_object.elf import SERVED_BY
from simgpu.hardware.errors import (
    DecodeError,
    InstructionLimit,
    KernelTrap,
    LaunchError,
    MemoryFault,
    SimError,
    TimeLimit,
)
from simgpu.hip import properties
from simgpu.hip.gpus import GPUs, LaunchShape, OwnedAllocation, shape_of
from simgpu.hip.memory import UNDEFINED_FILL, Arena
from simgpu.hip.names import lowered_names
from simgpu.hip.options import Compile, HipSource, Options, file_of
from simgpu.hip.order import WorkClash, WorkOrder
from simgpu.hip.protocol import (
    ALIKE,
    CALLS,
    ENTRY,
    FINDING,
    LAUNCH,
    LOG_BYTES,
    POSITION,
    SHARE,
    Change,
    Greeting,
    HipStatus,
    Message,
    ProgramEnded,
    Request,
    answer,
    greeting,
    next_batch,
    next_message,
    reply,
    send,
)
from simgpu.hip.record import CallFinding, ProcessRecord
from simgpu.hip.sites import CallSites
from simgpu.machine.host_memory import NORESERVE

if TYPE_CHECKING:
    from simgpu.timing.history import LaunchHistory

ModelledLaunch = tuple[int, LaunchShape]  # number of the kernel
ADDRESS = re.compile(r"@([0-9a-f]+)")
MANGLED = re.compile(r"\b_Z\w+")
LABEL = re.compile(rf"\b({'|'.join(CALLS.values())}) (\d+)\b")
# Status of a failed launch by the error's class; that of other errors is LAUNCH_FAILURE.
STATUSES = (
    (MemoryFault, HipStatus.ILLEGAL_ADDRESS), (KernelTrap, HipStatus.ASSERT), (TimeLimit, HipStatus.TIME_OUT),
    (InstructionLimit, HipStatus.TIME_OUT), (LaunchError, HipStatus.INVALID_CONFIGURATION),
)  # fmt: skip
# Kinds of findings about calls that are notes.
NOTES = ("launch", "mismatched-free", "copy-direction", "leak", "partly-uninitialized-copy")
RUNTIME_COMPILED = "-D__HIPCC_RTC__=1"  # how sources tell hiprtc from hipcc (HIP documentation, "HIP RTC programming guide")


def tell(text: str) -> None:
    """Prints a message for people, at once, on stderr."""
    os.write(sys.stderr.fileno(), f"simgpu hip: {text}\n".encode(errors="replace"))


class Server:
    """Serves one library at the other end of a socket, until it ends."""

    def __init__(self, peer: socket.socket, options: Options, compile: Compile) -> None:
        self._peer, self._options, self._compile = peer, options, compile
        self._hello: Greeting = greeting(peer)
        arena, log, shadow, *launches = self._hello.descriptors
        self._launches = [socket.socket(fileno=number) for number in launches]  # one for each device, and for those that are not
        self._log = np.frombuffer(mmap.mmap(log, LOG_BYTES, mmap.MAP_SHARED | NORESERVE), ENTRY, LOG_BYTES // ENTRY.itemsize)
        self._read = 0  # number of entries of the log that were applied
        self._boards = [hardware.target(board) for board in options.boards]
        self._gpus = GPUs(options, Arena(arena, shadow, self._hello.arena, self._hello.arena_bytes, self._hello.module_bytes))
        self._sites = CallSites(self._hello.process)
        self._order = WorkOrder()
        self._seen: Counter[str] = Counter()  # launches by kernel
        # Seconds by the model, by kernel and shape, and those of the launch before on this GPU; what each left in caches.
        self._times: dict[tuple[ModelledLaunch, ModelledLaunch | None], float | None] = {}
        self._left: dict[ModelledLaunch, LaunchHistory] = {}
        self._before: dict[int, ModelledLaunch] = {}  # by GPU
        self.record = ProcessRecord(self._hello.path, self._hello.process, tell, options.suppressions)

    def serve(self) -> None:
        """Serves until the program ends."""
        reply(self._peer, HipStatus.SUCCESS, self._configuration())
        for _, launches in zip(self._boards, self._launches):
            threading.Thread(target=self._run_launches, args=(launches,), daemon=True).start()
        try:
            requests = self._peer.makefile("rb")
            while True:
                self._answer(next_message(requests))
        except ProgramEnded:
            pass

    def _configuration(self) -> bytes:
        """Returns the library's configuration: options, then each device's figures, properties and attributes."""
        made = struct.pack("<II", UNDEFINED_FILL if self._gpus.track_definedness else 0, len(self._boards))
        for index, board in enumerate(self._boards):
            made += struct.pack("<Q3I", board.hbm_bytes, board.num_cus, board.lds_bytes, board.lds_granule)
            told = properties.values(board, index)
            pairs = properties.attributes(told, board)
            for blob in (
                properties.structure(told, old=True),
                properties.structure(told, old=False),
                b"".join(struct.pack("<Ii", *pair) for pair in pairs.items()),
            ):
                made += struct.pack("<I", len(blob)) + blob
        return made

    # -- requests --------------------------------------------------------------------------------

    def _answer(self, message: Message) -> None:
        kind, data = Request(message.kind), message.data
        if kind is Request.FINDING:
            self._note_call(data)
        elif kind is Request.UNLOAD:
            pass  # its addresses stay; nothing holds on to what nobody uses
        elif kind is Request.FINISH:
            self._finish(data)
            reply(self._peer, HipStatus.SUCCESS)
        else:
            handlers = {
                Request.LOAD: self._load, Request.KERNEL: self._kernel, Request.SYMBOL: self._symbol,
                Request.COMPILE: self._compile_program, Request.SHARE: self._share, Request.LINK: self._link,
                Request.OCCUPANCY: self._occupancy, Request.NAME: self._name_memory,
            }  # fmt: skip
            try:
                content = handlers[kind](data)
            except Exception as error:  # a bug here: the program continues, and the record reports it
                self.record.error(f"internal error of a call ({kind.name}), {type(error).__name__}: {error}; please report it")
                content = HipStatus.NOT_SUPPORTED, b""
            reply(self._peer, *content)

    def _load(self, data: bytes) -> tuple[int, bytes]:
        (index,) = struct.unpack_from("<I", data)
        image, board = data[4:], self._boards[index]
        try:
            with self._gpus.busy:
                number, segments = self._gpus.load(index, image)
        except (DecodeError, LaunchError) as error:
            others = _other_boards(image, board.arch)
            tell(f"{self._name}: its kernels cannot be loaded for {board.name}: {error}{others}")
            return HipStatus.NO_BINARY if others or isinstance(error, LaunchError) else HipStatus.INVALID_IMAGE, b""
        return HipStatus.SUCCESS, struct.pack("<I", number) + b"".join(struct.pack("<QQ", *segment) for segment in segments)

    def _kernel(self, data: bytes) -> tuple[int, bytes]:
        (module,) = struct.unpack_from("<I", data)
        try:
            with self._gpus.busy:
                number, kernel = self._gpus.function(module, data[4:].decode())
        except KeyError:
            return HipStatus.NOT_FOUND, b""
        except DecodeError as error:
            tell(f"{self._name}: {error}")
            return HipStatus.INVALID_IMAGE, b""
        info, arguments = kernel.info, kernel.arguments
        explicit = max((argument.offset + argument.size for argument in arguments), default=0)
        version = int(info.target[3:-2]) * 10 + int(info.target[-2], 16)
        made = struct.pack(
            "<11I", number, info.kernarg_size, explicit, len(arguments), info.max_flat_workgroup_size, info.group_segment_size,
            info.private_segment_size, info.vgpr_count - info.agpr_count, info.agpr_count, info.sgpr_count, version,
        )  # fmt: skip
        return HipStatus.SUCCESS, made + b"".join(struct.pack("<II", argument.offset, argument.size) for argument in arguments)

    def _occupancy(self, data: bytes) -> tuple[int, bytes]:
        """Returns the number of a kernel's blocks that reside on a CU at once, for blocks of 1, 2, ... to the most waves.

        data: number of the kernel, bytes of dynamic LDS
        """
        number, dynamic_lds = struct.unpack("<II", data)
        function = self._gpus.functions[number]
        board = self._boards[function.device]
        most = board.max_workgroup_size // board.wavefront_size
        blocks = [function.kernel.resident_groups(64 * (waves + 1), dynamic_lds) // board.num_cus for waves in range(most)]
        return HipStatus.SUCCESS, struct.pack(f"<{most}I", *blocks)

    def _symbol(self, data: bytes) -> tuple[int, bytes]:
        (module,) = struct.unpack_from("<I", data)
        try:
            return HipStatus.SUCCESS, struct.pack("<QQ", *self._gpus.symbol(module, data[4:].decode()))
        except KeyError:
            return HipStatus.NOT_FOUND, b""

    def _compile_program(self, data: bytes) -> tuple[int, bytes]:
        """Compiles for hiprtc. data: device, numbers of options, of texts of headers (two each: name and content) and of names,
        then all of these, the source and the program's name, each ended by 0."""
        index, options, headers, names = struct.unpack_from("<4I", data)
        texts = [text.decode(errors="replace") for text in data[16:].split(b"\0")]
        rest, source = texts[options:], options + headers + names
        wanted = HipSource(
            texts[source], self._boards[index].arch, (RUNTIME_COMPILED, *texts[:options]),
            tuple(zip(rest[:headers:2], rest[1:headers:2])), tuple(rest[headers : headers + names]),
            file_of(texts[source + 1], rest[:headers:2]), self._folder(),
        )  # fmt: skip
        code, log = self._compile(wanted)
        said, lowered = log.encode(), b""
        if code is not None and code.startswith(b"\x7fELF"):  # bitcode has no names yet
            lowered = b"".join(name.encode() + b"\0" for name in lowered_names(code, wanted.names))
        made = struct.pack("<II", len(said), len(code or b"")) + said + (code or b"") + lowered
        return HipStatus.SUCCESS if code is not None else HipStatus.INVALID_VALUE, made

    def _folder(self) -> str:
        """Returns the program's current folder."""
        try:
            return os.readlink(f"/proc/{self._hello.process}/cwd")
        except OSError:
            return "."

    def _link(self, data: bytes) -> tuple[int, bytes]:
        """Links for hiprtc. data: device, number of parts, the size of each in bytes, then the parts."""
        index, count = struct.unpack_from("<II", data)
        sizes = struct.unpack_from(f"<{count}I", data, 8)
        ends = np.cumsum(sizes) + 8 + 4 * count
        parts = tuple(data[end - size : end] for end, size in zip(ends, sizes))
        code, log = self._compile(HipSource("", self._boards[index].arch, parts=parts))
        if code is None:
            tell(f"{self._name}: hiprtc's linker: {log.strip()}")
            return HipStatus.INVALID_VALUE, b""
        return HipStatus.SUCCESS, code

    def _share(self, data: bytes) -> tuple[int, bytes]:
        try:
            with self._gpus.busy:
                self._gpus.arena.share(*SHARE.unpack(data))
        except (OSError, ValueError):
            return HipStatus.INVALID_DEVICE_POINTER, b""
        return HipStatus.SUCCESS, b""

    def _name_memory(self, data: bytes) -> tuple[int, bytes]:
        """Notes the name of memory that the program registers next. data: its address, the name."""
        with self._gpus.busy:
            self._gpus.names[int.from_bytes(data[:8], "little")] = data[8:].decode(errors="replace")
        return HipStatus.SUCCESS, b""

    @property
    def _name(self) -> str:
        return os.path.basename(self.record.path) or "the program"

    # -- launches --------------------------------------------------------------------------------

    def _run_launches(self, launches: socket.socket) -> None:
        """Runs the launches of a device, which come through a socket."""
        stream = launches.makefile("rb")
        try:
            while True:
                answers, batch = b"", next_batch(stream)
                while batch:
                    count, status, text = self._try_launch(batch)
                    answers += (count - 1) * answer(HipStatus.SUCCESS, b"") + answer(status, text)
                    if status:  # the program sent the others before it could know: they do not run
                        answers += (len(batch) - count) * answer(HipStatus.SUCCESS, b"")
                        break
                    batch = batch[count:]
                    if text and batch:  # the program waits for all of a batch, but its output is seen at once
                        send(launches, answers)
                        answers = b""
                send(launches, answers)
        except ProgramEnded:
            pass

    def _try_launch(self, batch: Sequence[bytes]) -> tuple[int, int, bytes]:
        """Runs the first launch of a batch, and those after it that differ only in their arguments.

        Returns the number of those that ran, and the status and the output of the last.
        """
        try:
            return self._launch(batch)
        except Exception as error:  # a bug here: the program continues, and the record reports it
            self.record.error(f"internal error of a launch, {type(error).__name__}: {error}; please report it")
            return 1, HipStatus.LAUNCH_FAILURE, b""

    def _read_log(self, position: int) -> None:
        if position <= self._read:  # most launches: another one may have read further
            return
        for entry in self._log[self._read : position]:
            try:
                if entry["kind"] < Change.STREAM:
                    self._gpus.change(entry, self._options.pad)
                else:
                    self._note_clashes(self._order.apply(entry))
            except SimError as error:  # a bug here: the program continues, and the record reports it
                self.record.error(f"internal error, {error}; please report it")
        self._note_clashes(self._order.settle())
        self._gpus.want_footprints(self._order.matters)
        self._read = position

    def _launch(self, batch: Sequence[bytes]) -> tuple[int, int, bytes]:
        number, *extents, nbytes, position, _, _, stream, ticket = LAUNCH.unpack_from(batch[0])
        function, shape = self._gpus.functions[number], shape_of(*extents)
        name, printed, done = function.name, io.StringIO(), 0
        with self._gpus.busy:
            record = self.record.kernel(name, self._boards[function.device].name)
            self._seen[name] += 1
            modes = bool(self._options.check) or function.kernel.module.device.seeded
            checked = modes and self._is_selected(name)
            observe = self._options.observe if self._seen[name] == 1 and not shape.cooperative else None
            self._read_log(position)
            if self._options.time:
                record.time(self._modelled_seconds(number, shape, batch[0][LAUNCH.size : LAUNCH.size + nbytes]))
            same = 1 if modes or observe or self._options.time else self._count_alike(batch)
            self._seen[name] += same - 1
        calls = [data[LAUNCH.size : LAUNCH.size + nbytes] for data in batch[:same]]
        try:
            for count, run, observed in self._gpus.launches(function, shape, calls, checked, printed, observe):
                done += count
                with self._gpus.busy:
                    record.note(run, checked, count)
                    if observed:
                        self.record.observed.append(observed)
                    for finding in run.findings:
                        record.findings += self._note_kernel(finding, name)
                    if modes:
                        signals = run.footprint is not None and self._gpus.may_signal(function.device, run.footprint)
                        self._note_clashes(self._order.ran(stream, ticket, name, run.footprint, signals))
        except SimError as error:
            with self._gpus.busy:
                self._seen[name] -= same - done - 1  # they do not run
                record.failed += 1
                return done + 1, self._note_failure(function.kernel, name, error), _text(printed)
        except Exception as error:  # a bug here: the program continues, and the record reports it
            self.record.error(f"kernel {name}: internal error, {type(error).__name__}: {error}; please report it")
            return done + 1, HipStatus.LAUNCH_FAILURE, _text(printed)
        return done, HipStatus.SUCCESS, _text(printed)

    def _count_alike(self, batch: Sequence[bytes]) -> int:
        """Returns how many launches at the beginning of a batch differ only in their arguments, with the log read so far."""
        first = batch[0]
        for count, data in enumerate(batch):
            if data[ALIKE] != first[ALIKE] or LAUNCH.unpack_from(data)[POSITION] > self._read:
                return count
        return len(batch)

    def _modelled_seconds(self, number: int, shape: LaunchShape, arguments: bytes) -> float | None:
        """Predicts the seconds of a launch, once for each kernel and shape after each other one; None if there is no prediction."""
        from simgpu.timing.history import LaunchHistory

        function, launch = self._gpus.functions[number], (number, shape)
        before = self._before.get(function.device)
        self._before[function.device] = launch
        if (launch, before) not in self._times:
            try:
                made = self._gpus.predict(function, shape, arguments, self._left.get(before) if before else None)
                self._times[launch, before], self._left[launch] = made.seconds, LaunchHistory().after(made.sampled)
            except SimError as error:
                self._times[launch, before] = None
                tell(f"{self._name}: no time of kernel {function.kernel.title}: {error}")
        return self._times[launch, before]

    def _is_selected(self, name: str) -> bool:
        options, number = self._options, self._seen[name]
        if options.kernels is not None and not options.kernels.search(name):
            return False
        return number > options.skip and (options.only is None or number <= options.skip + options.only)

    def _note_failure(self, kernel: Kernel, name: str, error: SimError) -> HipStatus:
        for finding in error.findings:
            self._note_kernel(finding, name)
        times = self._seen[name]
        text = f"kernel {name} failed" + (f" in its launch {times}" if times > 1 else "")
        advice = "" if self._options.check else "\n    run simgpu hip --check to look for the cause"
        said = self._with_sites(str(error))
        self.record.error(f"{text}: {type(error).__name__}: {said}{advice}")
        return next((status for kind, status in STATUSES if isinstance(error, kind)), HipStatus.LAUNCH_FAILURE)

    def _note_kernel(self, finding: Finding, name: str) -> bool:
        return self.record.note(replace(finding, message=self._with_sites(finding.message), kernel=name), self._seen[name])

    # -- findings about calls -----------------------------------------------------------------------

    def _note_call(self, data: bytes) -> None:
        site, kind = FINDING.unpack_from(data)
        name = kind.rstrip(b"\0").decode()
        with self._gpus.busy:
            text = ADDRESS.sub(
                lambda match: self._describe_allocation(int(match[1], 16)), data[FINDING.size :].decode(errors="replace")
            )
        text = MANGLED.sub(lambda match: readable(match[0]), text)
        self._note(name, text, self._sites.first((site,)) or "")

    def _note(self, kind: str, text: str, source: str) -> None:
        severity: Severity = "error" if self._gpus.track_definedness and kind not in NOTES else "note"
        self.record.note(CallFinding(kind, self._with_sites(text), 0, "", source=source, severity=severity))

    def _note_clashes(self, clashes: Iterable[WorkClash]) -> None:
        for clash in clashes:
            owned = self._gpus.owner(clash.address)
            place = f"byte {clash.address - owned.address} of {owned.label}" if owned else f"{clash.address:#x}"
            lines = (self._sites.first(work.sites) or "" for work in (clash.earlier, clash.later))
            self.record.note(clash.finding(self._with_sites(place), *lines))

    def _describe_allocation(self, address: int) -> str:
        """Returns an allocation's description for people."""
        self._read_log(self._position())
        owned = self._gpus.owned.get(address)
        return f"{owned.label} of {owned.nbytes} bytes" if owned else f"{address:#x}"

    def _position(self) -> int:
        """Returns the number of entries in the log so far: the first entry of kind 0 ends it."""
        position = self._read
        while self._log[position]["kind"]:
            position += 1
        return position

    def _with_sites(self, text: str) -> str:
        """Adds to each allocation in the text the line that allocated it."""
        def with_site(match: re.Match[str]) -> str:
            owned = next((o for o in self._gpus.owned.values() if o.label == match[0]), None)
            line = self._sites.first(owned.sites) if owned else None
            return f"{match[0]} ({line})" if line else match[0]

        return LABEL.sub(with_site, text)

    def _finish(self, failed: bytes) -> None:
        """Notes the calls that failed, and reports memory that the program did not free, at its end, if checks are on."""
        lines = (line.split("\t") for line in failed.decode().splitlines())
        self.record.failed_calls = [(call, error, int(times)) for call, error, times in lines]
        self._sites.note_map()
        if not self._gpus.track_definedness:
            return
        with self._gpus.busy:
            self._read_log(self._position())
            by_line: dict[str, list[OwnedAllocation]] = {}
            for owned in self._gpus.leaks():
                by_line.setdefault(self._sites.first(owned.sites) or "", []).append(owned)
        for line, group in by_line.items():
            total = sum(owned.nbytes for owned in group)
            count = f"{len(group)} allocations" if len(group) > 1 else group[0].label
            self._note("leak", f"{count} of {total} bytes never freed", line)


def _text(printed: io.StringIO) -> bytes:
    return printed.getvalue().encode(errors="replace")


def _other_boards(image: bytes, arch: str) -> str:
    """Suggests other targets, if the image has code for other boards."""
    try:
        there = sorted({entry.processor for entry in entries(image)})
    except DecodeError:
        return ""
    served = {arch for name in there for arch in (name, *SERVED_BY.get(name, ()))}
    boards = [board for board in hardware.targets() if hardware.target(board).arch in served and not board.startswith("gpu_")]
    if not there or arch in served:
        return ""
    return f"\n    it has code for {', '.join(there)}" + (f": give --target {' or '.join(boards)}" if boards else "")


def serve(peer: socket.socket, options: Options, compile: Compile) -> ProcessRecord:
    """Serves the library at the other end until its program ends."""
    server = Server(peer, options, compile)
    server.serve()
    return server.record

