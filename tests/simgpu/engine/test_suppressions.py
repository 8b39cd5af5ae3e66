"""Suppressions: the findings that a file's entries cover, and the messages about a file that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import simgpu
from simgpu.engine.finding import Finding
from simgpu.engine.suppressions import read

TEXT = """# known
{
   redundant loads
   simgpu:race
   fun:layer_norm_*
   src:norm.py:1?
}
{
   every hazard
   simgpu:hazard
}
"""


def finding(kind: str, kernel: str = "layer_norm_fwd", source: str = "norm.py:12", other: str = "") -> Finding:
    return Finding(kind, "", 0, "", kernel=kernel, source=source, other_source=other)


def suppressions(folder: Path, text: str = TEXT) -> Path:
    path = folder / "known.supp"
    path.write_text(text)
    return path


def test_an_entry_is_about_a_kind_a_kernel_and_a_place(tmp_path: Path) -> None:
    known = read(suppressions(tmp_path))
    told = [
        finding("race", kernel="rms_norm"), finding("race", source="norm.py:120"), finding("bounds"),
        finding("race", source="other.py:12", other="norm.py:2"),
    ]  # fmt: skip
    silent = [finding("race"), finding("race", source="x.py:1", other="norm.py:17"), finding("hazard", "k", "")]
    assert known.left_of([*told, *silent]) == told
    assert known.used == {"redundant loads": 2, "every hazard": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{\n name\n simgpu:race\n", r"known\.supp: the last suppression has no }"),
        ("name\n", r"known\.supp:1: 'name' is outside of a block"),
        ("{\n name\n fun:k\n}\n", r"known\.supp:4: .*the kind of finding"),
        ("{\n name\n obj:k\n}\n", r"known\.supp:4: 'obj:k' .*begin with simgpu:, fun:, src:"),
        ("{\n}\n", "needs a name"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(simgpu.LaunchError, match=said):
        read(suppressions(tmp_path, text))
