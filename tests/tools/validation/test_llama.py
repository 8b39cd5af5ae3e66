"""Model that llama.cpp runs."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import llama


def test_the_model_is_read_by_gguf_and_depends_on_the_seed(tmp_path: Path) -> None:
    models = []
    for seed in (1, 1, 2):
        llama.write_model(tmp_path / "m.gguf", seed)
        models.append({one.name: one.data.copy() for one in gguf.GGUFReader(str(tmp_path / "m.gguf")).tensors})
    first, again, other = models
    assert len(first) == 3 + 9 * llama.LAYERS
    assert all((first[name] == again[name]).all() for name in first)
    assert not (first["output.weight"] == other["output.weight"]).all()


def test_a_folder_without_llama_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no usr/bin/llama-simple: unpack llama\.cpp-tools"):
        llama.main([str(tmp_path)])
