"""Process of the reference: `python -m simgpu.tools.judge.child.reference IN OUT MEMORY FILE`.

The file has KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()`. Its module-level whole numbers are sizes that the
judge may change.
"""

from __future__ import annotations

import ast
import copy
import sys
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simgpu.tools.judge.child.operators import WatchOperators
from simgpu.tools.judge.child.serving import descriptors, limit, serve
from simgpu.tools.judge.child.tensors import flatten, pack, to_array, to_tensor, unpack
from simgpu.tools.judge.messages import ArrayMessage
from simgpu.tools.judge.tolerance import narrow, narrower

Change = Callable[[torch.Tensor], torch.Tensor]
SAMPLES = 2  # references with moved inputs
EVERYTHING, INPUTS, PARAMETERS = PARTS = ("all", "inputs", "parameters")
NEEDED = ("Model", "get_inputs", "get_init_inputs")


def constants(source: str) -> dict[str, int]:
    """Returns module-level whole numbers by name."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
        and type(node.value.value) is int
    }  # fmt: skip


class _Resize(ast.NodeTransformer):
    """Replaces module-level whole numbers."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes

    def visit_Module(self, node: ast.Module) -> ast.Module:
        for one in node.body:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id in self._sizes:
                one.value = ast.copy_location(ast.Constant(self._sizes[one.targets[0].id]), one.value)
        return node


class Reference:
    """A reference's module, and the model that was made of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._source = Path(path).read_text("utf-8")
        self._module = types.ModuleType("reference")
        self._model: Any = None

    def load(self, message: ArrayMessage) -> ArrayMessage:
        """Runs the file with the sizes of the request. Answers with its sizes."""
        known = constants(self._source)
        tree = _Resize(message.document["sizes"]).visit(ast.parse(self._source, self._path))
        self._module = types.ModuleType("reference")
        self._module.__file__ = self._path
        sys.modules["reference"] = self._module
        exec(compile(tree, self._path, "exec"), vars(self._module))
        missing = [name for name in NEEDED if not hasattr(self._module, name)]
        if missing:
            raise AttributeError(f"{self._path} has no {missing[0]}: a reference has {', '.join(NEEDED)}")
        return ArrayMessage({"sizes": known | {n: v for n, v in message.document["sizes"].items() if n in known}})

    def make(self, message: ArrayMessage) -> ArrayMessage:
        """Makes the model with a seed. Answers with the arguments of its constructor."""
        torch.manual_seed(message.document["seed"])
        given = self._module.get_init_inputs()
        tensors: list[torch.Tensor] = []
        packed = pack(list(given), tensors)
        arrays = [to_array(one) for one in tensors]
        torch.manual_seed(message.document["seed"])
        self._model = self._module.Model(*given)
        return ArrayMessage({"packed": packed}, arrays)

    def inputs(self, message: ArrayMessage) -> ArrayMessage:
        """Draws inputs with a seed."""
        torch.manual_seed(message.document["seed"])
        tensors: list[torch.Tensor] = []
        packed = pack(list(self._module.get_inputs()), tensors)
        total, most = sum(one.numel() for one in tensors), message.document["most"]
        if total > most:
            raise ValueError(f"inputs of {total:,} elements, more than {most:,}: give smaller sizes by --size, or raise --elements")
        return ArrayMessage({"packed": packed}, [to_array(one) for one in tensors])

    def evaluate(self, message: ArrayMessage) -> ArrayMessage:
        """Computes results in the promised type, in float64, and with inputs and parameters moved by a rounding: three arrays
        for each result. Answers also with the operators' work."""
        tensors = [to_tensor(one) for one in message.arrays]
        packed, seed = message.document["packed"], message.document["seed"]
        watch = WatchOperators(message.document["target"])
        with torch.no_grad():
            with watch:
                promised = self._run(lambda x: x, tensors, packed, seed)
            exact = True
            try:
                wide = self._run(_widen, tensors, packed, seed)
            except RuntimeError:  # a type that the module fixes
                wide, exact = promised, False
            generator = torch.Generator().manual_seed(seed)
            spread = [np.zeros(one.shape) for one in wide]
            for _ in range(SAMPLES):
                moved = self._run(lambda x: _move(x, generator, exact), tensors, packed, seed)
                spread = [np.fmax(most, _difference(a, b)) for most, a, b in zip(spread, moved, wide, strict=True)]
            names, narrowed = [], []
            for kind in narrower(promised[0].dtype) if exact and promised else ():
                for part in PARTS if any(True for _ in self._model.parameters()) else PARTS[:1]:
                    names.append(f"{kind}:{part}")
                    narrowed.append(self._run(partial(_narrow, kind), tensors, packed, seed, part))
        arrays = [array for row in zip(wide, promised, spread, *narrowed, strict=True) for array in row]
        return ArrayMessage({"work": watch.work.document(), "narrowed": names}, arrays)

    def _run(
        self, change: Change, tensors: Sequence[torch.Tensor], packed: Any, seed: int, part: str = EVERYTHING
    ) -> list[np.ndarray]:
        """Calls a copy of the model in which `change` was applied to its parameters and the inputs; part: the
        tensors to change; the others only become float64."""
        inputs, parameters = (change if part in (EVERYTHING, each) else _widen for each in (INPUTS, PARAMETERS))
        model = copy.deepcopy(self._model)
        for holder in model.modules():
            for named in (holder._parameters, holder._buffers):
                for name, tensor in named.items():
                    if tensor is not None:
                        changed = parameters(tensor.detach())
                        named[name] = torch.nn.Parameter(changed, False) if named is holder._parameters else changed
        torch.manual_seed(seed)
        given = unpack(packed, [inputs(one.clone()) for one in tensors])
        return [to_array(one) for one in flatten(model(*given))]


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _narrow(kind: str, tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(narrow(tensor.double().numpy(), kind)) if tensor.is_floating_point() else tensor


def _move(tensor: torch.Tensor, generator: torch.Generator, wide: bool) -> torch.Tensor:
    """Moves floats by up to a rounding of their type."""
    if not tensor.is_floating_point():
        return tensor
    unit = torch.finfo(tensor.dtype).eps / 2 if wide else torch.finfo(tensor.dtype).eps
    moved = tensor.double() * (1 + unit * (2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 1))
    return moved if wide else moved.to(tensor.dtype)


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.abs(a.astype(np.float64) - b.astype(np.float64))


def main() -> None:
    """Serves the judge."""
    requests, results, memory, (path,) = descriptors()
    limit(memory)
    reference = Reference(path)
    serve(
        {"load": reference.load, "make": reference.make, "inputs": reference.inputs, "evaluate": reference.evaluate},
        requests, results,
    )  # fmt: skip


if __name__ == "__main__":
    main()
