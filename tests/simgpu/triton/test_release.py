"""Releases of Triton that simgpu refuses; skipped if Triton is missing."""

from __future__ import annotations

import importlib

import pytest

from simgpu.hardware.errors import LaunchError

triton = pytest.importorskip("triton")


@pytest.mark.parametrize("version", ["3.4.0", "2.1.0+git12"])
def test_an_older_triton_is_refused_in_one_line(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = importlib.import_module("simgpu.triton.release")
    monkeypatch.setattr(triton, "__version__", version)
    with pytest.raises(LaunchError, match=r"Triton 3\.6 and later; this is Triton ") as error:
        importlib.reload(release)
    assert version in str(error.value)


@pytest.mark.parametrize("version", ["3.6.0", "3.10.0", "4.0.0+git1"])
def test_later_ones_are_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "__version__", version)
    importlib.reload(importlib.import_module("simgpu.triton.release"))
