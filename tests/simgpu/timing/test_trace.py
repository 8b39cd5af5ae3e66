"""Numbers for values, in the order in which the values come."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.timing.trace import number_values


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("most", [1, 3, 1 << 17, (1 << 32) - 1])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 5000])
def test_values_are_numbered_in_the_order_in_which_they_first_come(count: int, most: int, dtype: type) -> None:
    values = np.random.default_rng(count).integers(0, most, count, endpoint=True).astype(dtype)
    numbers, known = number_values(values)
    assert known[numbers].tolist() == values.tolist()
    assert known.tolist() == list(dict.fromkeys(values.tolist()))
