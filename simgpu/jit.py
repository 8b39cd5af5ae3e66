"""LLVM as a handler compiler: IR in, callable addresses out, object code cached on disk.

A handler is a function `void (wave, record)` of its own module, named by its key. What is
compiled once is kept as an object file in the user's cache, keyed by the handler's key, the
source of this package, LLVM's version and the host's CPU and features.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
from llvmlite import ir

import hardware.errors
from hardware.errors import SimError


def cache_directory() -> Path:
    """`SIMGPU_CACHE_DIR`, or `simgpu` in the user's cache directory."""
    chosen = os.environ.get("SIMGPU_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "simgpu"


@functools.cache
def source_digest() -> str:
    """Digest of the sources that decide what a handler is."""
    digest = hashlib.sha256(llvm.llvm_version_info.__repr__().encode())
    for root in (Path(__file__).parent, Path(hardware.errors.__file__).parent):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Host:
    """The machine that handlers run on: LLVM target machine and its options."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.cpu = os.environ.get("SIMGPU_HOST_CPU") or llvm.get_host_cpu_name()
        features = os.environ.get("SIMGPU_HOST_FEATURES")
        if features is None:
            host = llvm.get_host_cpu_features()
            if host.get("avx512f"):
                # Whole 64-lane rows: use the full vector width.
                host["prefer-256-bit"] = False
            if host.get("avx"):
                # Handlers tail-call each other: clearing upper halves between them is waste.
                host["vzeroupper"] = False
            features = host.flatten()
        self.features = features
        target = llvm.Target.from_default_triple()
        self.machine = target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, jit=True, codemodel="jitdefault"
        )
        self.data_layout = str(self.machine.target_data)
        self.triple = llvm.get_default_triple()

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")


@functools.cache
def host() -> Host:
    return Host()


class Compiler:
    """Compiles and loads handlers; safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._addresses: dict[str, int] = {}
        self.code: dict[int, tuple[str, int]] = {}  # by address: the function's key, and bytes that hold it
        self._host = host()
        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(""), self._fresh_machine()
        )
        self._directory = cache_directory() / "handlers"
        self._salt = f"{source_digest()}|{self._host.cpu}|{self._host.features}"
        self.compiled = 0
        self.loaded = 0

    def _fresh_machine(self) -> llvm.TargetMachine:
        target = llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self._host.cpu, features=self._host.features, opt=2, jit=True,
            codemodel="jitdefault",
        )

    def address(self, key: str, build: Callable[[ir.Module, str], None]) -> int:
        """Address of the function for `key`; `build(module, name)` emits it when it is new."""
        return self.address_of_ir(key, functools.partial(self._ir, build))

    def address_of_ir(self, key: str, build: Callable[[str], str]) -> int:
        """Address of the function for `key`; `build(name)` is its module's IR, asked for when it is new."""
        with self._lock:
            found = self._addresses.get(key)
            if found is not None:
                return found
            name = "h" + hashlib.sha256(f"{key}|{self._salt}".encode()).hexdigest()[:32]
            path = self._directory / f"{name}.o"
            try:
                code = path.read_bytes()
                self.loaded += 1
            except OSError:
                code = self._compile(name, build)
                self.compiled += 1
                self._store(path, code)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
            address = self._engine.get_function_address(name)
            self._addresses[key] = address
            self.code[address] = key, len(code)
            return address

    def _ir(self, build: Callable[[ir.Module, str], None], name: str) -> str:
        module = ir.Module(name=name)
        module.triple = self._host.triple
        module.data_layout = self._host.data_layout
        build(module, name)
        return str(module)

    def _compile(self, name: str, build: Callable[[str], str]) -> bytes:
        try:
            parsed = llvm.parse_assembly(build(name))
        except RuntimeError as error:
            raise SimError(f"internal: LLVM rejects handler {name}: {error}") from error
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = False
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(self._host.machine, options)
        builder.getModulePassManager().run(parsed, builder)
        return self._host.machine.emit_object(parsed)

    def _store(self, path: Path, code: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(code)
            os.replace(file.name, path)
        except OSError:
            pass  # a read-only cache only costs time


@functools.cache
def compiler() -> Compiler:
    return Compiler()
