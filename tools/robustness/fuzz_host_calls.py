"""Calls of the host that no device library makes: packets with damaged or random links, lanes, messages and formats."""

from __future__ import annotations

import contextlib
import io
import random
import struct

import numpy as np

from simgpu.engine.allocations import DeviceMemory
from simgpu.engine.hostcall.packets import HostCalls
from simgpu.machine.layout import LANES

# Word indices in the buffer (`engine.hostcall.packets`): the ready stack and the headers.
READY, FIRST_HEADER, HEADER_WORDS = 4, 24, 3
PRINTF = 2
BEGIN, END = 1, 2
EXTENTS, ODD_EXTENTS = ("", "", "0", "7", "12", "300"), ("*", "65536", "65537", "99999999", "9" * 30)
TIMES = 4  # interrupts of a case
EXTREME = (0, 1, 2, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1)


def run(rng: random.Random) -> None:
    """Fills a buffer of packets as `rng` draws and serves it; raises the host side's errors."""
    packets = rng.choice((1, 2, 3, 7, 64))
    host = HostCalls(DeviceMemory(), packets)
    words = host.allocation.data.view(np.uint64)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for _ in range(TIMES):
            _packets(rng, words, packets)
            for _ in range(rng.choice((0, 0, 1, 3, 40))):
                words[rng.randrange(words.size)] = _word(rng)
            host.serve()
        host.output.flush()


def _packets(rng: random.Random, words: np.ndarray, packets: int) -> None:
    """Puts some packets on the ready stack, each with messages in some of its lanes."""
    payloads = FIRST_HEADER + -(-packets * HEADER_WORDS // 8) * 8
    bits = packets.bit_length()
    ready = 0
    for packet in rng.sample(range(packets), rng.randrange(1, min(packets, 4) + 1)):
        header = FIRST_HEADER + HEADER_WORDS * packet
        words[header : header + HEADER_WORDS] = ready, rng.choice((1, 5, 1 << 63, (1 << LANES) - 1)), PRINTF | 1 << 32
        ready = packet | 1 << bits
        for lane in range(LANES):
            at = payloads + 8 * (packet * LANES + lane)
            words[at : at + 8] = _slot(rng)
    words[READY] = ready


def _slot(rng: random.Random) -> list[int]:
    """Draws a lane's descriptor and seven words: the stream of its text, its format, its arguments."""
    text = b"".join(_conversion(rng) for _ in range(rng.randrange(4)))[: 8 * 5 - 1] + b"\0"
    given = [rng.choice((0, 1)), *struct.unpack(f"<{-(-len(text) // 8)}Q", text + bytes(-len(text) % 8))]
    given += [_word(rng) for _ in range(7 - len(given))]
    number = rng.choice((0, 0, 1, 2, rng.getrandbits(56)))
    return [rng.choice((BEGIN | END, BEGIN, END, 0, rng.randrange(32))) | rng.randrange(8) << 5 | number << 8, *given]


def _conversion(rng: random.Random) -> bytes:
    width, precision = (rng.choice(EXTENTS if rng.random() < 0.995 else ODD_EXTENTS) for _ in range(2))
    flags = "".join(flag for flag in "-+ #0" if rng.random() < 0.2)
    length = rng.choice(("", "hh", "h", "l", "ll", "L"))
    return f"%{flags}{width}.{precision}{length}{rng.choice('diuxXoaAeEfFgGscpnm%')}".encode()


def _word(rng: random.Random) -> int:
    return rng.choice((rng.choice(EXTREME), rng.getrandbits(64), rng.getrandbits(8)))
