"""An instruction's definition may use only a closed list of names. Other names give an error message, and nothing is registered."""

from __future__ import annotations

import pytest

from simgpu.hardware.isa.encodings import sopp, vop1
from simgpu.hardware.isa.gfx12.rows import rows
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.spec import REGISTRY, Memory, row
from simgpu.hardware.isa.types import f32


def v_new_f32(a: f32) -> f32:  # type: ignore[valid-type]
    return a


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: vop1(126, flags=("no_swda",))(v_new_f32), "no flag 'no_swda': use no_sdwa"),
        (lambda: sopp(99, control="waitcount", name="s_new")(lambda: None), "no control kind 'waitcount': use waitcnt"),
        (lambda: vop1(126, targets=("gfx90b",))(v_new_f32), "v_new_f32: there is no target 'gfx90b': use gfx9"),
        (lambda: vop1({"gfx909": 126})(v_new_f32), "no target 'gfx909': use gfx9"),
        (lambda: row("ds", "ds_new", 99, Memory("ds", "load"), flags=("zzz",)), "no flag 'zzz': use no_e64, "),
    ],
)
def test_a_misspelt_name_is_an_error_at_definition(define, message: str) -> None:  # type: ignore[no-untyped-def]
    before = len(REGISTRY.specs)
    with pytest.raises(ValueError, match=message):
        define()
    assert len(REGISTRY.specs) == before


def test_every_name_is_used() -> None:
    assert {spec.control for spec in (*REGISTRY.specs, *rows().values())} == set(ControlKind)
    assert set().union(*(spec.flags for spec in REGISTRY.specs)) == set(Flag)


def test_control_is_a_kind_of_its_own() -> None:
    assert all((spec.kind == "control") == bool(spec.control) for spec in REGISTRY.specs)
