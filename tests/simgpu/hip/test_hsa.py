"""Agents and ISAs of the HSA runtime. Mojo finds the GPU of a HIP device by them."""

from __future__ import annotations

import sys

from simgpu import hardware
from tests.support.forks import hip

ASK = """
import ctypes
hsa, hip = ctypes.CDLL("libhsa-runtime64.so.1"), ctypes.CDLL("libamdhip64.so")
class Handle(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64)]
EACH = ctypes.CFUNCTYPE(ctypes.c_int, Handle, ctypes.c_void_p)
def text(ask, handle, what):
    made = ctypes.create_string_buffer(64)
    assert ask(handle, what, made) == 0
    return made.value.decode()
def number(handle, what):
    made = ctypes.c_uint32()
    return made.value if hsa.hsa_agent_get_info(handle, what, ctypes.byref(made)) == 0 else None
@EACH
def isa(handle, _data):
    length = ctypes.c_uint32()
    assert hsa.hsa_isa_get_info_alt(handle, 0, ctypes.byref(length)) == 0
    name = text(hsa.hsa_isa_get_info_alt, handle, 1)
    print("isa", name, length.value == len(name) + 1)
    return 0
@EACH
def agent(handle, _data):
    numbers = [number(handle, what) for what in (17, 0xa006, 0xa00f, 99)]
    print([text(hsa.hsa_agent_get_info, handle, what) for what in (0, 1)], *numbers)
    return hsa.hsa_agent_iterate_isas(handle, isa, None)
first = EACH(lambda handle, _data: 1)
assert hsa.hsa_init() == 0
assert hsa.hsa_iterate_agents(agent, None) == 0
assert hsa.hsa_iterate_agents(first, None) == 1 and hsa.hsa_iterate_agents(None, None) == 0x1001
assert hsa.hsa_agent_get_info(Handle(4), 0, ctypes.create_string_buffer(64)) == 0x1004
assert hsa.hsa_agent_iterate_isas(Handle(0), isa, None) == 0x1004
assert hsa.hsa_isa_get_info_alt(Handle(1), 1, ctypes.create_string_buffer(64)) == 0x100f
assert hsa.hsa_shut_down() == 0
bus = ctypes.create_string_buffer(20)
for device in range(2):
    assert hip.hipDeviceGetPCIBusId(bus, 20, device) == 0
    print(bus.value.decode())
"""


def test_agents_are_the_devices_of_hip() -> None:
    """Programs compare agents and devices by their place on the PCI bus."""
    done = hip("--target", "mi300x,mi100", sys.executable, "-c", ASK)
    lines = done.stdout.splitlines()
    archs = [hardware.target(board).arch for board in ("mi300x", "mi100")]
    assert lines[0] == "['host', 'CPU'] 0 0 0 None", done.stdout + done.stderr
    for number, arch in enumerate(archs):
        bus = lines[5 + number].split(":")  # domain, bus, device and function
        at = (int(bus[1], 16) << 8) + (int(bus[2].split(".")[0], 16) << 3)
        assert lines[1 + 2 * number] == f"['{arch}', 'AMD'] 1 {at} {int(bus[0], 16)} None"
        assert lines[2 + 2 * number] == f"isa amdgcn-amd-amdhsa--{arch}:sramecc+:xnack- True"
    assert len(lines) == 7
