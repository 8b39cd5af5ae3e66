"""Locations of variables from debug information, compared with pyelftools."""

from __future__ import annotations

import io

import pytest
from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.dwarf.locationlists import BaseAddressEntry, LocationParser
from elftools.elf.elffile import ELFFile

import simgpu
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.debug import DebugInformation
from simgpu.hardware.code_object.locals import Local, Piece, pieces_of

SOURCE = """
__device__ float weigh(float v, int k) { float w = v * k; return sqrtf(w) + w; }
__device__ double wide(double v) { double w = v * v; return w + 1; }
__global__ void k(float *y, const float *x, const double *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0.0f;
    for (int j = 0; j < n; j++) {
        float a = x[i * n + j];
        acc += weigh(a, j);
        if (acc > 3) { long far = i * 4ll; acc += y[far]; }
    }
    double d = wide(z[i]);
    y[i] = acc + (float)(d * n);
}
"""
REGISTERS = {"s": 32, "v": 2560, "a": 3072}


@pytest.fixture(scope="module", params=["gfx90a", "gfx942"])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CodeObject:
    path = tmp_path_factory.mktemp("locals") / "k.hip"
    path.write_text(SOURCE)
    return CodeObject.parse(simgpu.compile(str(path), target=request.param))


def registers(expression: list[int], parser: DWARFExprParser) -> list[int]:
    """Returns the numbers of DWARF's registers in a location."""
    return [op.args[0] for op in parser.parse_expr(expression) if op.op_name in ("DW_OP_regx", "DW_OP_bregx")]


def numbers(local: Local) -> list[int]:
    """Returns DWARF's numbers of the registers that hold a variable."""
    return [REGISTERS[piece.register[0]] + int(piece.register[1:]) for piece in local.pieces or () if piece.register]


def test_they_are_where_pyelftools_says(code: CodeObject) -> None:
    dwarf = ELFFile(io.BytesIO(code.data)).get_dwarf_info(relocate_dwarf_sections=False)
    lists, compared = LocationParser(dwarf.location_lists()), 0
    for unit in dwarf.iter_CUs():
        parser = DWARFExprParser(unit.structs)
        base = unit.get_top_DIE().attributes["DW_AT_low_pc"].value
        for entry in unit.iter_DIEs():
            place = entry.attributes.get("DW_AT_location")
            if place is None or place.form != "DW_FORM_loclistx":
                continue
            origin = entry.get_DIE_from_attribute("DW_AT_abstract_origin") if "DW_AT_abstract_origin" in entry.attributes else entry
            name = origin.attributes["DW_AT_name"].value.decode()
            for found in lists.parse_from_attribute(place, unit["version"], entry):
                if isinstance(found, BaseAddressEntry):
                    base = found.base_address
                    continue
                low = found.begin_offset + (0 if found.is_absolute else base)
                wanted = registers(found.loc_expr, parser)
                held = [local for local in code.debug.locals(low) if local.name == name and local.pieces]
                if wanted:
                    assert wanted in [numbers(local) for local in held], (name, hex(low))
                    compared += 1
    assert compared >= 8


def test_scopes(code: CodeObject) -> None:
    kernel = next(iter(code.kernels.values()))
    every = {(local.name, local.function, local.type) for pc in range(kernel.start, kernel.start + kernel.code_size, 4)
             for local in code.debug.locals(pc)}  # fmt: skip
    assert {("i", "", "i32"), ("acc", "", "f32"), ("w", "weigh", "f32"), ("d", "", "f64"), ("far", "", "i64")} <= every
    assert code.debug.locals(0) == code.debug.locals(1 << 70) == ()


@pytest.mark.parametrize(("expression", "pieces"), [
    ("92821400311618", (Piece("v2", 0, 0),)),
    ("90821493049083149304", (Piece("v2", 0, 4), Piece("v3", 0, 4))),
    ("90c008930490449304", (Piece("s64", 0, 4), Piece("s36", 0, 4))),
    ("303116189f", (Piece("", 0, 0),)), ("117f9f", (Piece("", -1, 0),)), ("10059f", (Piece("", 5, 0),)),
    ("92821404", None),  # in memory, 4 bytes further
    ("06", None), ("", ()),
])  # fmt: skip
def test_expressions(expression: str, pieces: tuple[Piece, ...] | None) -> None:
    assert pieces_of(bytes.fromhex(expression)) == pieces


def test_damaged_information_counts_as_absent() -> None:
    assert DebugInformation(b"\x7fELF, cut off", ["k"]).locals(0) == ()
