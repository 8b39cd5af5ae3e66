"""`simgpu probe`: tests the layouts of hardware.mfma for every matrix instruction, by kernels on a GPU or in the simulator."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu import hardware
from simgpu.hardware.mfma import MatrixInstruction, find, instructions
from simgpu.tools.shared.console import add_json_option, print_json, progress, show, table
from simgpu.tools.shared.launching import add_device_options, device_of, launch_work

if TYPE_CHECKING:
    from simgpu import Device
    from simgpu.hardware import hip

DEFAULT_TARGET = "mi100"


@dataclass(frozen=True)
class ProbeResult:
    """Results of the two tests of an instruction."""

    row: MatrixInstruction
    rows: bool  # the test found D[i,:] = i
    wrong: int  # wrong elements of a product of integer matrices
    total: int  # elements of that product

    @property
    def agrees(self) -> bool:
        return self.rows and not self.wrong

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {
            "mnemonic": self.row.mnemonic, "structured": self.rows, "wrong": self.wrong, "elements": self.total,
            "agrees": self.agrees,
        }  # fmt: skip

    def cells(self) -> tuple[object, ...]:
        """Returns the row of a table."""
        row = self.row
        kinds = f"{row.a_type} {row.b_type} {row.cd_type}"
        said = "agrees" if self.agrees else "DISAGREES"
        return row.mnemonic, row.blocks, kinds, "yes" if self.rows else "NO", self.wrong, self.total, said


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("mnemonic", metavar="MNEMONIC", nargs="*", help="only these instructions (default: all)")
    parser.add_argument("--target", default=DEFAULT_TARGET, help=f"board or architecture (default: {DEFAULT_TARGET})")
    add_device_options(parser, against_sim=False)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Tests the instructions; status 1 if one of them disagrees with its table."""
    arch = hardware.target(options.target).arch
    rows = [find(name, arch) for name in options.mnemonic] or list(instructions(arch))
    device = device_of(options, options.target)
    where = getattr(device, "name", f"the simulated {arch}")
    results = [_test(row, device, options.seed) for row in rows]
    agree = sum(result.agrees for result in results)
    if options.json:
        print_json({
            "device": where, "arch": arch, "tests": ["Q[i,:]=i, K=I", "integers from -2 to 2"],
            "instructions": [result.document() for result in results], "agree": agree, "pass": agree == len(results),
        })  # fmt: skip
    else:
        columns = ("instruction", "blocks", "A B D", "D[i,:] = i", "wrong", "of", "hardware/mfma")
        show(table(f"Layouts of matrix instructions on {where}", columns, (result.cells() for result in results)))
        show(f"\n{agree} of {len(results)} agree with hardware/mfma", "PASS" if agree == len(results) else "FAIL")
    return 0 if agree == len(results) else 1


def _test(row: MatrixInstruction, device: Device | hip.Device, seed: int) -> ProbeResult:
    from simgpu.tools.matrix.structured_test import probe, product

    with progress(f"testing {row.mnemonic}"):
        structured = launch_work(row.mnemonic, lambda: probe(row, device))
        wrong, total = launch_work(row.mnemonic, lambda: product(row, device, seed))
    return ProbeResult(row, structured.agrees, wrong, total)
