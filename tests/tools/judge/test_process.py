"""Messages between the judge and its children, also from a hostile child, and the children's limits."""

from __future__ import annotations

import json
import os
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.tools.judge.messages import HEAD, ArrayMessage, ProtocolError, receive, send
from simgpu.tools.judge.process import Child, ChildEnded
from tests.support.exhaustive import examples


def through_a_pipe(write: object, seconds: float | None = 5) -> ArrayMessage:
    """Receives what `write` puts into a pipe from another thread."""
    out, into = os.pipe()

    def put() -> None:
        write(into)  # type: ignore[operator]
        os.close(into)

    thread = threading.Thread(target=put)
    thread.start()
    try:
        return receive(out, seconds)
    finally:
        os.close(out)
        thread.join()


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "u1", "?", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 4), (100_000,)])
def test_a_message_arrives(kind: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, getattr(ml_dtypes, kind, kind))
    message = through_a_pipe(lambda pipe: send(pipe, ArrayMessage({"a": [1, "ü"]}, [array, array])))
    assert message.document == {"a": [1, "ü"]} and len(message.arrays) == 2
    assert message.arrays[0].dtype == array.dtype and message.arrays[0].tobytes() == array.tobytes()
    assert message.arrays[0].shape == shape


def raw(text: bytes, arrays: int = 0) -> bytes:
    return HEAD.pack(len(text), arrays) + text


def told(**form: object) -> bytes:
    return json.dumps({"document": {}, "arrays": [{"kind": "f4", "shape": [1], **form}]}).encode()


@pytest.mark.parametrize(
    "sent",
    [
        b"", b"short", raw(b"{"), raw(b"[]"), raw(b'{"document": 3, "arrays": []}'), HEAD.pack(1 << 62, 0), HEAD.pack(2, 1 << 62),
        raw(told(kind="O"), 8), raw(told(kind="datetime64"), 8), raw(told(shape=[-1]), 4), raw(told(shape=[1 << 62]), 4),
        raw(told(shape="a"), 4), raw(told(), 8) + b"12345678", raw(told(), 4) + b"12", raw(b"[" * 100_000),
    ],
)  # fmt: skip
def test_other_bytes_are_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        through_a_pipe(lambda pipe: os.write(pipe, sent))


@settings(max_examples=examples(100))
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        through_a_pipe(lambda pipe: os.write(pipe, sent))


def test_a_silent_child_is_given_up() -> None:
    out, into = os.pipe()
    with pytest.raises(ProtocolError, match="out of time"):
        receive(out, 0.01)
    os.close(out)
    os.close(into)


def test_a_child_that_ends_says_how() -> None:
    with Child("nothing", [], 60, 8 << 30) as child, pytest.raises(ChildEnded, match=r"status 1: .*nothing"):
        child.ask("load")
