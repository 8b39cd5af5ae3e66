"""What the chip is: descriptors, targets, instruction set, matrix instructions, code objects."""

from hardware import errors
from hardware.descriptor import HardwareDescriptor, MFMAAtom
from hardware.errors import SimError
from hardware.targets import target, targets

__all__ = ["HardwareDescriptor", "MFMAAtom", "SimError", "errors", "target", "targets"]
