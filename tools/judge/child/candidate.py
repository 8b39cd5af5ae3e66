"""Process of the candidate: `python -m simgpu.tools.judge.child.candidate IN OUT MEMORY FILE TARGET`.

The candidate's `ModelNew` runs on a simulated GPU in checked mode. Its results are copied as soon as a call returns.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

import simgpu.triton
from simgpu.tools.judge.child.integrity import Integrity
from simgpu.tools.judge.child.launches import CallLaunches
from simgpu.tools.judge.child.operators import WatchOperators, address_of
from simgpu.tools.judge.child.serving import descriptors, limit, serve
from simgpu.tools.judge.child.tensors import flatten, to_array, to_tensor, unpack
from simgpu.tools.judge.messages import ArrayMessage
from simgpu.tools.torch.pretend import pretended_gpu
from simgpu.triton.session import Session

MODEL = "ModelNew"
FEW = 64  # elements that a call may move to the host: sizes and flags
_TO_HOST = (torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__)
_LIBRARIES = ("concurrent.", "simgpu.", "multiprocessing.", "torch.")  # modules whose threads compute nothing of a candidate
SHAPES = (torch.Tensor, torch.nn.Parameter)


class WatchHost(TorchFunctionMode):
    """Notes moves of tensors to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        leaves = func in _TO_HOST or (func is torch.Tensor.to and _names_host(args, given))
        if leaves and tensor is not None and tensor.numel() > FEW:
            self.moves.append(f"Tensor.{func.__name__} of {tensor.numel():,} elements")
        return func(*args, **given)


def _names_host(args: Sequence[Any], given: dict[str, Any]) -> bool:
    return any(str(one) == "cpu" for one in (*args[1:], given.get("device")) if isinstance(one, (str, torch.device)))


class Candidate:
    """A candidate's module, its model, and its latest inputs and results."""

    def __init__(self, path: str, target: str, session: Session) -> None:
        self._path, self._target, self._session = path, target, session
        self._module: Any = None
        self._model: Any = None
        self._inputs: list[torch.Tensor] = []
        self._earlier: tuple[list[torch.Tensor], list[np.ndarray]] = ([], [])
        self._integrity = Integrity()

    def load(self, message: ArrayMessage) -> ArrayMessage:
        """Runs the file."""
        spec = importlib.util.spec_from_file_location("candidate", self._path)
        assert spec is not None and spec.loader is not None
        self._module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = self._module
        spec.loader.exec_module(self._module)
        if not hasattr(self._module, MODEL):
            raise AttributeError(f"the candidate has no {MODEL}")
        return ArrayMessage({"patched": self._patches()})

    def make(self, message: ArrayMessage) -> ArrayMessage:
        """Makes the model with a seed and the reference's arguments, and moves it to the GPU."""
        given = unpack(message.document["packed"], [to_tensor(one) for one in message.arrays])
        torch.manual_seed(message.document["seed"])
        self._model = getattr(self._module, MODEL)(*given)
        self._model = self._model.cuda() if isinstance(self._model, torch.nn.Module) else self._model
        self._inputs, self._earlier = [], ([], [])
        return ArrayMessage({"patched": self._patches()})

    def call(self, message: ArrayMessage) -> ArrayMessage:
        """Calls the model. how: "new" inputs, the "same" tensors with other contents, or "strided" ones. Answers with the
        results and all that was seen."""
        document = message.document
        self._place(message.arrays, document["how"])
        before = [to_array(one) for one in self._inputs]
        alive = set(threading.enumerate())
        watch, host, launches = WatchOperators(self._target), WatchHost(), CallLaunches()
        known, counted = len(self._session.findings), _instructions(self._session)
        torch.manual_seed(document["seed"])
        given = unpack(document["packed"], self._inputs)
        with torch.no_grad(), launches.count_launches(watch.traced), watch.counting_products(), host, watch:
            results = flatten(self._model(*given))
        plain = [type(one) in SHAPES for one in results]
        arrays = [to_array(one) if fine else np.zeros(0) for one, fine in zip(results, plain, strict=True)]
        reused = self._results_changed(results, arrays)
        after = [to_array(one) for one in self._inputs]
        untraced = [
            at for at, (one, fine) in enumerate(zip(results, plain, strict=True))
            if fine and one.numel() and address_of(one) not in watch.traced
        ]  # fmt: skip
        return ArrayMessage(
            {
                "plain": plain, "types": [type(one).__name__ for one in results], "kernels": dict(launches.kernels),
                "xf32": launches.xf32, "instructions": _instructions(self._session) - counted,
                "library": watch.work.document(), "host": host.moves,
                "untraced": untraced, "threads": list(_new_threads(alive)), "reused": reused,
                "changed": [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a.tobytes() != b.tobytes()],
                "findings": [finding.document() for finding in self._session.findings[known:]], "patched": self._patches(),
            },
            arrays,
        )  # fmt: skip

    def time(self, message: ArrayMessage) -> ArrayMessage:
        """Calls the model once more, unchecked, and models the time of its launches and of PyTorch's operators."""
        with simgpu.triton.device(self._target) as session:
            session.clock.modelled_ms()
            outer, self._session = self._session, session
            try:
                answer = self.call(message)
            finally:
                self._session = outer
            missing = sorted(name for name, use in session.used.items() if use.milliseconds is None)
            answer.document |= {"milliseconds": session.clock.modelled_ms(), "unmodelled": missing}
        answer.document["patched"] = self._patches()  # without what the inner device replaced
        return answer

    def _place(self, arrays: Sequence[np.ndarray], how: str) -> None:
        """Makes the inputs of a call."""
        tensors = [to_tensor(one) for one in arrays]
        if how == "same" and [one.shape for one in tensors] == [one.shape for one in self._inputs]:
            for held, one in zip(self._inputs, tensors, strict=True):
                held.copy_(one)
            return
        placed = [one.cuda() for one in tensors]
        self._inputs = [_stride(one) for one in placed] if how == "strided" else placed

    def _results_changed(self, results: Sequence[Any], arrays: list[np.ndarray]) -> bool:
        """True if an earlier call's results changed; keeps these results for the next call."""
        held, copies = self._earlier
        changed = any(to_array(one).tobytes() != array.tobytes() for one, array in zip(held, copies, strict=True))
        fine = all(type(one) in SHAPES for one in results)
        self._earlier = (list(results), arrays) if fine else ([], [])
        return changed

    def _patches(self) -> list[str]:
        return self._integrity.changes()


def _stride(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view with the same elements whose rows are apart, or whose elements are, if it has one axis."""
    if tensor.dim() == 0:
        return tensor
    wider = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), _filling(tensor.dtype), dtype=tensor.dtype, device="cuda")
    view = wider[..., 1::2]
    view.copy_(tensor)
    return view


def _filling(kind: torch.dtype) -> Any:
    return float("nan") if kind.is_floating_point else 0


def _new_threads(before: set[threading.Thread]) -> Iterator[str]:
    """Yields the names of threads that a call started and that still run."""
    for thread in set(threading.enumerate()) - before:
        if isinstance(thread, threading._DummyThread):  # a native thread of simgpu's
            continue
        target = getattr(thread, "_target", None)
        if not str(getattr(target, "__module__", "")).startswith(_LIBRARIES):
            yield thread.name


def _instructions(session: Session) -> int:
    return sum(use.instructions for use in session.used.values())




def main() -> None:
    """Serves the judge."""
    requests, results, memory, (path, target) = descriptors()
    limit(memory)
    with simgpu.triton.device(target, check="collect") as session, pretended_gpu():
        candidate = Candidate(path, target, session)
        answers = {"load": candidate.load, "make": candidate.make, "call": candidate.call, "time": candidate.time}
        serve(answers, requests, results)


if __name__ == "__main__":
    main()
