"""Random numbers on the simulated GPU: PyTorch's numbers on GPUs, Philox's published words, states, shapes of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not among the extras: its wheel takes gigabytes")

from tests.support.pretended_gpu import pretended_gpu, simgpu, simulated_session, torch  # noqa: F401  (the fixture)

CUS, THREADS = 304, 256  # of mi300x, of a workgroup


def words(seed: int, thread: int, call: int) -> list[int]:
    """Returns Philox's four words, in Python's integers: constants of the paper's table 2."""
    counter, key = [call & 0xFFFFFFFF, call >> 32, thread, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0], second & 0xFFFFFFFF, (first >> 32) ^ counter[3] ^ key[1], first & 0xFFFFFFFF
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def assert_on_gpu(session: Any) -> None:
    """Asserts that the host computed nothing."""
    assert {name for name, use in session.operators.items() if use.host} == set()


def test_the_oracle_has_the_published_words() -> None:
    """Philox 4x32-10 of zeros, from Random123's known answers."""
    assert words(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize(("seed", "uniform", "normal"), [
    (0, [0.3990, 0.5167, 0.0249, 0.9401, 0.9459], [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209]),
    (42, [0.6130, 0.0101, 0.3984, 0.0403, 0.1563], [0.1940, 2.1614, -0.1721, 0.8491, -1.9244]),
])  # fmt: skip
def test_numbers_are_those_that_users_of_gpus_post(seed: int, uniform: Any, normal: Any, session: Any) -> None:
    """Compares the first numbers of `torch.rand` and `torch.randn` on "cuda", as PyTorch prints them."""
    for make, wanted in ((torch.rand, uniform), (torch.randn, normal)):
        torch.manual_seed(seed)
        torch.testing.assert_close(make(5, device="cuda").cpu(), torch.tensor(wanted), atol=6e-5, rtol=0)
    assert_on_gpu(session)


@pytest.mark.parametrize("wide", [False, True])
def test_elements_of_a_thread_are_as_far_apart_as_there_are_threads(wide: bool, session: Any) -> None:
    """Takes more elements than threads are resident, and the second call of a generator with a seed of 64 bits."""
    seed, threads = (5 << 40) + 9, CUS * 8 * THREADS
    source, count = torch.Generator("cuda").manual_seed(seed), threads * (3 if wide else 5) + 7
    torch.rand(3, device="cuda", generator=source)
    x = torch.rand(count, device="cuda", generator=source, dtype=torch.float64 if wide else torch.float32).cpu().numpy()
    for at in (0, 255, 4097, threads - 1, threads + 3, 2 * threads + 1, count - 1):
        each = 2 if wide else 4
        own = words(seed, at % threads, 1 + at // threads // each)
        place = at // threads % each
        bits = own[2 * place] ^ own[2 * place + 1] << 21 if wide else own[place]
        wanted = (bits + 1) * 2.0**-53 if wide else np.float32(bits) * np.float32(2.3283064e-10) + np.float32(2.3283064e-10)
        assert abs(x[at] - wanted) < (1e-15 if wide else 1e-7), at
    assert source.get_offset() == 12 and x.min() >= 0 and x.max() < 1
    assert_on_gpu(session)


def test_integers_and_bernoulli_are_made_of_words(session: Any) -> None:
    """Takes ranges below and above 2^28, a scalar's probability, and each element's own, whose thread has four neighbours."""
    def drawn(make: Callable[[Any], Any]) -> list[Any]:
        found: list[Any] = make(torch.Generator("cuda").manual_seed(3)).cpu().tolist()
        return found

    own = [words(3, thread, 0) for thread in range(5)]
    assert drawn(lambda g: torch.randint(-5, 90, (5,), device="cuda", generator=g)) == [one[0] % 95 - 5 for one in own]
    large = drawn(lambda g: torch.randint(0, 10**12, (5,), device="cuda", generator=g))
    assert large == [((one[0] << 32) + one[1]) % 10**12 for one in own]
    whole = drawn(lambda g: torch.empty(5, dtype=torch.int64, device="cuda").random_(generator=g))
    assert whole == [((one[0] << 32) + one[1]) % 2**63 for one in own]
    assert drawn(lambda g: torch.empty(5, device="cuda").bernoulli_(0.6, generator=g)) == [one[0] < 0.6 * 2**32 for one in own]
    chances = torch.linspace(0, 1, 5, device="cuda")
    wanted = [word <= at / 4 * 2**32 for at, word in enumerate([*own[0], own[1][0]])]
    assert drawn(lambda g: torch.bernoulli(chances, generator=g)) == wanted
    assert_on_gpu(session)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_distributions_have_their_moments(kind: Any, session: Any) -> None:
    """Bounds are five standard errors of 20,000 draws, and the type's rounding."""
    empty = torch.empty(20_000, dtype=kind, device="cuda")
    rows = [
        (empty.uniform_(-2, 4).clone(), 1.0, 3**0.5), (empty.normal_(3, 0.5).clone(), 3.0, 0.5),
        (empty.exponential_(2).clone(), 0.5, 0.5), (torch.randn_like(empty), 0.0, 1.0), (torch.rand_like(empty), 0.5, 12**-0.5),
        (empty.bernoulli_(0.3).clone(), 0.3, 0.21**0.5),
    ]  # fmt: skip
    for values, mean, deviation in rows:
        x = values.double().cpu()
        assert abs(x.mean() - mean) < 5 * deviation / 141 + float(torch.finfo(kind).eps) and values.dtype == kind
        assert abs(x.std() - deviation) < 0.05 * deviation
    assert rows[0][0].min() >= -2 and rows[0][0].max() < 4 and rows[2][0].min() >= 0
    assert_on_gpu(session)


def test_states_and_seeds(session: Any) -> None:
    torch.manual_seed(5)
    first = torch.rand(4, device="cuda")
    state = torch.cuda.get_rng_state()
    second = torch.rand(4, device="cuda")
    torch.rand(3)  # the host's generator is another
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda"), second) and len(state) == 16
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert torch.equal(torch.rand(4, device="cuda"), first)
    assert torch.cuda.default_generators[0].get_offset() == 8
    host = torch.Generator()
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(3, device="cuda", generator=host)


def test_a_result_on_the_host_is_the_host_s(session: Any) -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    found = torch.rand_like(torch.ones(3, device="cuda"), device="cpu")
    assert torch.equal(found, wanted) and not found.is_cuda and torch.cuda.default_generators[0].get_offset() == 0


def test_dropout_and_choices(session: Any) -> None:
    x = torch.ones(4000, device="cuda", requires_grad=True)
    kept = torch.nn.functional.dropout(x, 0.25)
    (slope,) = torch.autograd.grad(kept.sum(), x)
    assert torch.equal(slope, kept.detach()) and abs(float((kept > 0).float().mean()) - 0.75) < 0.04
    weights = torch.tensor([1.0, 0.0, 2.0, 5.0], device="cuda")
    chosen = torch.multinomial(weights.expand(3000, 4), 1).cpu()
    shares = chosen.view(-1).bincount(minlength=4) / 3000
    torch.testing.assert_close(shares, torch.tensor([0.125, 0, 0.25, 0.625]), atol=0.05, rtol=0)
    assert sorted(torch.multinomial(weights, 3).tolist()) == [0, 2, 3]
    assert_on_gpu(session)


def test_a_graph_draws_when_it_is_replayed(session: Any) -> None:
    x, graph = torch.zeros(5, device="cuda"), torch.cuda.CUDAGraph()
    torch.manual_seed(8)
    with torch.cuda.graph(graph):
        x.uniform_()
    assert not x.any()
    graph.replay()
    first = x.clone()
    torch.manual_seed(8)
    assert torch.equal(torch.rand(5, device="cuda"), first)
    graph.replay()
    assert not torch.equal(x, first)


def test_layouts_and_refusals(session: Any) -> None:
    """Elements are drawn in memory's order. Arguments that PyTorch refuses are its errors."""
    torch.manual_seed(1)
    flat = torch.rand(24, device="cuda")
    torch.manual_seed(1)
    assert torch.equal(torch.empty(4, 6, device="cuda").T.uniform_().T.flatten(), flat)
    for refused in (
        lambda: torch.empty(3, device="cuda").uniform_(2, 1), lambda: torch.empty(3, device="cuda").normal_(0, -1),
        lambda: torch.empty(3, device="cuda").bernoulli_(1.5), lambda: torch.randint(5, 5, (3,), device="cuda"),
        lambda: torch.multinomial(torch.tensor([1.0, -1.0], device="cuda"), 1),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            refused()
    assert torch.empty(3, dtype=torch.int8, device="cuda").random_().min() >= 0
