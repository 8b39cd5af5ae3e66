"""Speed goals, one row each: the work, the benchmark that measures it, and the limit.

python -m simgpu.tools.benchmarks.goals NAME [--threads 2] [--corpus FOLDER] [--aiter FOLDER] [--profile]

prints one row as JSON; `simgpu bench` runs this in a new process for each row.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import LaunchError, SimError, ToolchainError
from simgpu.tools.benchmarks import attention, commands, gemm
from simgpu.tools.benchmarks.blas import limit_threads
from simgpu.tools.benchmarks.turn_about import best_seconds

if TYPE_CHECKING:
    from simgpu import Device

CORPUS = "../shared/corpus"  # --corpus names another folder
TARGET = "mi100"  # of the loops: their instructions are the same everywhere
SIZE, LENGTH, DIM = 4096, 16384, 128


@dataclass(frozen=True)
class GoalSetting:
    """Settings for all rows."""

    threads: int  # of simgpu and BLAS
    corpus: str = CORPUS  # the folder of compilers' kernels
    aiter: str = ""  # a checkout of github.com/ROCm/aiter


@dataclass(frozen=True)
class GoalValue:
    """Result of a row."""

    value: float | None  # in the goal's unit, None if it cannot be measured here
    note: str  # explains the value
    right: bool = True  # the results are right
    detail: dict[str, Any] = field(default_factory=dict)


Subject = tuple["Device", Callable[[], object]]  # a device, and a launch of a compiled kernel on it


@dataclass(frozen=True)
class Goal:
    """A goal of speed: a row of the table."""

    name: str
    work: str  # in words
    limit: float  # to be reached, in unit
    unit: str
    measure: Callable[[GoalSetting], GoalValue]
    at_least: bool = False  # more is better
    subject: Callable[[GoalSetting], Subject] | None = None  # of one kernel's row: the launch that `--profile` samples

    @property
    def text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g} {self.unit}"

    def excess_ratio(self, value: float) -> float:
        """Returns the factor by which a value is too slow (or too large); the goal is met at 1 or less."""
        if self.at_least:
            return self.limit / value if value else float("inf")
        return value / self.limit


def _whole(prepare: Callable[[GoalSetting], gemm.Gemm | attention.Attention]) -> Callable[[GoalSetting], Subject]:
    """Returns a row's subject: a launch of the whole prepared kernel."""

    def subject(setting: GoalSetting) -> Subject:
        made = prepare(setting)
        return made.prepared.device, made.launch

    return subject


def _gemm(name: str, work: str, limit: float, target: str, dtype: str = "f32") -> Goal:
    def prepare(setting: GoalSetting) -> gemm.Gemm:
        return gemm.prepare(SIZE, target, setting.threads, dtype)

    def measure(setting: GoalSetting) -> GoalValue:
        made = prepare(setting)
        return _product_value(gemm.measure(made), made)

    return Goal(name, work, limit, "x numpy", measure, subject=_whole(prepare))


def _attention(setting: GoalSetting, check: bool | str = False) -> attention.Attention:
    return attention.prepare(LENGTH, DIM, TARGET, setting.threads, check)


def _measure_attention(setting: GoalSetting) -> GoalValue:
    made = _attention(setting)
    return _product_value(attention.measure(made), made)


def _product_value(found: dict[str, Any], made: gemm.Gemm | attention.Attention) -> GoalValue:
    """Returns a row beside numpy, and in its detail `least`: the ratio if only vector and matrix instructions took time.

    Hosts that cannot sample launches have no `least`.
    """
    from simgpu.tools.bench.profile import profile_launches

    try:
        profile = profile_launches(made.prepared.device, made.launch)
    except LaunchError:
        return GoalValue(found["ratio"], _against_numpy(found), found["pass"], found)
    share = sum(row.samples for row in profile.opcodes if row.mnemonic.startswith("v_")) / max(profile.samples, 1)
    note = f"{_against_numpy(found)}; {share:.0%} of the time in v_ instructions"
    return GoalValue(found["ratio"], note, found["pass"], {**found, "least": found["ratio"] * share})


def _against_plain(
    name: str, work: str, limit: float, check: bool | str,
    prepare: Callable[[GoalSetting, bool | str], gemm.Gemm | attention.Attention],
) -> Goal:  # fmt: skip
    """Makes a row that compares a kernel under `check` with plain mode, turn about."""

    def measure(setting: GoalSetting) -> GoalValue:
        plain, checked = prepare(setting, False), prepare(setting, check)
        findings: list[Any] = []
        times = best_seconds(plain.launch, lambda: findings.extend(f for run in checked.launch() for f in run.findings))
        found = {"plain_seconds": times[0], "checked_seconds": times[1], "findings": len(findings)}
        return GoalValue(times[1] / times[0], f"{times[1]:.3g} s, plain {times[0]:.3g} s", not findings, found)

    return Goal(name, work, limit, "x plain", measure, subject=_whole(lambda setting: prepare(setting, check)))


def _f32_gemm(setting: GoalSetting, check: bool | str) -> gemm.Gemm:
    return gemm.prepare(SIZE, TARGET, setting.threads, check=check)


def _ring(name: str, work: str, target: str, dtype: str) -> Goal:
    """Makes a row that compares ring mode with plain mode, by processor time, turn about."""

    def prepare(setting: GoalSetting, ring: bool = True) -> gemm.Gemm:
        return gemm.prepare(SIZE, target, setting.threads, dtype, ring=ring)

    def measure(setting: GoalSetting) -> GoalValue:
        launches = [prepare(setting, ring).launch for ring in (False, True)]
        plain, ring = best_seconds(*launches, clock=time.process_time)
        return GoalValue(ring / plain, f"processor time {ring:.3g} s, plain {plain:.3g} s", True, {"plain": plain, "ring": ring})

    return Goal(name, work, 1.5, "x plain", measure, subject=_whole(prepare))


def _against_numpy(found: dict[str, Any]) -> str:
    return (
        f"{found['simulated_seconds']:.3g} s, numpy {found['numpy_seconds']:.3g} s ({found['numpy_gflops']:.0f} GFLOP/s); "
        f"{found['wave_instructions'] / 1e6:,.0f} M wave-instructions"
    )


def _loop(name: str, work: str, limit: float, bench: str) -> Goal:
    """Makes a row of `benchmarks.engine`: millions of wave-instructions per second, or the seconds of vector add."""
    seconds = bench == "vector add"

    def prepare(setting: GoalSetting) -> Any:
        from simgpu import Device
        from simgpu.tools.benchmarks import engine

        return engine.prepare(engine.bench_named(bench, setting.threads), Device(TARGET, threads=setting.threads))

    def measure(setting: GoalSetting) -> GoalValue:
        from simgpu.tools.benchmarks import engine

        found = engine.measure(prepare(setting))
        note = f"{found['wave_instructions'] / 1e6:.3g} M wave-instructions in {found['seconds']:.3g} s"
        if found["lds_millions_per_second"]:
            note += f"; {found['lds_millions_per_second']:.3g} M/s of LDS instructions alone"
        return GoalValue(found["seconds" if seconds else "millions_per_second"], note, found["right"], found)

    def subject(setting: GoalSetting) -> Subject:
        made = prepare(setting)
        return made.device, made.launch

    return Goal(name, work, limit, "s" if seconds else "M/s", measure, at_least=not seconds, subject=subject)


def _corpus(setting: GoalSetting) -> GoalValue:
    if not Path(setting.corpus, "manifest.json").is_file():
        return GoalValue(None, f"{setting.corpus} not found: give --corpus FOLDER")
    from simgpu.tools.benchmarks import corpus as bench_corpus

    found = bench_corpus.measure(setting.corpus, setting.threads)
    note = f"{found['kernels']} kernels, the slowest {found['slowest_seconds']:.2g} s ({found['all'][0]['name']})"
    return GoalValue(found["median_seconds"], note, True, found)


def _aiter(setting: GoalSetting) -> GoalValue:
    from simgpu.tools.benchmarks import aiter_gemm

    if not (Path(setting.aiter) / aiter_gemm.OBJECT).is_file():
        return GoalValue(None, f"{aiter_gemm.OBJECT} not found: give --aiter FOLDER, a checkout of github.com/ROCm/aiter")
    found = aiter_gemm.measure(Path(setting.aiter), SIZE, setting.threads)
    return GoalValue(found["ratio"], _against_numpy(found), found["pass"], found)


def _checked_loop(name: str, work: str, limit: float, bench: str) -> Goal:
    """Makes a row that compares checked mode with plain mode on a kernel of `benchmarks.engine`."""

    def measure(setting: GoalSetting) -> GoalValue:
        from simgpu.tools.benchmarks import engine

        ratio = engine.checked_ratio(engine.bench_named(bench, setting.threads), TARGET, setting.threads)
        return GoalValue(ratio, "processor time, turn about")

    return Goal(name, work, limit, "x plain", measure)


def _empty(setting: GoalSetting) -> GoalValue:
    from simgpu.tools.benchmarks import launch

    found = launch.measure()
    return GoalValue(found["empty"] / 1000, f"with 512 MB allocated {found['with_512_mb'] / 1000:.3g} ms", True, found)


def _first_launch(handlers: int) -> Callable[[GoalSetting], GoalValue]:
    def measure(setting: GoalSetting) -> GoalValue:
        from simgpu.tools.benchmarks import first_launch

        found = first_launch.measure("mi300x", handlers, check=False)
        note = f"{found['compiled']} functions, {found['processor_seconds']:.2g} s of processor time"
        return GoalValue(found["seconds"], note, True, found)

    return measure


def _start(which: str, **options: Any) -> Callable[[GoalSetting], GoalValue]:
    def measure(setting: GoalSetting) -> GoalValue:
        from simgpu.tools.benchmarks import start

        found = getattr(start, which)(**options)
        return GoalValue(found["seconds"], f"median of {', '.join(f'{took:.2g}' for took in found['all'])} s", True, found)

    return measure


def _command(name: str, limit: float, processor: bool = False) -> Goal:
    """Makes a row of `benchmarks.commands`: wall time, or processor time."""

    def measure(setting: GoalSetting) -> GoalValue:
        try:
            taken = commands.measure(name)
        except ToolchainError as error:
            return GoalValue(None, str(error))
        note = f"wall {taken.wall:.3g} s, processor {taken.processor:.3g} s"
        return GoalValue(taken.processor if processor else taken.wall, note, True, vars(taken))

    return Goal(name, commands.COMMANDS[name].work, limit, "s", measure)


def _step(setting: GoalSetting) -> GoalValue:
    from simgpu.tools.benchmarks import debugger

    return GoalValue(debugger.step_microseconds(TARGET), f"mean of {debugger.STEPS:,} steps of a scalar loop")


def _memory(setting: GoalSetting) -> GoalValue:
    from simgpu.tools.benchmarks import memory

    found = memory.measure_each(setting.threads)
    note = ", ".join(f"{name} {row['peak_mib']:.0f} - {row['buffers_mib']:.0f}" for name, row in found.items())
    return GoalValue(max(row["beyond_mib"] for row in found.values()), f"the most of: {note}", True, found)


GOALS = (
    _gemm("gemm f32", f"f32 GEMM {SIZE}³, MI100, whole", 1.5, "mi100"),
    _gemm("gemm f16", f"f16 GEMM {SIZE}³, MI300X, exact arithmetic, whole", 4, "mi300x", "f16"),
    _gemm("gemm bf16", f"bf16 GEMM {SIZE}³, MI300X, exact arithmetic, whole", 4, "mi300x", "bf16"),
    _gemm("gemm fp8", f"fp8 GEMM {SIZE}³, MI355X, exact arithmetic, whole", 4, "mi355x", "fp8"),
    _gemm("gemm mxfp4", f"MXFP4 GEMM {SIZE}³, MI355X, exact arithmetic, whole", 4, "mi355x", "fp4"),
    Goal("gemm aiter", f"AITER's bf16 GEMM {SIZE}³ of gfx950, exact arithmetic, whole", 5, "x numpy", _aiter),
    Goal("attention", f"fused attention f32, L = {LENGTH}, d = {DIM}, whole", 0.8, "x numpy", _measure_attention,
         subject=_whole(_attention)),
    _loop("valu", "VALU loop (f32 fma, 64 lanes)", 500, "valu"),
    _loop("lds", "LDS loop (ds_read_b128 + ds_write_b128)", 90, "lds"),
    _loop("scalar", "scalar loop with branches, one wave per core", 300, "scalar"),
    _loop("vector add", "vector add, 2^20 elements, 4096 workgroups, launch included", 0.05, "vector add"),
    Goal("corpus", "compilers' kernels, warm, without imports: the median", 0.1, "s", _corpus),
    Goal("cold start", "import simgpu to first result, small GEMM, cold", 0.8, "s", _start("cold")),
    Goal("warm start", "import simgpu to first result, small GEMM, warm", 0.35, "s", _start("warm")),
    _command("version", 0.15),
    Goal("first launch", "first launch of 100 instructions, nothing compiled", 0.5, "s", _first_launch(100)),
    Goal("first launch, 300", "first launch of 300 instructions, nothing compiled", 1.2, "s", _first_launch(300)),
    Goal("empty launch", "launch of a workgroup that does nothing", 0.1, "ms", _empty),
    _command("hip", 1),
    _command("triton", 0.8),
    _command("time", 1, processor=True),
    _command("lint", 3),
    _command("page", 1),
    _command("why", 2),
    Goal("debugger step", "a step of the debugger", 10, "us", _step),
    Goal("memory", "peak memory beyond the buffers", 150, "MiB", _memory),
    _checked_loop("checked valu", "checked mode, VALU loop", 1.3, "valu"),
    _checked_loop("checked lds", "checked mode, LDS loop", 4, "lds"),
    Goal("checked start", "import simgpu to first result, small GEMM, checked, cold", 3, "s", _start("cold", times=1, check=True)),
    _against_plain("checked gemm", f"checked mode, f32 GEMM {SIZE}³, MI100", 1.5, True, _f32_gemm),
    _ring("ring gemm", f"ring mode, f32 GEMM {SIZE}³, MI100", "mi100", "f32"),
    _ring("ring bf16", f"ring mode, bf16 GEMM {SIZE}³, MI300X", "mi300x", "bf16"),
    _against_plain("numerics gemm", f"check of numbers, f32 GEMM {SIZE}³, MI100", 1.5, "numerics", _f32_gemm),
    _against_plain("numerics attention", f"check of numbers, attention f32, L = {LENGTH}, d = {DIM}", 1.2, "numerics",
                   _attention),
)  # fmt: skip
NAMES = tuple(goal.name for goal in GOALS)


def main() -> int:
    """Measures one row in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--threads", type=int, default=2, help="host threads (default: 2)")
    parser.add_argument("--corpus", default=CORPUS, help=f"folder of compilers' kernels (default: {CORPUS})")
    parser.add_argument("--aiter", default="", help="checkout of github.com/ROCm/aiter")
    parser.add_argument("--profile", action="store_true", help="the time by opcode instead")
    options = parser.parse_args()
    limit_threads(options.threads)  # before numpy is loaded
    from simgpu.tools.shared.console import print_json

    (goal,) = [goal for goal in GOALS if goal.name == options.name]
    setting = GoalSetting(options.threads, options.corpus, options.aiter)
    try:
        print_json(_profile(goal, setting) if options.profile else vars(goal.measure(setting)))
    except SimError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _profile(goal: Goal, setting: GoalSetting) -> dict[str, Any]:
    from simgpu.tools.bench.profile import profile_document, profile_launches

    if goal.subject is None:
        rows = ", ".join(other.name for other in GOALS if other.subject)
        raise SimError(f"{goal.name} times no launch of one kernel: there is no time by opcode; these rows have one: {rows}")
    return profile_document(profile_launches(*goal.subject(setting)))


if __name__ == "__main__":
    sys.exit(main())
