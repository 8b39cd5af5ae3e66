"""Wave-instructions per second of the simulator, plain mode, by kind of work.

    python -m simgpu.tools.benchmarks.engine [--target gfx908] [--threads 2] [--scale 1.0] [--only NAME] [--check] [--json]

Every kernel is assembled from the text below, launched once to compile its handlers, and
then timed, best of five. With --check the same is done in checked mode, turn about: `checked` is its CPU time over plain mode's.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu import Device, asm
from simgpu.asm.builder.metadata import Header, KernelArgument, Resources, epilogue, prologue
from simgpu.tools.benchmarks.turn_about import best_seconds
from simgpu.tools.shared.console import print_json, show, table

if TYPE_CHECKING:
    from simgpu import Buffer, Kernel, Run

REPEATS = 5
POINTERS, COUNT = ("x", "y", "z"), "count"
WAVES = 4  # in a workgroup
WORKGROUP = 64 * WAVES
ADD_ELEMENTS, ADD_GROUPS = 1 << 20, 4096
STREAM_BYTES = 16 * WORKGROUP  # bytes that a workgroup moves in one step: 128 bits a lane


@dataclass(frozen=True)
class Bench:
    """A kernel to time.

    Its body finds pointers x, y, z in s[4:9], an i32 count in s10, the workgroup id in s2, the work-item in v0. It may use v0
    to v63, or `vgprs` registers, and s11 to s30.
    """

    name: str
    what: str  # its work, in words
    body: str
    groups: int  # workgroups
    count: int  # value of the argument
    nbytes: int = 4096  # of each buffer
    workgroup: int = WORKGROUP  # work-items
    lds: int = 0  # bytes
    vgprs: int = 64
    agprs: int = 0
    check: Callable[[list[np.ndarray]], bool] | None = None  # True if the buffers are right afterwards


def loop_text(lines: str, before: str = "") -> str:
    """Returns a loop that runs the lines s10 times."""
    return (
        f"{before}\nloop:\n{lines}\n  s_sub_u32 s10, s10, 1\n  s_cmp_lg_u32 s10, 0\n  s_cbranch_scc1 loop\n"
    )


_FMA = loop_text(
    "\n".join(f"  v_fma_f32 v{8 + i}, v1, v2, v{8 + i}" for i in range(48)),
    before="\n".join(f"  v_mov_b32 v{number}, 1.0" for number in (1, 2, *range(8, 56))),
)

_LDS = loop_text(
    "\n".join(
        f"  ds_read_b128 v[4:7], v1 offset:{at}\n  s_waitcnt lgkmcnt(0)\n"
        f"  ds_write_b128 v1, v[4:7] offset:{at}"
        for at in range(0, 16384, 4096)
    ),
    before="  v_lshlrev_b32 v1, 4, v0",
)

_STREAM = loop_text(
    """  global_load_dwordx4 v[4:7], v[2:3], off
  s_waitcnt vmcnt(0)
  global_store_dwordx4 v[8:9], v[4:7], off
  v_add_co_u32 v2, vcc, s12, v2
  v_addc_co_u32 v3, vcc, 0, v3, vcc
  v_add_co_u32 v8, vcc, s12, v8
  v_addc_co_u32 v9, vcc, 0, v9, vcc""",
    before=f"""  s_movk_i32 s12, {STREAM_BYTES}
  s_mul_i32 s11, s10, s12
  s_mul_i32 s11, s11, s2
  v_lshlrev_b32 v1, 4, v0
  v_add_u32 v1, s11, v1
  v_mov_b32 v3, s5
  v_mov_b32 v9, s7
  v_add_co_u32 v2, vcc, s4, v1
  v_addc_co_u32 v3, vcc, 0, v3, vcc
  v_add_co_u32 v8, vcc, s6, v1
  v_addc_co_u32 v9, vcc, 0, v9, vcc""",
)

# A branch in four is not taken.
_SCALAR = loop_text(
    """  s_add_u32 s12, s12, 7
  s_and_b32 s13, s12, 3
  s_cmp_eq_u32 s13, 0
  s_cbranch_scc1 rare
  s_xor_b32 s14, s14, s12
  s_branch joined
rare:
  s_lshl_b32 s14, s14, 1
joined:
  s_add_u32 s15, s15, s14""",
    before="  s_mov_b32 s12, 0\n  s_mov_b32 s14, 1\n  s_mov_b32 s15, 0",
)

# z = x + y, one element a lane.
_ADD = """  s_lshl_b32 s11, s2, 8
  v_add_u32 v1, s11, v0
  v_cmp_gt_u32 vcc, s10, v1
  s_and_saveexec_b64 s[12:13], vcc
  s_cbranch_execz done
  v_lshlrev_b32 v1, 2, v1
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[6:7]
  s_waitcnt vmcnt(0)
  v_add_f32 v2, v2, v3
  global_store_dword v1, v2, s[8:9]
done:"""


def benches(scale: float = 1.0, threads: int = 2) -> tuple[Bench, ...]:
    """Returns the kernels; `scale` multiplies the loops' counts, and the scalar one has a wave for each thread."""

    def times(count: int) -> int:
        return max(1, round(scale * count))

    steps = times(512)
    return (
        Bench("valu", "48 v_fma_f32, 64 lanes, in a loop", _FMA, 8, times(20_000)),
        Bench("lds", "4 ds_read_b128 + ds_write_b128 in a loop", _LDS, 8, times(20_000), lds=16384),
        Bench("global", "x to y, 128 bits a lane", _STREAM, 8, steps, nbytes=8 * steps * STREAM_BYTES,
              check=lambda buffers: bool(np.array_equal(buffers[0], buffers[1]))),
        Bench("scalar", "integer loop with branches", _SCALAR, threads, times(1_600_000), workgroup=64),
        Bench("vector add", f"2^20 elements, {ADD_GROUPS} workgroups", _ADD, ADD_GROUPS, ADD_ELEMENTS,
              nbytes=4 * ADD_ELEMENTS,
              check=lambda buffers: bool(np.array_equal(buffers[0] + buffers[1], buffers[2]))),
    )  # fmt: skip


def bench_named(name: str, threads: int = 2) -> Bench:
    """Returns the kernel of a name, in its full size."""
    return next(bench for bench in benches(threads=threads) if bench.name == name)


def text_of(bench: Bench, target: str) -> str:
    """Returns the kernel's assembly, with descriptor and metadata."""
    pointers = tuple(KernelArgument(name, 8 * i, 8, "global_buffer") for i, name in enumerate(POINTERS))
    arguments = (*pointers, KernelArgument(COUNT, 8 * len(POINTERS), 4, value_type="i32"))
    header = Header(
        "bench", target, bench.workgroup, arguments, workgroup_ids=(True, False, False)
    )
    load = ["  s_load_dwordx4 s[4:7], s[0:1], 0x0", "  s_load_dwordx2 s[8:9], s[0:1], 0x10",
            "  s_load_dword s10, s[0:1], 0x18", "  s_waitcnt lgkmcnt(0)"]  # fmt: skip
    used = Resources(vgprs=bench.vgprs, agprs=bench.agprs, sgprs=32, lds=bench.lds, instructions=0)
    if header.unified:  # the work-item id is packed: x in bits 9:0
        load.append("  v_and_b32 v0, 0x3ff, v0")
    return "\n".join((*prologue(header), *load, bench.body, "  s_endpgm", *epilogue(header, used))) + "\n"


@dataclass(frozen=True)
class LoadedBench:
    """A bench on a device, compiled by a first launch."""

    bench: Bench
    device: Device
    kernel: Kernel
    buffers: list[Buffer]
    launch: Callable[[], Run]

    def free(self) -> None:
        for buffer in self.buffers:
            self.device.free(buffer)


def prepare(bench: Bench, device: Device) -> LoadedBench:
    """Assembles the bench's kernel and launches it once."""
    rng = np.random.default_rng(0)
    buffers = [device.upload(rng.random(bench.nbytes // 4, np.float32)) for _ in POINTERS]
    kernel = device.load(asm.assemble(text_of(bench, device.arch), device.arch))["bench"]
    launch = functools.partial(kernel.launch, grid=bench.groups, block=bench.workgroup, args=[*buffers, bench.count])
    launch()
    return LoadedBench(bench, device, kernel, buffers, launch)


def measure(made: LoadedBench) -> dict[str, Any]:
    """Returns one bench's figures: the best of some launches, with all the time of `launch`."""
    bench, device = made.bench, made.device
    runs: list[Run] = []
    (seconds,) = best_seconds(lambda: runs.append(made.launch()), repeats=REPEATS)
    run = runs[-1]
    moved = run.counters["global_read_bytes"] + run.counters["global_write_bytes"]
    return {
        "name": bench.name,
        "what": bench.what,
        "wave_instructions": run.instructions,
        "seconds": seconds,
        "millions_per_second": run.instructions / seconds / 1e6,
        "lds_millions_per_second": run.counters["instructions_lds"] / seconds / 1e6,
        "thread_ns_per_instruction": 1e9 * seconds * device.threads / run.instructions,
        "global_gb_per_second": moved / seconds / 1e9,
        "right": bench.check is None or bench.check([buffer.download(np.float32) for buffer in made.buffers]),
    }


def checked_ratio(bench: Bench, target: str, threads: int) -> float:
    """Returns CPU time of a launch in checked mode over that in plain mode, best of some of each, turn about."""
    launches = [prepare(bench, Device(target, threads=threads, check=check)).launch for check in (False, True)]
    plain, checked = best_seconds(*launches, repeats=REPEATS, clock=time.process_time)
    return checked / plain


def main() -> int:
    """Prints the table; status 1 if a kernel's result is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [bench.name for bench in benches()]
    parser.add_argument("--target", default="gfx908", help="board or architecture (default: gfx908)")
    parser.add_argument("--threads", type=int, default=2, help="host threads (default: 2)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the loops' counts (default: 1)")
    parser.add_argument("--only", choices=names, help="one bench")
    parser.add_argument("--check", action="store_true", help="also checked mode's time over plain mode's")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    device = Device(options.target, threads=options.threads)
    chosen = [bench for bench in benches(options.scale, device.threads) if options.only in (None, bench.name)]
    rows = []
    for bench in chosen:
        made = prepare(bench, device)
        rows.append(measure(made))
        made.free()
    if options.check:
        for bench, row in zip(chosen, rows, strict=True):
            row["checked"] = checked_ratio(bench, options.target, options.threads)
    if options.json:
        print_json({"target": device.arch, "threads": device.threads, "benches": rows})
    else:
        cells = [list(row.values()) for row in rows]
        columns = ["bench", "what", "wave-instructions", "seconds", "M/s", "LDS M/s", "ns x thread", "GB/s", "right"]
        columns += ["checked"] if options.check else []
        show(table(f"{device.arch}, {device.threads} threads", columns, cells, left=2))
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
