"""Colours that must differ do so in every kind of colour vision; text is legible on its ground.

Simulation: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009),
severity 1, on linear RGB. Distance: CIE 1976 in CIELAB, D65. Contrast: WCAG 2.1.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.support.places import ROOT

FOLDER = ROOT / "tools" / "page"
VISION = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
WHITE = np.array([0.95047, 1, 1.08883])
APART = 20.0  # neighbours of Okabe and Ito's palette are nearer


def linear(rgb: tuple[int, ...]) -> np.ndarray:
    c = np.array(rgb) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: tuple[int, ...], vision: str) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(np.array(VISION[vision]) @ linear(rgb), 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(rgb)) + 0.05 for rgb in (one, other))
    return high / low


def rgb(text: str) -> tuple[int, ...]:
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


STYLE = (FOLDER / "style.css").read_text()
PAIRS = dict(re.findall(r"\.c-(\w+) \{ color: light-dark\((#\w+, #\w+)\)", STYLE))
PAPER = re.search(r"--paper: light-dark\((#\w+), (#\w+)\)", STYLE)


def classes(theme: int) -> list[tuple[int, ...]]:
    assert len(PAIRS) == 8
    return [rgb(pair.split(", ")[theme]) for pair in PAIRS.values()]


def kinds_of_traffic() -> list[tuple[int, ...]]:
    line = re.search(r"TRAFFIC = \[(.*)\];", (FOLDER / "script" / "traffic.js").read_text())
    assert line is not None
    return [tuple(map(int, part.split(","))) for part in re.findall(r"\[([^\[\]]+)\]", line[1])]


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colours", [classes(0), classes(1), kinds_of_traffic()], ids=["light", "dark", "traffic"])
def test_any_two_are_told_apart(colours: list[tuple[int, ...]], vision: str) -> None:
    for one, other in itertools.combinations(colours, 2):
        assert np.linalg.norm(lab(one, vision) - lab(other, vision)) >= APART, (one, other)


def test_the_ramp_grows_lighter_for_everybody() -> None:
    line = re.search(r"CIVIDIS = \[(.*?)\]", (FOLDER / "script" / "base.js").read_text())
    assert line is not None
    ramp = [rgb(text) for text in re.findall(r"#\w{6}", line[1])]
    for vision in VISION:
        assert len(ramp) == 9 and (np.diff([lab(colour, vision)[0] for colour in ramp]) > 4).all()


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_classes_are_read_on_their_ground(theme: int) -> None:
    assert PAPER is not None
    assert all(contrast(colour, rgb(PAPER[theme + 1])) >= 4.4 for colour in classes(theme))
