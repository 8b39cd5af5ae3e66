"""docs/reference/timing-constants.md lists every constant of the model of time as the code has it."""

from __future__ import annotations

import re
from dataclasses import fields

from simgpu import hardware
from simgpu.hardware.rates.clocks import clock_falls, clock_line
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.rates.sustained import Rates, sustained_rates
from tests.support.places import ROOT

ARCHITECTURES = ("gfx908", "gfx90a", "gfx942", "gfx950")
PAGE = (ROOT / "docs" / "reference" / "timing-constants.md").read_text()
ROWS = {name: re.split(r" *\| *", cells) for name, cells in re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.M)}


def test_every_constant_is_listed() -> None:
    for arch, column in zip(ARCHITECTURES, range(1, 5), strict=True):
        for figures in (pipelines(arch), sustained_rates(hardware.target(arch)).rates):
            listed = {field.name: float(ROWS[field.name][column]) for field in fields(figures)}
            assert listed == {field.name: getattr(figures, field.name) for field in fields(figures)}, arch


def test_every_clock_is_listed() -> None:
    names = {field.name for table in (Pipelines, Rates) for field in fields(table)}
    boards = ROWS.keys() - names
    assert boards == {name for name in hardware.targets() if name.startswith("mi")}
    for name in boards:
        idle, *full, valu, lds = map(float, ROWS[name][:8])
        assert clock_falls(hardware.target(name)) == (valu, lds), name
        for dtype, mhz in zip(("f16", "bf16", "f8", "f4", "f32"), full, strict=True):
            assert clock_line(hardware.target(name), dtype) == (idle, mhz), (name, dtype)
