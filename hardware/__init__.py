"""What the chip is: descriptors, targets, instruction set, matrix instructions, code objects."""

from simgpu.hardware import errors
from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.errors import SimError
from simgpu.hardware.targets import target, targets

__all__ = ["HardwareDescriptor", "MFMAAtom", "SimError", "errors", "target", "targets"]
