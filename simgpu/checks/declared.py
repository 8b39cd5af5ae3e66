"""Compares the registers and LDS that code uses with the kernel's declaration.

A wave gets the registers that the descriptor declares, in whole granules (`descriptor`). A register past them belongs to another
wave, or to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simgpu.hardware.architectures import GFX12
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.isa.instruction import FLAT_SCRATCH, VCC
from simgpu.hardware.timing_rules.effect import Effect

# SGPRs at the end of a wave's allocation for special registers that code uses (LLVM, IsaInfo::getNumExtraSGPRs): for VCC only,
# and for VCC, XNACK_MASK and FLAT_SCRATCH.
EXTRA_VCC, EXTRA_ALL = 2, 6


@dataclass(frozen=True)
class HighestRegister:
    """Highest register of a file that code uses."""

    count: int = 0  # the register's number + 1; 0 if none is used
    place: int = 0  # address or record of the instruction that uses it

    def with_(self, count: int, place: int) -> HighestRegister:
        return HighestRegister(count, place) if count > self.count else self


@dataclass(frozen=True)
class Excess:
    """Use of more than is declared."""

    place: int | None  # address or record of the instruction, None for the kernel as a whole
    what: str  # the register, or LDS
    message: str


def registers_used(effects: Iterable[tuple[int, Effect]]) -> dict[str, HighestRegister]:
    """Returns the highest registers by file: "v", "a", "s", and "extra" for SGPRs that hold special registers.

    effects: pairs of an instruction's place, an address or a record, and its effect.
    """
    found = {name: HighestRegister() for name in ("v", "a", "s", "extra")}
    for place, effect in sorted(effects, key=lambda item: item[0]):
        for register in effect.registers:
            if register == "vcc":
                found["extra"] = found["extra"].with_(EXTRA_VCC, place)
            if not isinstance(register, tuple) or register[0] not in ("v", "a", "s"):
                continue
            file, number = str(register[0]), int(register[1])
            if file == "s" and number >= FLAT_SCRATCH:
                if number < VCC:
                    found["extra"] = found["extra"].with_(EXTRA_ALL, place)
                continue
            found[file] = found[file].with_(number + 1, place)
    return found


def excesses(kernel: KernelInfo, use: dict[str, HighestRegister]) -> Iterator[Excess]:
    """Yields registers beyond the declared ones, and an LDS size that differs between descriptor and metadata. use: see
    `registers_used`."""
    descriptor = kernel.descriptor
    total, accum = descriptor.vgprs, descriptor.accum_offset
    vectors, accumulators, scalars = use["v"], use["a"], use["s"]

    def excess(place: int, register: str, declared: str, remedy: str) -> Excess:
        return Excess(place, register, f"{register} is past {declared}: {remedy}")

    if accum:
        if vectors.count > accum:
            declared = f"the {accum} ArchVGPRs of accum_offset; the AccVGPRs follow there"
            yield excess(vectors.place, f"v{vectors.count - 1}", declared, f"accum_offset must be {-(-vectors.count // 4) * 4}")
        elif vectors.count > total:
            yield excess(
                vectors.place, f"v{vectors.count - 1}", f"the {total} registers of the descriptor",
                f"next_free_vgpr must be {vectors.count} at least",
            )  # fmt: skip
        if accumulators.count and accum + accumulators.count > total:
            declared = f"the {max(0, total - accum)} AccVGPRs of the descriptor: {total} registers, accum_offset {accum}"
            remedy = f"next_free_vgpr must be {accum + accumulators.count} at least"
            yield excess(accumulators.place, f"a{accumulators.count - 1}", declared, remedy)
    else:
        for file, most in (("v", vectors), ("a", accumulators)):
            if most.count > total:
                declared = f"the {total} registers of the descriptor"
                yield excess(most.place, f"{file}{most.count - 1}", declared, f"next_free_vgpr must be {most.count} at least")
    if kernel.target not in GFX12 and scalars.count + use["extra"].count > descriptor.sgprs:  # which has all SGPRs in each wave
        extra = f" less {use['extra'].count} for VCC and other special registers" if use["extra"].count else ""
        declared = f"the {descriptor.sgprs} of the descriptor{extra}"
        yield excess(scalars.place, f"s{scalars.count - 1}", declared, f"next_free_sgpr must be {scalars.count} at least")
    if descriptor.group_segment_size != kernel.group_segment_size:
        message = (
            f"the descriptor declares {descriptor.group_segment_size} bytes of LDS, the metadata {kernel.group_segment_size}: "
            "both must be what the kernel uses"
        )
        yield Excess(None, "LDS", message)
