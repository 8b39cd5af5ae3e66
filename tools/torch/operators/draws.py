"""PyTorch's random numbers by a Triton kernel: uniform, normal, exponential, Bernoulli, integers, choices.

They are those of PyTorch's kernels on an AMD GPU with as many CUs, from the same seed and offset; functions of a library may
differ in their last bits. Dropout draws by `bernoulli_` here, where GPUs have a fused kernel with an order of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.cuda import devices
from simgpu.tools.torch.cuda.generators import Engine, generator
from simgpu.tools.torch.operators.along_axes import ALONG_AXES
from simgpu.tools.torch.operators.draw_sources import THREADS, draw
from simgpu.tools.torch.operators.elements import ELEMENTS
from simgpu.tools.torch.operators.kernels import FLOATS, INTEGERS, LARGEST, POINTEES, Call, OnHost, serve
from simgpu.tools.torch.places import GPU, on_gpu, place_of
from simgpu.triton.driver import active_driver

_REAL = (*FLOATS, torch.float64)
_RESIDENT = 2048 // THREADS  # workgroups of these threads on a CU
_WIDE = 1 << 28  # number of integers from which two words make one
_DIGITS = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}


def _engine(given: Any, out: Tensor) -> Engine:
    """Returns the state to draw from: of a generator that the program passed, or of the tensor's GPU. Raises RuntimeError for a
    generator of the host."""
    if given is not None:
        if (engine := Engine.of(given)) is None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")  # PyTorch's words
        return engine
    place = place_of(out)
    return generator(torch.device(place).index if on_gpu(place) and place != GPU else devices.current()).engine


def _draw(call: Call, name: str, out: Tensor, parameters: Tensor, given: Any, each: bool = False, wide: bool = False) -> Tensor:
    """Fills a new tensor without gaps; parameters: two, or if `each` one for each element. Advances the generator."""
    serve(out, *POINTEES)
    engine, count, words = _engine(given, out), out.numel(), 2 if wide else 4
    most = active_driver().session.gpu.descriptor.num_cus * _RESIDENT
    groups = -(-count // (THREADS * words)) if each else min(-(-count // THREADS), most)
    threads = groups * THREADS
    calls = 1 if each else -(-count // (threads * words))
    if calls * threads * words >= LARGEST:
        raise OnHost("of too many elements")
    seed = engine.initial_seed()
    state = torch.tensor([seed - (1 << 64) if seed >> 63 else seed, engine.offset // 4], device="cpu")
    raw = out.as_strided((count,), (1,))
    raw = raw.view(torch.uint8) if out.dtype == torch.bool else raw
    call.run(draw, (groups, calls), raw, parameters.contiguous(), state, count, threads, constants=(int(each), name, wide, THREADS))
    engine.offset += 12 if each else 4 * calls  # as bernoulli_kernel and calc_execution_policy
    return out


def _of_floats(
    call: Call, name: str, out: Tensor, given: Any, first: Any, second: Any = 0.0, types: Sequence[torch.dtype] = _REAL
) -> Tensor:
    """Fills a tensor of these types by two numbers, or by each element's own, as `first`."""
    serve(out, *types)
    wide = out.dtype == torch.float64
    kind = torch.float64 if wide else torch.float32
    if isinstance(first, Tensor):
        serve(first, *_REAL)
        return _draw(call, name, out, first.to(kind).expand(out.shape), given, each=True)
    return _draw(call, name, out, torch.tensor([first, second], dtype=kind, device="cpu"), given, wide=wide)


def _new(like: Any, options: dict[str, Any], default: torch.dtype | None = None) -> Tensor:
    """Returns a new tensor of a size, or of another tensor's; options: as of `torch.rand`."""
    if options.get("layout") not in (None, torch.strided):
        raise OnHost("of another layout")
    if isinstance(like, Tensor):
        form = options.get("memory_format") or torch.preserve_format
        return torch.empty_like(like, dtype=options.get("dtype") or like.dtype, memory_format=form)
    kind = options.get("dtype") or default or torch.get_default_dtype()
    return torch.empty(like, dtype=kind, device=options.get("device") or "cpu")


def _by_size(name: str) -> Callable[..., Tensor]:
    """Returns `rand` or `randn`, of a size or a tensor."""

    def by_size(call: Call, like: Any, *, generator: Any = None, **options: Any) -> Tensor:
        return _of_floats(call, name, _new(like, options), generator, 0.0, 1.0)

    return by_size


def _uniform(call: Call, values: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    if not low <= high:
        raise OnHost("of a range that is none")
    return _of_floats(call, "uniform", _new(values, {}), generator, low, high)


def _normal(call: Call, values: Tensor, mean: float = 0.0, deviation: float = 1.0, *, generator: Any = None) -> Tensor:
    if not deviation >= 0:
        raise OnHost("of a deviation that is none")
    return _of_floats(call, "normal", _new(values, {}), generator, mean, deviation)


def _exponential(call: Call, values: Tensor, rate: float = 1.0, *, generator: Any = None) -> Tensor:
    if not rate > 0:
        raise OnHost("of a rate that is none")
    return _of_floats(call, "exponential", _new(values, {}), generator, rate)


def _chances(call: Call, values: Tensor, chance: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Returns 1 with a probability, or with each element's own, else 0."""
    serve(values, *POINTEES)
    if not isinstance(chance, Tensor):
        if not 0 <= chance <= 1:
            raise OnHost("of a probability that is none")
        return _of_floats(call, "chances", _new(values, {}), generator, chance, types=tuple(POINTEES))
    serve(chance, *_REAL)
    if not bool(((chance >= 0) & (chance <= 1)).all()) or torch.broadcast_shapes(chance.shape, values.shape) != values.shape:
        raise OnHost("of probabilities that are none, or do not fit")
    out = _new(values, {"memory_format": torch.contiguous_format})
    return _of_floats(call, "chances", out, generator, chance, types=tuple(POINTEES))


def _chances_of(call: Call, values: Tensor, *, generator: Any = None) -> Tensor:
    return _chances(call, values, values, generator=generator)


def _integers(call: Call, out: Tensor, low: int, high: int, given: Any, wide: bool | None = None) -> Tensor:
    """Fills a tensor with integers from low to high, which is left out."""
    serve(out, *POINTEES)
    least, most = (0, 1) if out.dtype == torch.bool else (-(2**63), 2**63 - 1)
    if out.dtype in INTEGERS[:-1]:
        least, most = torch.iinfo(out.dtype).min, torch.iinfo(out.dtype).max
    if not least <= low < high <= most + 1:
        raise OnHost("of a range that its type cannot hold")
    count = high - low
    parameters = torch.tensor([low, count - (1 << 64) if count >> 63 else count], device="cpu")
    return _draw(call, "integers", out, parameters, given, wide=count >= _WIDE if wide is None else wide)


def _randint(call: Call, high: int, like: Any, *, generator: Any = None, **options: Any) -> Tensor:
    return _integers(call, _new(like, options, torch.int64), 0, high, generator)


def _randint_from(call: Call, low: int, high: int, like: Any, *, generator: Any = None, **options: Any) -> Tensor:
    return _integers(call, _new(like, options, torch.int64), low, high, generator)


def _random(call: Call, values: Tensor, *, generator: Any = None) -> Tensor:
    """Draws integers up to the type's largest, or of floats up to 2 to the power of their digits."""
    serve(values, *POINTEES)
    kind = values.dtype
    most = 1 if kind == torch.bool else 1 << _DIGITS[kind] if kind in _DIGITS else torch.iinfo(kind).max
    return _integers(call, _new(values, {}), 0, most + 1, generator, wide=kind in (torch.int64, torch.float64))


def _random_from(call: Call, values: Tensor, low: int, high: int | None, *, generator: Any = None) -> Tensor:
    if high is None:
        raise OnHost("without an end")
    return _integers(call, _new(values, {}), low, high, generator)


def _choices(call: Call, weights: Tensor, count: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Returns the places of the largest weights divided by exponential numbers (ATen/native/Distributions.cpp, multinomial)."""
    serve(weights, *FLOATS)
    if (replacement and count > 1) or not 0 < count <= weights.shape[-1]:
        raise OnHost("with replacement, or of too many")
    if not bool((weights.isfinite() & (weights >= 0)).all()) or int((weights > 0).sum(-1).min()) < count:
        raise OnHost("of weights that are none")
    scores = ELEMENTS["aten::div.Tensor"](call, weights, _exponential(call, weights, generator=generator))
    found: Tensor = ALONG_AXES["aten::topk"](call, scores, count)[1]
    return found


# By the operator's name in PyTorch's dispatcher; those without a size are in place there, with "_".
DRAWS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}{way}": _by_size(kind) for name, kind in (("rand", "uniform"), ("randn", "normal"))
       for way in ("", ".generator", "_like", "_like.generator")},
    **{f"aten::randint{way}": _randint for way in ("", ".generator")},
    **{f"aten::randint.low{way}": _randint_from for way in ("", "_generator")},
    "aten::randint_like": lambda call, like, high, **options: _randint(call, high, like, **options),
    "aten::randint_like.low_dtype": lambda call, like, low, high, **options: _randint_from(call, low, high, like, **options),
    "aten::uniform": _uniform, "aten::normal": _normal, "aten::exponential": _exponential,
    "aten::bernoulli.float": _chances, "aten::bernoulli.Tensor": _chances, "aten::bernoulli.p": _chances,
    "aten::bernoulli": _chances_of, "aten::multinomial": _choices, "aten::random": _random, "aten::random.from": _random_from,
    "aten::random.to": lambda call, values, high, **options: _random_from(call, values, 0, high, **options),
}  # fmt: skip
