"""Compiles LLVM IR to callable addresses, and caches object code on disk.

A handler is a function `void (wave, record)` in a separate module. Its name is a hash of all that determines its machine code:
its IR, which has the names of the functions that it calls, and `machine_digest`. Its object file is in the user's cache by this
name (`hardware/cache.py` says when a file is trusted). So an edit or a new version compiles only the handlers whose IR changes,
and an instruction that is the same on several targets is compiled once.

Emitting IR takes a quarter of the time of a compilation. So another folder of the cache has, by a handler's key, its names and
the `source_digest` of each: while the sources stay the same, no IR is emitted.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import llvmlite
from llvmlite import ir

import simgpu.hardware
from simgpu.hardware import cache
from simgpu.hardware.errors import SimError
from simgpu.machine.compiling import object_file
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.host import Host, host
from simgpu.machine.loader import Loader
from simgpu.machine.shield import run_shielded

# Rooms of the package that do not affect a handler, or are links.
OTHER_ROOMS = (
    "advice", "asm", "debugger", "hardware", "hip", "operators", "proof", "sampling", "slices", "timing", "tools", "triton",
)  # fmt: skip
OF_OTHER_ROOMS = ("debugger/native", "timing/native")  # parts of these rooms that do affect handlers


# Names of handlers, and of functions that they call. A function has UNNAMED in its IR until its name is known.
NAME = re.compile("[hc][0-9a-f]{32}")
CALLED_NAME = re.compile("c[0-9a-f]{32}")
UNNAMED = "h" + 32 * "_"
VERSIONS = 16  # sources, the newest first, whose name of a handler is kept


def sources() -> Iterator[Path]:
    """Yields the sources that affect a handler's IR: the chip and the simulator, without emitters, launches and timing."""
    own = Path(simgpu.__file__).parent
    rooms = [path for path in sorted(own.iterdir()) if path.is_dir() and path.name not in OTHER_ROOMS]
    parts = [own / room for room in OF_OTHER_ROOMS]
    for room in (own, *rooms, *parts, Path(simgpu.hardware.__file__).parent):
        yield from sorted(room.glob("*.py") if room == own else room.rglob("*.py"))


@functools.cache
def source_digest() -> str:
    """Returns a digest of `sources`."""
    return hashlib.sha256(host().llvm.encode() + cache.digest_of(sources())).hexdigest()


def machine_digest(host: Host) -> str:
    """Returns a digest of all that determines the machine code of IR: LLVM, the passes, and the host's triple, CPU and features."""
    about = host.llvm, llvmlite.__version__, host.triple, host.cpu, host.features
    digest = hashlib.sha256(repr(about).encode())
    digest.update(Path(object_file.__file__).read_bytes())
    return digest.hexdigest()


# Sources of functions that handlers call by name, by key. `runtime` adds to it.
CALLED: dict[str, Callable[[str], ModuleSource]] = {}


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Runs a block that creates tens of thousands of objects with one garbage collection at its end, instead of dozens in it.

    The collection covers new objects only. The others, half a million in a process with numpy, take 0.1 s. Objects that are
    still in use at the block's end count as old from then on.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(1)
        if collects:
            gc.enable()


class Compiler:
    """Compiles and loads handlers; safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._addresses: dict[str, int] = {}
        self.code: dict[int, tuple[str, int]] = {}  # by address: the function's key, and the bytes of its object file
        self.host = host()
        self.kept = cache.Folder("handlers")
        self._kept_names = cache.Folder("handler-names")
        self._sources = source_digest()
        self._machine_digest = machine_digest(self.host)
        self._names: dict[str, str] = {}  # by key; keys of the same IR share a name
        self._loader = Loader()
        self._entered: dict[str, int] = {}  # addresses of the functions that were asked for, by name
        self._called: dict[str, str] = {}  # by name: keys of functions that handlers call
        self._pending: dict[str, ModuleSource] = {}  # by key: sources of functions that handlers call, until they are compiled
        self._new: dict[str, bytes] = {}  # by name: object files that are compiled but not loaded
        self.compiled = 0
        self.loaded = 0

    def address(self, key: str, build: Callable[[ir.Module, str], None]) -> int:
        """Returns the address of the function for `key`; `build(module, name)` emits it if it is new."""
        return self.address_of_source(key, functools.partial(self.source, build))

    def address_of_source(self, key: str, make: Callable[[str], ModuleSource]) -> int:
        """Returns the address of the function for `key`; `make(name)` returns its source if it is new."""
        found = self._addresses.get(key)
        return run_shielded(lambda: self._load_or_make(key, make)) if found is None else found

    def find(self, key: str) -> int | None:
        """Returns the address of the function for `key`, or None if it must be compiled."""
        found = self._addresses.get(key)
        return run_shielded(lambda: self._find(key)) if found is None else found

    def _load_or_make(self, key: str, make: Callable[[str], ModuleSource]) -> int:
        with self._lock:
            found = self._find(key)
            if found is None:
                source = self.named_source(key, make)
                found = self._find(key)  # another key had the same IR
            return self._load(key, self._make(key, source)) if found is None else found

    def _find(self, key: str) -> int | None:
        with self._lock:
            found = self._addresses.get(key)
            name = self._known_name(key)
            if found is not None or name is None:
                return found
            if name in self._entered:
                self._addresses[key] = self._entered[name]
                return self._entered[name]
            code = self._new.pop(name, None)
            if code is None:
                code = self.kept.load(name)
                self.loaded += code is not None
            return None if code is None or self._calls(code) is None else self._load(key, code)

    def _load(self, key: str, code: bytes) -> int:
        name = self.name(key)
        if name not in self._loader.addresses:  # one file may hold several functions
            for called in self._calls(code) or ():
                if called != key:
                    self.address_of_source(called, CALLED[called])
            self._loader.load(code, _names(NAME, code))
        address = self._loader.addresses.get(name)
        if address is None:
            raise SimError(f"internal: the object file of {key} has no function {name}")
        self._addresses[key] = self._entered[name] = address
        self.code[address] = key, len(code)
        return address

    def _make(self, key: str, source: ModuleSource) -> bytes:
        """Compiles and stores a new function; returns its object file. If another process is compiling it, waits for that one's."""
        name = self.name(key)
        with self.kept.made_once(name):
            code = self.kept.load(name)
            if code is not None:
                self.loaded += 1
                return code
            made = self.object_code(source)
            if isinstance(made, str):
                raise rejection(name, made)
            self.keep(name, made)
            return self._new.pop(name)

    def keep(self, name: str, code: bytes) -> None:
        """Stores a new function's object file for this process and others."""
        self.kept.store(name, code)
        with self._lock:
            self.compiled += 1
            self._new[name] = code
            self._pending.pop(self._called.get(name, ""), None)

    def object_code(self, source: ModuleSource) -> bytes | str:
        """Returns the object file, or LLVM's error message."""
        return self.object_codes([source])[0]

    def object_codes(self, sources: Sequence[ModuleSource]) -> list[bytes | str]:
        """Compiles several sources, which may share a file."""
        return object_file.object_codes(self.host.machine, sources)

    def _calls(self, code: bytes) -> list[str] | None:
        """Returns the keys of the functions that an object file names; None if no source makes one of them."""
        keys = [self.called_key(name) for name in sorted(_names(CALLED_NAME, code))]
        return None if None in keys else [key for key in keys if key is not None]

    def called_key(self, name: str) -> str | None:
        """Returns the key of the function that handlers call by a name, None if no source makes it."""
        for find in (self._known_name, self.name):  # the second makes IR
            for key in list(CALLED):
                if name in self._called:
                    return self._called[name]
                self._called[find(key) or ""] = key
        return self._called.get(name)

    def name(self, key: str) -> str:
        """Returns the name of the function for `key` in its object file. The key is one of CALLED, or its source was made."""
        known = self._known_name(key)
        if known is None:
            self.named_source(key, CALLED[key])
        return known or self._names[key]

    def _known_name(self, key: str) -> str | None:
        """Returns the name of the function for `key`, None if its source must be made first."""
        name = self._names.get(key)
        if name is None:
            kept = self._versions(key).get(self._sources)
            if kept is not None and NAME.fullmatch(kept):
                name = self._names[key] = kept
        return name

    def _versions(self, key: str) -> dict[str, str]:
        """Returns the kept names of the function for `key` by their sources, the newest first."""
        kept = (self._kept_names.load(self._file_of_names(key)) or b"").decode("ascii", "replace")
        pairs = (line.partition(" ") for line in kept.splitlines())
        return {sources: name for sources, _, name in pairs}

    def _keep_name(self, key: str, name: str) -> None:
        """Keeps the name that these sources give a function, and the latest of other sources."""
        versions = {self._sources: "", **self._versions(key), self._sources: name}
        lines = [f"{sources} {name}" for sources, name in list(versions.items())[:VERSIONS]]
        self._kept_names.store(self._file_of_names(key), "\n".join(lines).encode())

    def _file_of_names(self, key: str) -> str:
        return hashlib.sha256(f"{key}|{self._machine_digest}".encode()).hexdigest()[:32]

    def named_source(self, key: str, make: Callable[[str], ModuleSource]) -> ModuleSource:
        """Returns the source of the function for `key`, which then has a name."""
        with self._lock:
            source = self._pending.get(key)
            if source is None:
                source = make(UNNAMED)
                called = key in CALLED  # by its name, which must have one key
                identity = f"{key if called else ''}|{source.loops}|{self._machine_digest}|{source.text}"
                name = ("c" if called else "h") + hashlib.sha256(identity.encode()).hexdigest()[:32]
                if self._names.get(key) != name:
                    self._names[key] = name
                    self._keep_name(key, name)
                source = source._replace(text=source.text.replace(UNNAMED, name))
                if called:
                    self._pending[key] = source
                    self._called[name] = key
            return source

    def is_kept(self, key: str) -> bool:
        """True if the function for `key` is loaded, or its object file is cached."""
        return key in self._addresses or self.kept.load(self.name(key)) is not None

    def module(self, name: str) -> ir.Module:
        """Returns an empty module for the host."""
        module = ir.Module(name=name)
        module.triple = self.host.triple
        module.data_layout = self.host.data_layout
        return module

    def source(self, build: Callable[[ir.Module, str], None], name: str) -> ModuleSource:
        """Returns the source of function `name`, which `build(module, name)` emits."""
        with self._lock, pause_gc():
            return ModuleSource(self._text(build, name))

    def _text(self, build: Callable[[ir.Module, str], None], name: str) -> str:
        """Returns the text of a module. The module itself is garbage afterwards, while it is young: that is cheap to collect."""
        module = self.module(name)
        build(module, name)
        return str(module)


def _names(pattern: re.Pattern[str], code: bytes) -> set[str]:
    """Returns the names of functions in an object file."""
    return {name.decode() for name in re.findall(pattern.pattern.encode(), code)}


def rejection(name: str, why: str) -> SimError:
    """Returns the error for a function that LLVM rejects."""
    return SimError(f"internal: LLVM rejects handler {name}: {why}")


@functools.cache
def compiler() -> Compiler:
    return Compiler()
