"""Counts PyTorch's private names that tools/torch uses: `python -m tests.support.private_names` lists them with their files.

`KNOWN` is the table of the names in use, by their purpose; a test compares it with the files.

A name is private if a part of it begins with an underscore: an attribute of `torch`, or of what is imported from it, or a string
that `pretend` patches. Python's own names (`__get__`) are not counted.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

from tests.support.places import ROOT

FOLDER = ROOT / "tools" / "torch"
PATCHED = re.compile(r"(?:(?:_C|cuda|accelerator|autograd|nn|Tensor|version|random)\.)[\w.]+")  # keys of ANSWERS, below `torch`

# Below `torch`, by purpose. Reasons: docs/notes/2026-11-26-pytorch-doors.md.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "programs, PyTorch's tests and compiled code call them: replaced, and made if PyTorch lacks them": (
        "Tensor._make_wrapper_subclass", "_C.Event", "_C.Stream", "_C._accelerator_exchangeDevice",
        "_C._accelerator_maybeExchangeDevice", "_C._cuda_getCurrentRawStream", "_C._cuda_getCurrentStream",
        "_C._cuda_getDefaultStream", "_C._cuda_getDevice", "_C._cuda_setDevice", "_C._cuda_setStream",
        "_C._dynamo.guards._empty_strided_cuda",
        "_C._get_math_sdp_enabled", "_C._set_sdp_use_math", "cuda._CudaDeviceProperties", "cuda._exchange_device",
        "cuda._maybe_exchange_device", "cuda._sleep",
        "cuda.memory._record_memory_history", "cuda.memory._snapshot",
    ),
    "tracers' tensors: their classes, and the devices that they and PyTorch's C++ report": (
        "_subclasses.fake_tensor.FakeTensor", "_subclasses.fake_tensor.FakeTensor.__torch_dispatch__",
        "_subclasses.fake_tensor.FakeTensor._find_common_device", "_subclasses.fake_tensor.FakeTensorConverter",
        "_subclasses.fake_tensor.FakeTensorConverter.from_real_tensor", "_subclasses.fake_tensor.FakeTensorMode",
        "_subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
        "_subclasses.fake_tensor.FakeTensorMode.__torch_dispatch__", "_subclasses.functional_tensor.FunctionalTensor",
    ),
    "Dynamo and Inductor: a call of them for a graph, tables of devices, caches, threads, the timer": (
        "_dynamo.device_interface.get_interface_for_device", "_dynamo.device_interface.register_interface_for_device",
        "_dynamo.eval_frame.skip_code", "_dynamo.utils", "_dynamo.utils.get_current_stream",
        "_inductor.async_compile.AsyncCompile", "_inductor.async_compile.AsyncCompile.process_pool", "_inductor.compile_fx",
        "_inductor.compile_fx.compile_fx", "_inductor.config", "_inductor.runtime.benchmarking.benchmarker",
        "_inductor.runtime.hints.DeviceProperties", "_inductor.runtime.hints.DeviceProperties.create", "_inductor.utils",
    ),
    "modes: their class, the stacks, and a switch": (
        "_C._EnableTorchFunction", "overrides._get_current_function_mode_stack",
        "utils._python_dispatch.TorchDispatchMode", "utils._python_dispatch._get_current_dispatch_mode_stack",
    ),
    "operators that PyTorch writes as simpler ones": ("_decomp.get_decompositions",),
    "all else: the engine, `repr`, arguments of `Module.to`, keys of a kernel, checkpoints": (
        "autograd.Variable._execution_engine", "_tensor_str._str", "_C._nn._parse_to", "_C._dispatch_keys",
        "utils.checkpoint._allowed_determinism_checks_to_fns",
    ),
}


def is_private(name: str) -> bool:
    """True if a part of a dotted name is private."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _imported(tree: ast.Module) -> dict[str, str]:
    """Returns PyTorch's full names of what a module imports from it, by the names that it uses."""
    found = {"torch": "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch" and not node.level:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname: one.name for one in node.names if one.asname and one.name.split(".")[0] == "torch"}
    return found


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """Returns PyTorch's full name of an expression, or ""."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, known)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def names_in(source: str) -> Iterator[str]:
    """Yields PyTorch's private names in a module, each as often as it is used."""
    tree = ast.parse(source)
    known = _imported(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [*known.values(), *(_dotted(node, known) for node in ast.walk(tree) if id(node) not in inner and _is_attribute(node))]
    yield from filter(is_private, (*names, *_patched(tree, known)))


def _is_attribute(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute)


def _patched(tree: ast.Module, known: dict[str, str]) -> Iterator[str]:
    """Yields the names that are replaced: keys of `ANSWERS`, below `torch`, and attributes in (owner, name, value)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and PATCHED.fullmatch(node.value):
            yield f"torch.{node.value}"
        elif isinstance(node, ast.DictComp) and isinstance(node.key, ast.JoinedStr):
            beginning = node.key.values[0]
            for one in ast.walk(node.generators[0].iter) if isinstance(beginning, ast.Constant) else ():
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield f"torch.{beginning.value}{one.value}"
        elif isinstance(node, ast.Tuple) and len(node.elts) == 3 and isinstance(name := node.elts[1], ast.Constant):
            if (owner := _dotted(node.elts[0], known)) and isinstance(name.value, str):
                yield f"{owner}.{name.value}"


def by_name() -> dict[str, set[str]]:
    """Returns the private names in tools/torch, each with the files that use it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(FOLDER.rglob("*.py")):
        for name in names_in(path.read_text()):
            found[name].add(str(Path(path).relative_to(FOLDER)))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    for name, files in by_name().items():
        print(f"{name}  ({', '.join(sorted(files))})")
    for purpose, names in KNOWN.items():
        print(f"{len(names)}: {purpose}")
    print(f"{len(by_name())} private names")
