"""Memory channels that rounds of workgroups keep busy."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware.rates.pipelines import pipelines
from simgpu.timing.channels import busy_channels, lines_of
from simgpu.timing.native.streams import JUMP, LDS, MEMORY

MI210 = pipelines("gfx90a")


def rows(count: int, bytes_apart: int) -> np.ndarray:
    """Makes lines of 64 bytes, `bytes_apart` bytes apart."""
    return np.arange(count, dtype=np.uint32) * np.uint32(bytes_apart // 64)


@pytest.mark.parametrize("apart, channels", [(128, 32), (256, 32), (8 << 10, 16), (64 << 10, 4), (256 << 10, 1), (1 << 20, 1)])
def test_strides_of_a_power_of_two_keep_few_channels_busy(apart: int, channels: int) -> None:
    """MI210's channels take blocks of 256 bytes in turn; each 8 KB and each 64 KB begin with another of four."""
    assert busy_channels([rows(4096, apart)], MI210) == pytest.approx(channels / 32)
    assert busy_channels([rows(4096, apart)], pipelines("gfx942")) == 1


def test_halves_of_a_line_are_one() -> None:
    assert busy_channels([np.repeat(rows(4096, 64), 2)], MI210) == 1


def test_rounds_count_by_what_they_ask_for() -> None:
    """A round may use all channels for as many lines as another uses one of 32; empty rounds count for nothing."""
    both = [rows(4096, 256), rows(4096, 256 << 10)]
    assert busy_channels(both, MI210) == pytest.approx(2 / (1 + 32))
    assert busy_channels([*both, rows(0, 64)], MI210) == busy_channels(both, MI210)
    assert busy_channels([rows(0, 64)], MI210) == 1


LOCAL = [LDS << 30 | 3, 64]


def loads(*lines: int) -> list[int]:
    """Makes the words of an access to these lines."""
    return [MEMORY << 30 | 7, 16 << 16 | len(lines), *lines]


def told(*groups: list[list[int]]) -> list[int]:
    return lines_of([[np.array(words, np.uint32) for words in waves] for waves in groups]).tolist()


def test_lines_are_told_by_workgroups_of_which_all_waves_came_to_an_access() -> None:
    jump = [JUMP << 30 | 2, 9]
    assert told([LOCAL + loads(5, 9), jump + loads(9)], [loads(1), jump]) == [5, 9]
    assert told([loads(5), LOCAL]) == [5]  # a wave that leaves loads to others
    assert told([loads(5, 9)[:-1]]) == [5]  # its room ended
    assert told([jump]) == []
