"""Asks LLVM about the machine that handlers run on.

LLVM's answers are kept in the cache, by its library and the processor. A process that finds all its handlers compiled never
loads LLVM, which takes 50 ms and 40 MB.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite

from simgpu.hardware import cache
from simgpu.machine.compiling import object_file

if TYPE_CHECKING:
    from llvmlite.binding import TargetMachine

VARIABLES = ("SIMGPU_HOST_CPU", "SIMGPU_HOST_FEATURES")
# What tells processors apart in Linux's /proc/cpuinfo; other fields change with the clock, or from core to core.
PROCESSOR = frozenset([
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
])  # fmt: skip

# A sum of products of words, which hosts that have VPDPBUSD add by VPDPWSSD: LLVM's types of the words and the sum, and the name.
DOT = """
declare {1} @llvm.x86.{2}({0}, {0})
define {1} @f({0} %x, {0} %y, {1} %z) {{
  %p = call {1} @llvm.x86.{2}({0} %x, {0} %y)
  %s = add {1} %p, %z
  ret {1} %s
}}
"""


@dataclass(frozen=True)
class Host:
    """A machine that LLVM compiles handlers for. `ask` makes one."""

    llvm: str  # LLVM's version
    triple: str
    cpu: str  # LLVM's name
    features: str  # comma-separated, such as "+this,-that"
    data_layout: str
    vector_bits: int  # of the widest vector register that LLVM uses for f32: 512, 256 or 128
    word_lanes: int  # 16-bit integers that one of x86's instructions adds: 32 with AVX-512 BW, 16 with AVX2, 0 with less
    shuffles_bytes: bool  # x86's PSHUFB takes whole vector registers: AVX2, or AVX-512 BW where registers have 512 bits
    dots_bytes: bool  # x86's VPDPBUSD adds products of bytes, in registers of `word_lanes`: AVX-512 VNNI, AVX-VNNI
    converts_half: bool  # f16 to f32 and back are instructions, not functions of a library: F16C, AArch64

    @property
    def has_wide_masks(self) -> bool:
        """True if masked stores of 16 dwords are single instructions: AVX-512."""
        return self.vector_bits == 512

    @functools.cached_property
    def machine(self) -> TargetMachine:
        """LLVM's code generator."""
        return object_file.machine(self.triple, self.cpu, self.features)


def ask(triple: str = "", cpu: str = "", features: str | None = None) -> Host:
    """Returns a machine as LLVM sees it.

    triple: by default this machine's; code for another machine can only be read, not run. cpu and features: by default
    SIMGPU_HOST_CPU and SIMGPU_HOST_FEATURES, else this machine's. A CPU without features has LLVM's features of that name.
    """
    import llvmlite.binding as llvm

    triple = triple or llvm.get_default_triple()
    if not cpu and features is None:
        cpu, features = os.environ.get(VARIABLES[0], ""), os.environ.get(VARIABLES[1])
    if features is None:
        features = "" if cpu else llvm.get_host_cpu_features().flatten()
    cpu = cpu or llvm.get_host_cpu_name()
    if triple.startswith(("x86_64", "i686")):
        # Whole 64-lane rows need the full vector width. Handlers tail-call each other, and clearing upper halves between
        # them is waste. Sums of integers are independent, so one VPDPWSSD is better than two instructions of less latency.
        features = ",".join(filter(None, (features, "-prefer-256-bit", "-vzeroupper", "+fast-dpwssd")))
    machine = object_file.machine(triple, cpu, features)

    def assembly(text: str) -> str:
        """Returns the assembly of a function, which shows the CPU's abilities whatever its features are called."""
        return machine.emit_assembly(llvm.parse_assembly(text))

    floats = assembly("define <16 x float> @f(<16 x float> %x) { %y = fadd <16 x float> %x, %x ret <16 x float> %y }")
    vector_bits = next((bits for name, bits in (("zmm", 512), ("ymm", 256)) if f"vaddps\t%{name}" in floats), 128)
    words = assembly("define <32 x i16> @f(<32 x i16> %x) { %y = add <32 x i16> %x, %x ret <32 x i16> %y }")
    word_lanes = next((lanes for name, lanes in (("zmm", 32), ("ymm", 16)) if f"vpaddw\t%{name}" in words), 0)
    multiply = {32: "avx512.pmaddw.d.512", 16: "avx2.pmadd.wd"}.get(word_lanes, "")
    dot = DOT.format(f"<{word_lanes} x i16>", f"<{word_lanes // 2} x i32>", multiply)
    dots_bytes = bool(multiply) and "vpdpwssd" in assembly(dot)
    order = ", ".join(f"i32 {byte ^ 1}" for byte in range(32))
    shuffle = f"%y = shufflevector <32 x i8> %x, <32 x i8> undef, <32 x i32> <{order}>"
    shuffled = "vpshufb" in assembly(f"define <32 x i8> @f(<32 x i8> %x) {{ {shuffle} ret <32 x i8> %y }}")
    half = assembly("define float @f(half %x) { %y = fpext half %x to float ret float %y }")
    return Host(
        ".".join(map(str, llvm.llvm_version_info)), triple, cpu, features, str(machine.target_data), vector_bits, word_lanes,
        shuffled and vector_bits == 16 * word_lanes, dots_bytes, "__extendhfsf2" not in half,
    )  # fmt: skip


@functools.cache
def host() -> Host:
    """Returns this machine."""
    name = _kept_name()
    if not name:
        return ask()
    kept = cache.Folder("hosts")
    try:
        return Host(**json.loads(kept.load(name) or b""))
    except (ValueError, TypeError):  # nothing is kept, or it is of other sources
        found = ask()
        kept.store(name, json.dumps(asdict(found)).encode())
        return found


def _kept_name() -> str:
    """Returns the name of LLVM's answers in the cache: a digest of all that they depend on. "" if that is not known here."""
    processor, library = _processor(), _library()
    if not processor or library is None:
        return ""
    status = library.stat()
    chosen = [os.environ.get(variable) for variable in VARIABLES]
    about = llvmlite.__version__, str(library), status.st_size, status.st_mtime_ns, platform.machine(), processor, chosen
    digest = hashlib.sha256(repr(about).encode())
    for source in (__file__, object_file.__file__):
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:32]


def _processor() -> str:
    """Returns what Linux says of the first core; "" elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = itertools.takewhile(str.strip, file)  # not the other cores, of which each takes milliseconds
            return "".join(line for line in lines if line.partition(":")[0].strip() in PROCESSOR)
    except OSError:
        return ""


def _library() -> Path | None:
    """Returns the path of LLVM's library on Linux; None if llvmlite has it elsewhere."""
    library = Path(llvmlite.__file__).parent / "binding" / "libllvmlite.so"
    return library if library.is_file() else None
