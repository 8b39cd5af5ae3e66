"""ROCm's programs that report the GPU and the release: `python -m simgpu.tools.torch.rocm rocminfo mi300x`; and its linker."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import simgpu
from simgpu import hardware
from simgpu.tools.shared.hiprtc import device_library
from simgpu.tools.torch.environment import TARGET, with_variables

# A ROCm release whose number programs compare; nothing here depends on it.
HIP_VERSION = "7.0.0"
_FEATURES = ":sramecc+:xnack-"
# Environment variables of a ROCm's folder, as MLIR reads them (getROCMPath in mlir/lib/Target/LLVM/ROCDL/Target.cpp). PyTorch and
# Triton do not read the last.
ROOTS = ("ROCM_PATH", "ROCM_HOME", "ROCM_ROOT")
LINKER, BITCODE = "llvm/bin/ld.lld", "amdgcn/bitcode"  # in that folder


def rocminfo(target: str) -> str:
    """Prints boards as agents, in the lines that programs look for."""
    board, count = hardware.target_count(target)
    agents = "\n".join(_agent(board, number) for number in range(1, count + 1))
    return f"""\
=====================
HSA Agents
=====================
{agents}
*** Done ***"""


def _agent(board: str, number: int) -> str:
    chip, rule = hardware.target(board), "*******"
    return f"""\
{rule}
Agent {number}
{rule}
  Name:                    {chip.arch}
  Marketing Name:          simgpu {board}
  Vendor Name:             AMD
  Device Type:             GPU
  Compute Unit:            {chip.num_cus}
  SIMDs per CU:            {chip.simds_per_cu}
  Wavefront Size:          {chip.wavefront_size}(0x{chip.wavefront_size:x})
  Workgroup Max Size:      {chip.max_workgroup_size}(0x{chip.max_workgroup_size:x})
  Max Clock Freq. (MHz):   {chip.clock_mhz}
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--{chip.arch}{_FEATURES}"""


def rocm_smi(target: str) -> str:
    """Prints the devices, for any options."""
    board, count = hardware.target_count(target)
    chip = hardware.target(board)
    lines = {
        "Card Series": f"simgpu {board}", "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "GFX Version": chip.arch,
        "VRAM Total Memory (B)": chip.hbm_bytes, "VRAM Total Used Memory (B)": 0, "GPU use (%)": 0,
    }  # fmt: skip
    return "\n".join(f"GPU[{at}]\t\t: {name}: \t\t{value}" for at in range(count) for name, value in lines.items())


def agents(target: str) -> str:
    """Prints the architecture of each agent, the host's first."""
    board, count = hardware.target_count(target)
    return "\n".join(["gfx000", *[hardware.target(board).arch] * count])


def hipconfig(_target: str) -> str:
    """Prints HIP's version, for any options."""
    return HIP_VERSION


PROGRAMS = {"rocminfo": rocminfo, "rocm-smi": rocm_smi, "hipconfig": hipconfig, "rocm_agent_enumerator": agents}


@contextlib.contextmanager
def on_path(target: str) -> Iterator[None]:
    """Puts these programs first on the path of child processes for a block. They report the board that SIMGPU names, or else
    this one.

    On a machine without ROCm, ROCM_ROOT names a folder with what MLIR looks for in ROCm's: the ziglang wheel's linker, and the
    device library that hiprtc uses.
    """
    root = shlex.quote(str(Path(simgpu.__file__).resolve().parents[1]))
    with tempfile.TemporaryDirectory(prefix="simgpu-rocm-") as folder:
        for name in PROGRAMS:
            _write(Path(folder, name), [__spec__.name, name, target], f"PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}} ")
        found: dict[str, str | None] = {"PATH": os.pathsep.join([folder, os.environ.get("PATH", "")])}
        if not Path("/opt/rocm", LINKER).exists() and not any(os.environ.get(name) for name in ROOTS):
            _write(Path(folder, LINKER), ["ziglang", "ld.lld"])
            if library := device_library():
                Path(folder, BITCODE).parent.mkdir()
                Path(folder, BITCODE).symlink_to(library, target_is_directory=True)
            found[ROOTS[-1]] = folder
        with with_variables(found):
            yield


def _write(program: Path, module: Sequence[str], environment: str = "") -> None:
    """Writes a program that runs a module of Python with these arguments, and those that it is given."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\n{environment}exec {shlex.join([sys.executable, "-m", *module])} "$@"\n')
    program.chmod(0o755)


def main(arguments: Sequence[str]) -> None:
    """Prints the output of a program of PROGRAMS; arguments: its name, and the board if SIMGPU names none."""
    name, target, *_ = arguments
    print(PROGRAMS[name](os.environ.get(TARGET) or target))


if __name__ == "__main__":
    main(sys.argv[1:])
