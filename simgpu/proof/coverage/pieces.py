"""Instructions that move parts of words: shifts, permutations of bytes, unions of words. None: unknown pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simgpu.alu.dpp import source_lanes
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.values import BESIDE, UNKNOWN, ZEROS, Array, Cells, Value, zero

WORD = 32  # bits
Shape = tuple[int, int]  # work-items, pieces of a word


def pieces_of(value: Value, shape: Shape) -> Array | None:
    """Returns the codes of a word's pieces; None for a word of unknown pieces."""
    if isinstance(value, Cells):
        return value.code
    return np.full(shape, ZEROS) if zero(value) else None


def _permute(high: Value, low: Value, selector: Value, shape: Shape) -> Cells | None:
    """Returns v_perm_b32: bytes 0 to 3 of a selector are those of `low`, 4 to 7 those of `high`, 12 is 0."""
    sources = [pieces_of(each, shape) for each in (low, high)]
    bytes_of = getattr(selector, "constant", None)
    if bytes_of is None or any(each is None for each in sources):
        return None
    words = np.concatenate([*sources, np.full((shape[0], 1), ZEROS), np.full((shape[0], 1), UNKNOWN)], axis=1)  # type: ignore[list-item]
    bits = WORD // shape[1]
    zeros, unknown = 2 * shape[1], 2 * shape[1] + 1
    made = np.empty(shape, np.int64)
    for piece in range(shape[1]):
        first, inside = divmod(piece * bits, 8)
        chosen = np.broadcast_to(np.asarray(bytes_of) >> 8 * first & 0xFF, shape[0])
        begins = chosen * 8 + inside
        whole = (chosen < 8) & (begins % bits == 0)
        for more in range(1, bits // 8):
            whole &= (np.asarray(bytes_of) >> 8 * (first + more) & 0xFF) == chosen + more
        places = np.where(whole, begins // bits, np.where((chosen == 12) & (bits <= 8), zeros, unknown))
        made[:, piece] = words[np.arange(shape[0]), places]
    return Cells(made)


def _shift(value: Value, power: Value, shape: Shape) -> Array | None:
    """Returns a word's pieces moved by bits, to the left if positive."""
    codes, by = pieces_of(value, shape), getattr(power, "constant", None)
    bits = WORD // shape[1]
    if codes is None or by is None or np.ndim(by) or by % bits:
        return None
    made = np.full(shape, ZEROS)
    moved = int(by) // bits
    if moved >= 0:
        made[:, moved:] = codes[:, : shape[1] - moved]
    else:
        made[:, :moved] = codes[:, -moved:]
    return made


def _either(a: Array | None, b: Array | None) -> Cells | None:
    """Returns the bits of two words, of which one has zeros."""
    if a is None or b is None:
        return None
    return Cells(np.where(a == ZEROS, b, np.where(b == ZEROS, a, UNKNOWN)))


def _shifted_or(value: Value, power: Value, more: Value, shape: Shape) -> Cells | None:
    return _either(_shift(value, power, shape), pieces_of(more, shape))


def _align(high: Value, low: Value, power: Value, shape: Shape) -> Cells | None:
    """Returns v_alignbit_b32: the low word of a pair that is shifted right."""
    by = getattr(power, "constant", None)
    sources = [pieces_of(each, shape) for each in (low, high)]
    bits = WORD // shape[1]
    if by is None or np.ndim(by) or by % bits or any(each is None for each in sources):
        return None
    first = int(by) % WORD // bits
    return Cells(np.concatenate(sources, axis=1)[:, first : first + shape[1]])  # type: ignore[arg-type]


def _beside(value: Value) -> bool:
    """True for a word of elements that the epilogue takes: its parts are single elements after a shift."""
    return isinstance(value, Cells) and bool(np.any(value.kind == BESIDE))


def _shift_alone(value: Value, power: Value, shape: Shape, sign: int) -> Cells | None:
    by = getattr(power, "constant", None)
    if by is None or np.ndim(by) or not _beside(value):
        return None
    made = _shift(value, Form.of(sign * int(by)), shape)
    return None if made is None else Cells(made)


def _keep(mask: Value, value: Value, shape: Shape) -> Cells | None:
    """Returns the pieces of a word that are in a mask."""
    bits, width = getattr(mask, "constant", None), WORD // shape[1]
    if bits is None or np.ndim(bits) or not isinstance(value, Cells) or not _beside(value):
        return None
    kept = [int(bits) >> width * at & (1 << width) - 1 for at in range(shape[1])]
    if any(each not in (0, (1 << width) - 1) for each in kept):
        return None
    return Cells(np.where(np.asarray(kept) == 0, ZEROS, value.code))


MOVED: dict[str, Callable[..., Cells | None]] = {
    "v_perm_b32": _permute, "v_lshl_or_b32": _shifted_or, "v_alignbit_b32": _align,
    "v_lshlrev_b32": lambda power, value, shape: _shift_alone(value, power, shape, 1),
    "v_lshrrev_b32": lambda power, value, shape: _shift_alone(value, power, shape, -1),
    "v_and_b32": _keep,
    "v_or_b32": lambda a, b, shape: _either(pieces_of(a, shape), pieces_of(b, shape)),
}  # fmt: skip


def from_lanes(value: Cells, control: int, shape: Shape) -> Cells | None:
    """Returns what the lanes of each wave get by `dpp_ctrl`; None if a lane gets nothing."""
    source = source_lanes(control)
    if None in source:
        return None
    return Cells(value.code.reshape(-1, WAVEFRONT, shape[1])[:, np.array(source)].reshape(shape))


def first_lanes(value: Value, items: int) -> Value:
    """Returns the value of each wave's first lane, as a scalar."""
    if isinstance(value, Cells):
        return value if np.all(value.code == value.code[0]) else None
    constant = value.constant if isinstance(value, Form) else None
    return None if constant is None else Form.of(np.broadcast_to(constant, items)[::WAVEFRONT].repeat(WAVEFRONT))


def move_pieces(mnemonic: str, values: Sequence[Value], shape: Shape) -> Cells | None:
    """Returns the result of an instruction that moves pieces of its operands; None if it does something else.

    >>> both = move_pieces("v_lshl_or_b32", [Cells(np.array([[6, ZEROS]])), Form.of(16), Cells(np.array([[1, ZEROS]]))], (1, 2))
    >>> both.code.tolist()
    [[1, 6]]
    """
    rule = MOVED.get(mnemonic)
    return rule(*values, shape) if rule is not None and any(isinstance(each, Cells) for each in values) else None
