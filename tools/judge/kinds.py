"""Kinds of reasons: some reject a candidate, others are notes."""

from __future__ import annotations

from dataclasses import dataclass

REJECT, NOTE = "reject", "note"


@dataclass(frozen=True)
class Kind:
    """A row of KINDS."""

    severity: str  # REJECT or NOTE; --strict makes every note a rejection
    summary: str  # for documentation


KINDS = {
    "wrong": Kind(REJECT, "an element differs from float64 by more than the promised type allows"),
    "precision": Kind(REJECT, "the errors are those of a narrower type than promised"),
    "cached": Kind(REJECT, "the result is that of an earlier call"),
    "unwritten": Kind(REJECT, "elements of the result were never written"),
    "form": Kind(REJECT, "number, shape or type of the results differ, or a result is no plain tensor"),
    "fails": Kind(REJECT, "the candidate does not compile, raises, faults or hangs"),
    "ended": Kind(REJECT, "the candidate's process ended, ran out of time or memory, or broke the protocol"),
    "finding": Kind(REJECT, "checked mode found a race, a missing wait, an access out of bounds or another error"),
    "no-kernel": Kind(REJECT, "a call launched no kernel"),
    "host-result": Kind(REJECT, "no kernel wrote the result"),
    "host-work": Kind(REJECT, "a call moves elements to the host"),
    "library": Kind(REJECT, "PyTorch does all of the reference's work"),
    "patched": Kind(REJECT, "the candidate replaced functions of PyTorch, Triton, Python or simgpu"),
    "deferred": Kind(REJECT, "a call leaves a thread running"),
    "inputs-changed": Kind(REJECT, "a call changed its inputs"),
    "outside": Kind(REJECT, "padding between rows was written"),
    "xf32": Kind(NOTE, "f32 products are the matrix units' xf32, as Triton's `tl.dot` has them by default"),
    "special": Kind(NOTE, "NaN or infinities of the inputs end elsewhere than in the reference"),
    "strided": Kind(NOTE, "inputs that are not contiguous give another result"),
    "reused": Kind(NOTE, "a later call changes an earlier call's result"),
    "library-part": Kind(NOTE, "PyTorch does a part of the work"),
    "too-fast": Kind(NOTE, "the modelled time is shorter than moving the inputs and results once"),
    "unmodelled": Kind(NOTE, "no time could be modelled"),
}
