"""Public reports of wrong code for gfx9 targets: which LLVM 22.1.8 still has, each judged by a small program of this project.

    python -m simgpu.tools.robustness.ir_exam [215745 6412 ...]

A report is *shown* if its program is compiled wrong, *refuted* if LLVM 22.1.8 compiles the reported code, rewritten here, right,
and *out of reach* if the reported code is not public. A run compared with the host judges most programs. Lint judges wait states.
Weak mode judges a missing wait: two workgroups pass a value on. The exit status is 1 if a verdict is not the recorded one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simgpu import Device
from simgpu.checks.lint import lint_causes
from simgpu.hardware.code_object import CodeObject
from simgpu.tools.cases.sources import compile
from simgpu.tools.robustness.ir_faults import FAULTS, program_of
from simgpu.tools.robustness.ir_runs import Setting, code_object, difference, gpu_result, host_results

SHOWN, REFUTED, OUT_OF_REACH = "shown", "refuted", "out of reach"
SEED = 11  # of the memory that programs read
WEAK_SEEDS = range(1, 9)


@dataclass(frozen=True)
class Report:
    """A public report and its verdict for LLVM 22.1.8. Its program has one of three forms, or none."""

    issue: str
    what: str
    verdict: str
    reason: str = ""  # of a report that is out of reach
    fault: str = ""  # a row of FAULTS
    settings: tuple[Setting, ...] = ()  # for `lines`
    lines: str = ""  # a program as that of a row of FAULTS
    hazard: str = ""  # words of lint's finding about `lines`
    kernel: str = ""  # HIP: workgroup 0 passes an array to workgroup 1

    def signs(self) -> Iterator[str]:
        """Yields the signs of the reported fault: differing bytes, or messages of lint."""
        if self.kernel:
            yield from _signs_in_weak_mode(self.kernel, self.settings)
        elif self.hazard:
            for setting in self.settings:
                code = CodeObject.parse(code_object([program_of(self.lines)], setting))
                found = (finding.message for finding in lint_causes(code, code.kernels["p0"]))
                yield from (f"{setting}: {message}" for message in found if self.hazard in message)
        elif self.fault or self.lines:
            fault = next((fault for fault in FAULTS if fault.name == self.fault), None)
            program = fault.example() if fault else program_of(self.lines)
            (expected,) = host_results([program], SEED)
            for setting in (fault.wrong,) if fault else self.settings:
                gpu = Device(setting.target, threads=1)
                after = gpu_result(gpu, gpu.load(code_object([program], setting)), program, SEED)
                where = difference(expected, after)
                yield from [f"{setting}: {where}"] if where else []

    def judge(self) -> tuple[str, str]:
        """Judges the report again; returns the verdict and the first sign. Raises ProgramRejected for code that clang rejects.

        >>> Report("an issue", "wrong code", OUT_OF_REACH, "no program").judge()
        ('out of reach', '')
        """
        if not (self.kernel or self.fault or self.lines):
            return OUT_OF_REACH, ""
        sign = next(self.signs(), "")
        return (SHOWN if sign else REFUTED), sign


def _signs_in_weak_mode(source: str, settings: Sequence[Setting]) -> Iterator[str]:
    """Yields the seeds of weak mode that give another result than a plain launch."""
    for setting in settings:
        code = compile(source, setting.target, (setting.level,))
        plain = _passed_on(code, Device(setting.target))
        for seed in WEAK_SEEDS:
            wrong = int((_passed_on(code, Device(setting.target, weak=seed)) != plain).sum())
            if wrong:
                yield f"{setting}: {wrong} of {len(plain)} elements differ in weak mode, seed {seed}"


def _passed_on(code: bytes, gpu: Device) -> np.ndarray:
    module = gpu.load(code)
    (name,) = module.code.kernels
    buffers = [gpu.upload(np.zeros(64, np.int32)) for _ in range(4)]
    module[name].launch(grid=2, block=64, args=buffers)
    return buffers[-1].download(np.int32)


GIST = "the program is in a gist that this project could not read"
FAR_READ = "\n".join(
    f"  %m{i + 1} = mul i32 {at}, {at}\n  call void @llvm.amdgcn.sched.barrier(i32 0)"
    for i, at in enumerate(("%lane", *(f"%m{i}" for i in range(1, 19))))
)  # 19 vector instructions
EXAM = (
    Report("llvm #215745", "s_and_b64 is removed although its SCC is read", SHOWN, fault="scc-of-a-removed-and"),
    Report("ROCm/legacy-rocm-build #6412", "a private array after a loop with a break", SHOWN, fault="insert-hoisted-from-a-join"),
    Report("llvm #194829", "unsigned division as a division of floats", SHOWN, fault="division-by-sign-bits"),
    Report("llvm #198601", "a HIP program, -O1 against -O0", OUT_OF_REACH, GIST),
    Report("llvm #198603", "unions returned by functions, -O1 against -O0", OUT_OF_REACH, GIST),
    Report("llvm #198606", "structures assigned in comma expressions, -O1 against -O0", OUT_OF_REACH, GIST),
    Report("llvm #198613", "nested unions assigned, -O1 against -O0", OUT_OF_REACH, GIST),
    Report("llvm #131386", "wrong results for gfx942 at -O3", OUT_OF_REACH, "this project could not read the report"),
    Report(
        "llvm #138766",
        "v_cndmask_b32_sdwa reads a half without its sign",
        REFUTED,
        settings=tuple(Setting(target, "-O2", False) for target in ("gfx90a", "gfx942")),
        lines="""  %a = load i32, §G %in_own, align 4
  %b_at = getelementptr i8, §G %in_own, i64 4
  %b = load i32, §G %b_at, align 4
  %high = ashr i32 %a, 16
  %c = icmp slt i32 %b, 77
  %d = select i1 %c, i32 %high, i32 %b
  store i32 %d, §G %out_own, align 1""",
    ),
    Report(
        "llvm #139317",
        "v_pk_add_f16 adds 0 for the constants 2 and 3",
        REFUTED,
        settings=tuple(Setting(target, "-O2", False) for target in ("gfx90a", "gfx942")),
        lines="""  %a = load <8 x i16>, §G %in_own, align 4
  %b = and <8 x i16> %a, splat (i16 255)
  %c = uitofp <8 x i16> %b to <8 x half>
  %step = call <8 x i16> @llvm.stepvector.v8i16()
  %d = uitofp <8 x i16> %step to <8 x half>
  %e = fadd <8 x half> %c, %d
  store <8 x half> %e, §G %out_own, align 1""",
    ),
    Report(
        "llvm #151676",
        "an unsigned 64-bit number divided by 10 (reported for gfx906)",
        REFUTED,
        settings=tuple(Setting(target, "-O2", False) for target in ("gfx908", "gfx90a")),
        lines="""  %a = load i64, §G %in_own, align 4
  %b = udiv i64 %a, 10
  %c = mul i64 %b, 10
  %d = sub i64 %a, %c
  %e = add i64 %c, %d
  %f = udiv i64 %e, 10
  store i64 %b, §G %out_own, align 1
  %next = getelementptr i8, §G %out_own, i64 8
  %g = xor i64 %f, %d
  store i64 %g, §G %next, align 1""",
    ),
    Report(
        "llvm #178316",
        "no wait after buffer_wbl2 if the wave's stores are complete",
        SHOWN,
        settings=(Setting("gfx942", "-O2", False),),
        kernel="""
__global__ void pass(int *data, int *flags, const int *ready, int *result) {
  int i = threadIdx.x;
  if (blockIdx.x == 0) {
    data[i] = 42 + i;
    if (ready[i] == 0)
      __hip_atomic_store(flags + i, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  } else {
    while (__hip_atomic_load(flags + i, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0);
    result[i] = data[i];
  }
}
""",
    ),
    Report(
        "llvm #202333",
        "no s_nop after a wide store in a branch",
        REFUTED,
        settings=tuple(Setting(target, "-O2", False) for target in ("gfx942", "gfx950")),
        hazard="wait states",
        lines="""  %a = load <4 x float>, §G %in_own, align 16
  %b = extractelement <4 x float> %a, i32 0
  %c = fcmp olt float %b, 1.0
  br i1 %c, label %some, label %all
some:
  store <4 x float> %a, §G %out_own, align 16
  br label %all
all:
  %d = fmul <4 x float> %a, splat (float 4.0)
  %e = getelementptr i8, §G %out_own, i64 16
  store <4 x float> %d, §G %e, align 16""",
    ),
    Report(
        "llvm #218363",
        "no s_nop between two matrix instructions with one accumulator",
        SHOWN,
        settings=(Setting("gfx950", "-O2", False),),
        hazard="another opcode's identical C",
        lines="""  %a = load <8 x half>, §G %in_own, align 16
  %b = load <4 x half>, §G %in_own, align 16
  %c = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.f16(
    <8 x half> %a, <8 x half> %a, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half> %b, <4 x half> %b, <4 x float> %c, i32 0, i32 0, i32 0)
  store <4 x float> %d, §G %out_own, align 16""",
    ),
    Report(
        "llvm #222040",
        "19 wait states after a matrix instruction where 20 are required",
        SHOWN,
        settings=(Setting("gfx950", "-O2", False),),
        hazard="19 wait states",
        lines=f"""  %a = load <4 x half>, §G %in_own, align 16
  %c = call <32 x float> @llvm.amdgcn.mfma.f32.32x32x4f16(
    <4 x half> %a, <4 x half> %a, <32 x float> zeroinitializer, i32 0, i32 0, i32 0)
  call void @llvm.amdgcn.sched.barrier(i32 0)
{FAR_READ}
  %e = extractelement <32 x float> %c, i32 0
  %f = fadd float %e, 1.0
  call void @llvm.amdgcn.sched.barrier(i32 0)
  store float %f, §G %out_own, align 16
  %next = getelementptr i8, §G %out_own, i64 16
  store i32 %m19, §G %next, align 16""",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simgpu.tools.robustness.ir_exam", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("number", nargs="*", help="numbers of issues (default: all)")
    options = parser.parse_args(argv)
    reports = {report.issue.rpartition("#")[2]: report for report in EXAM}
    unknown = [number for number in options.number if number not in reports]
    if unknown:
        parser.error(f"no report {', '.join(unknown)}; there are {', '.join(reports)}")
    other = 0
    for number in options.number or reports:
        report = reports[number]
        verdict, sign = report.judge()
        other += verdict != report.verdict
        note = "" if verdict == report.verdict else f" (recorded: {report.verdict})"
        print(f"{report.issue}: {verdict}{note}: {report.what}", *(f"  {line}" for line in (sign, report.reason) if line), sep="\n")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
