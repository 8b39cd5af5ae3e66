"""Operators in a ring of elements, in numpy: what our kernels must compute, element by element, on a device with `ring`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from simgpu import Device, asm
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value
from simgpu.hardware.isa.ring import functions
from simgpu.hardware.isa.ring.arrays import OPS, elements, floats, words
from simgpu.operators import Conv2d, FusedAttention, Softmax, TiledComputation
from simgpu.tools.cases.execute import execute
from simgpu.tools.cases.operators import workload
from simgpu.tools.cases.workload import Workload
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs

LOG2E = 1 / math.log(2)


def number(x: float, kind: type = np.float32) -> np.ndarray:
    """Returns the element of a constant."""
    return elements(np.asarray(x, kind))


def exp2(e: np.ndarray) -> np.ndarray:
    return np.asarray(functions.power(Value(OPS, t.i32, e)).raw)


def inverse(e: np.ndarray) -> np.ndarray:
    return np.asarray(functions.inverse(Value(OPS, t.i32, e)).raw)


def launched(tree: Any) -> tuple[Workload, np.ndarray]:
    """Returns the operands of a tree's computation, and the result of its kernels in the ring."""
    work = workload(tree, tree.descriptor.arch, 0)
    (after, *_), _ = execute(Device(tree.descriptor.arch, ring=True), asm.emit(tree), work)
    return work, np.ascontiguousarray(replace(work.operands[work.result], flat=after).view)


def gemm(tree: TiledComputation, work: Workload) -> np.ndarray:
    p = tree.problem
    kind = np.float64 if p.epilogue_type == "f64" else np.float32
    a, b = (elements(np.asarray(operand.view)) for operand in work.operands[:2])
    a, b = a.swapaxes(-1, -2) if p.trans_a else a, b.swapaxes(-1, -2) if p.trans_b else b
    found = np.matmul(a, b)
    found = found if p.alpha == 1 else found * number(p.alpha, kind)
    return found + number(p.beta, kind) * elements(np.asarray(work.operands[work.result].view)) if p.beta else found


def conv2d(tree: Conv2d, work: Workload) -> np.ndarray:
    p, inputs = tree.problem, Inputs(np.random.default_rng(0), "uniform")
    x, w = (elements(inputs.array(array_type(p.dtype, tree.descriptor.arch), shape)) for shape in p.shapes[:2])
    (sy, sx), (py, px), (dy, dx) = p.stride, p.padding, p.dilation
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    _, _, oh, ow = p.shapes[2]
    found = np.zeros(p.shapes[2], x.dtype)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = x[:, :, i * dy : i * dy + sy * (oh - 1) + 1 : sy, j * dx : j * dx + sx * (ow - 1) + 1 : sx]
            found += np.einsum("nchw,oc->nohw", part, w[:, :, i, j])
    return found


def softmax(tree: Softmax, work: Workload) -> np.ndarray:
    p = tree.problem
    x = elements(np.asarray(work.operands[0].view))
    keep = np.asarray(work.operands[2].view) != 0 if p.mask else np.ones(x.shape, bool)
    weights = np.where(keep, exp2(x * number(p.scale * LOG2E)), np.uint32(0))
    return weights * inverse(weights.sum(-1, keepdims=True, dtype=np.uint32))


def attention(tree: FusedAttention, work: Workload) -> np.ndarray:
    p = tree.problem
    q, k, v = (elements(np.asarray(operand.view)) for operand in work.operands[:3])
    k, v = (np.repeat(x, p.heads // p.kv_heads, axis=1) for x in (k, v))
    query, key = np.arange(p.lq)[:, None] + p.lk - p.lq, np.arange(p.lk)
    keep = np.ones((p.lq, p.lk), bool)
    if p.causal:
        keep &= key <= query
    if p.window:
        keep &= key > query - p.window
    assert p.scale is not None
    weights = np.where(keep, exp2(np.matmul(q, k.swapaxes(-1, -2)) * number(p.scale * LOG2E)), np.uint32(0))
    return np.matmul(weights, v) * inverse(weights.sum(-1, keepdims=True, dtype=np.uint32))


REFERENCES = {TiledComputation: gemm, Conv2d: conv2d, Softmax: softmax, FusedAttention: attention}


def differing(tree: Any, narrow: bool = False) -> int:
    """Counts the elements of a tree's result that differ from the reference. narrow: only their lowest 16 bits are compared."""
    work, got = launched(tree)
    want = REFERENCES[type(tree)](tree, work)
    if narrow:
        return int(np.count_nonzero((elements(got) ^ want) & want.dtype.type(0xFFFF)))
    return int(np.count_nonzero(words(got) != words(floats(want, got.dtype))))

