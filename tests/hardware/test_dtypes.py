"""Element types: bits, and the packing of types below a byte."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware import mfma, target
from simgpu.hardware.dtypes import dtype, numpy_dtype, pack, unpack
from simgpu.hardware.errors import TargetError
from simgpu.hardware.matrix_table import FORMATS


@pytest.mark.parametrize("name", ["fp8", "bf8", "fp6", "bf6", "fp4"])
def test_packed_elements_are_a_stream_of_bits_the_first_lowest(name: str) -> None:
    bits = dtype(name).bits
    codes = np.random.default_rng(0).integers(0, 1 << bits, (3, 32)).astype(np.uint8)
    packed = pack(codes.view(numpy_dtype(name)), name)
    assert packed.shape == (3, dtype(name).packed_bytes(32)) and packed.dtype == np.uint8
    for row, stream in zip(codes, packed, strict=True):
        assert int.from_bytes(stream.tobytes(), "little") == sum(int(code) << bits * i for i, code in enumerate(row))
    assert (unpack(packed, name).view(np.uint8) == codes).all()


def test_bytes_of_a_type_below_a_byte_are_refused() -> None:
    assert dtype("fp4").packed_bytes(33) == 17 and dtype("bf16").packed_bytes(3) == 6
    with pytest.raises(TargetError, match="share bytes"):
        _ = dtype("fp6").bytes


def test_scaled_atoms_are_the_tables() -> None:
    """Every pair of formats has the rate and registers of the instruction's row."""
    chip = target("mi355x")
    for a, b in ((a, b) for a in FORMATS for b in FORMATS):
        atom = chip.scaled_atom(a, b)
        row = mfma.find(atom.mnemonic, "gfx950").with_formats(FORMATS.index(a), FORMATS.index(b))
        assert (atom.m, atom.n, atom.k, atom.passes) == (row.m, row.n, row.k, row.passes) and row.scaled
        assert row.registers("A") == dtype(a).packed_bytes(32) // 4 and row.registers("B") == dtype(b).packed_bytes(32) // 4
    with pytest.raises(TargetError, match="MX scales for f16 and fp4"):
        chip.scaled_atom("f16", "fp4")
    assert not target("mi300x").scaled_atoms


@pytest.mark.parametrize("name, ours", [
    ("fp16", "f16"), ("float16", "f16"), ("half", "f16"), ("bfloat16", "bf16"), ("fp32", "f32"), ("torch.float64", "f64"),
    ("tf32", "xf32"), ("e4m3", "fp8"), ("float8_e5m2", "bf8"), ("int8", "i8"),
])  # fmt: skip
def test_names_of_other_libraries_are_pointed_to_ours(name: str, ours: str) -> None:
    with pytest.raises(TargetError, match=rf"did you mean {ours}\?"):
        dtype(name)
