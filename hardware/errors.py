"""Errors that simgpu raises. Each message has the value, the limit and a remedy."""

from __future__ import annotations

from typing import Any


class SimError(Exception):
    """Base of every error that this project raises on purpose."""

    advice = ""  # the remedy, if the message has none
    findings: tuple[Any, ...] = ()  # findings of checked mode before a launch failed


def says_it_all(raised: Any) -> bool:
    """True if an exception (pytest's ExceptionInfo) is an error with a message for users, so that no traceback is needed.

    A module whose `__tracebackhide__` is this function has no frames in pytest's report of such an error;
    `--full-trace` shows them.
    """
    return isinstance(raised.value, SimError)


class DecodeError(SimError):
    """Bytes that are no instruction of the target, or a file that is no code object."""


class UnsupportedInstruction(SimError):
    """An instruction that exists but cannot be executed in a compute kernel here."""


class ForeignInstruction(DecodeError, UnsupportedInstruction):
    """An encoding of graphics kernels (export, image, interpolation): no table has its opcodes."""


class MemoryFault(SimError):
    """An access outside every allocation, named by kernel, pc, wave, lane and address."""


class KernelTrap(SimError, RuntimeError):
    """A kernel that ended itself by s_trap: a failed assertion. A RuntimeError, as Triton and PyTorch raise on a GPU."""


class Deadlock(SimError):
    """A barrier that not all waves of a workgroup can reach."""


class InstructionLimit(SimError):
    """A launch that executed more instructions than its budget allows."""


class TimeLimit(SimError):
    """A launch that took longer than its limit."""


class HostCallError(SimError):
    """A call of the host that is damaged, or asks for more than the host gives."""


class LaunchError(SimError):
    """Arguments, sizes or resources that a launch cannot have."""


class ResourceError(SimError):
    """A tile, register or LDS demand that the target cannot meet."""


class TargetError(SimError):
    """A target, board or instruction name that is not known."""


class ToolchainError(SimError):
    """Missing clang or lld, or an assembly that they reject."""


class HipError(SimError):
    """A fault or refusal of a real GPU or its runtime."""

    def __init__(self, message: str, advice: str, status: int = 0) -> None:
        super().__init__(message)
        self.advice = advice
        self.status = status  # the hipError_t, 0 if HIP gave none


class HipKernelError(HipError):
    """A kernel that faults or hangs on a real GPU."""
