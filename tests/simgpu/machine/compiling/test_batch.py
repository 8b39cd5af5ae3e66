"""Many functions at once: helping processes make the same code, whatever happens to them, and leave nothing."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simgpu.hardware.errors import SimError
from simgpu.machine import jit
from simgpu.machine.compiling import batch, helpers, object_file
from simgpu.machine.compiling.batch import Batch
from simgpu.machine.compiling.object_file import ModuleSource

COUNT = 24
STORES = 10_000  # in the larger functions: sources and object files exceed what a pipe holds, 64 KiB


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes an empty cache, and helpers from the first function on."""
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(helpers, "WORTH", 1)
    monkeypatch.setattr(batch, "WORTH", 1)
    monkeypatch.setattr(batch, "hardware_threads", lambda: 3)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[helpers.Helper]:
    """Returns the helpers that a test begins."""
    made: list[helpers.Helper] = []

    class Noted(helpers.Helper):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(batch, "Helper", Noted)
    return made


def returns(number: int, stores: int = 0) -> Callable[[str], ModuleSource]:
    """Makes the source of a function that returns a number."""
    memory = "".join(f"store volatile i64 {at}, ptr %p\n" for at in range(stores))
    return lambda name: ModuleSource(f'define i64 @"{name}"() {{\n%p = alloca i64\n{memory}ret i64 {number}\n}}\n')


def wanted(made: Batch, count: int = COUNT) -> list[int]:
    """Makes functions of the numbers below `count`, two of them large."""
    return [made.address_of_source(f"test {n}", returns(n, STORES if n % 12 == 5 else 0)) for n in range(count)]


def results(made: Batch, promised: list[int]) -> list[int]:
    addresses = [made.settle(one) for one in promised]
    assert None not in addresses
    return [ctypes.CFUNCTYPE(ctypes.c_int64)(address)() for address in addresses]


def ended(helper: helpers.Helper) -> bool:
    return helper._process.poll() is not None and not helper._thread.is_alive()


def test_helpers_and_this_process_make_all_once(tmp_path: Path, begun: list[helpers.Helper]) -> None:
    compiler = jit.Compiler()
    made = Batch(compiler)
    promised = wanted(made)
    wanted(made)  # a second request compiles nothing
    made.finish()
    assert results(made, promised) == list(range(COUNT))
    assert (compiler.compiled, compiler.loaded) == (COUNT, 0)
    assert len(begun) == 2 and all(map(ended, begun))
    assert len(list((tmp_path / "cache" / "handlers").glob("[!.]*"))) == COUNT, "all is kept, and no lock is left"
    later = Batch(jit.Compiler())
    assert results(later, wanted(later)) == list(range(COUNT)) and len(begun) == 2


def test_what_was_compiled_before_is_worth_no_helper(monkeypatch: pytest.MonkeyPatch, begun: list[helpers.Helper]) -> None:
    monkeypatch.setattr(batch, "WORTH", 1 << 16)
    made = Batch(jit.Compiler())
    wanted(made)
    made.finish()
    count = len(begun)
    assert count > 0
    late = made.address_of_source("late", returns(99))
    made.finish()
    assert results(made, [late]) == [99] and len(begun) == count


@pytest.mark.parametrize("threads", [1, 3])
def test_small_functions_share_an_object_file_and_large_ones_do_not(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "hardware_threads", lambda: threads)
    compiler = jit.Compiler()
    made = Batch(compiler)
    wanted(made)
    made.finish()
    kept = [compiler.kept.load(compiler.name(f"test {n}")) for n in range(COUNT)]
    assert 3 <= len(set(kept)) < COUNT and kept.count(kept[5]) == kept.count(kept[17]) == 1
    later = Batch(jit.Compiler())
    assert results(later, [later.address_of_source(f"test {n}", returns(-1)) for n in (3, 8, 5)]) == [3, 8, 5]


def test_a_function_that_calls_others_has_an_object_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that wants one of the file's functions may not know its callees, and LLVM would end that process."""
    compiler = jit.Compiler()
    with monkeypatch.context() as patch:
        patch.setitem(jit.CALLED, "test called", returns(11))
        called = compiler.name("test called")
        made = Batch(compiler)
        wanted(made)
        calls = f'%x = call i64 @"{called}"()\nret i64 %x\n'
        made.address_of_source(
            "test caller", lambda name: ModuleSource(f'declare i64 @"{called}"()\ndefine i64 @"{name}"() {{\n{calls}}}\n')
        )
        made.finish()
    kept = [compiler.kept.load(compiler.name(f"test {n}")) for n in range(COUNT)]
    assert not any(called.encode() in code for code in kept if code is not None)


def test_helpers_make_the_same_object_files(begun: list[helpers.Helper]) -> None:
    compiler = jit.Compiler()
    source = returns(7, STORES)("same")
    answers: list[bytes | str] = []
    queue = helpers.CompileQueue()
    queue.put(helpers.CompileJob("same", "same", source))
    got = threading.Event()

    def take(job: helpers.CompileJob, code: bytes | str) -> None:
        answers.append(code)
        got.set()

    helper = helpers.Helper(compiler.host, queue, lambda job: True, take, queue.put)
    assert got.wait(60)
    helper.end()
    assert answers == [compiler.object_code(source)] and min(len(source.text), len(answers[0])) > 1 << 16 and ended(helper)


ONE = f"""import sys
sys.path.insert(0, {str(Path(object_file.__file__).parent)!r})
import object_file
read, count = object_file.read, iter(range(2))
object_file.read = lambda stream: read(stream) if next(count, None) is not None else None
object_file.main()
"""
ENDS = {
    "at once": "raise SystemExit",
    "after a few": ONE,
    "in another language": "print('no')",
    "never": "import time; time.sleep(99)",
}


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_helpers_that_end_cost_only_time(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[helpers.Helper]
) -> None:
    (tmp_path / "helper.py").write_text(program)
    monkeypatch.setattr(object_file, "__file__", str(tmp_path / "helper.py"))
    monkeypatch.setattr(batch, "PATIENCE", 1.0)
    made = Batch(jit.Compiler())
    promised = wanted(made)
    made.finish()
    assert results(made, promised) == list(range(COUNT)) and begun and all(map(ended, begun))


def test_no_process_to_be_had_costs_only_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.sys, "executable", "/no/such/python")
    made = Batch(jit.Compiler())
    promised = wanted(made)
    made.finish()
    assert results(made, promised) == list(range(COUNT))


def test_what_is_left_is_made_the_next_time(monkeypatch: pytest.MonkeyPatch, begun: list[helpers.Helper]) -> None:
    compiler = jit.Compiler()
    made = Batch(compiler)
    promised = wanted(made)
    made.finish(lambda: False)
    assert None in [made.settle(one) for one in promised] and all(map(ended, begun))
    made.finish()
    assert results(made, promised) == list(range(COUNT)) and compiler.compiled + compiler.loaded == COUNT


@pytest.mark.parametrize("threads", [1, 3])
def test_what_llvm_rejects_is_told_and_harms_no_other(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "hardware_threads", lambda: threads)
    made = Batch(jit.Compiler())
    bad = made.address_of_source("bad", lambda name: ModuleSource(f'define i64 @"{name}"() {{ ret i32 %nothing }}'))
    promised = wanted(made)
    made.finish()
    assert results(made, promised) == list(range(COUNT))
    with pytest.raises(SimError, match="internal: LLVM rejects handler h"):
        made.settle(bad)


def test_keys_of_one_source_share_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wants six keys of two sources in turns, then a key of the first source once it is compiled."""
    monkeypatch.setattr(batch, "hardware_threads", lambda: 1)
    compiler = jit.Compiler()
    made = Batch(compiler)
    promised = [made.address_of_source(f"test {n}", returns(n % 2)) for n in (*range(6), 4)]
    made.finish()
    assert results(made, promised) == [0, 1, 0, 1, 0, 1, 0] and compiler.compiled == 2
    assert len({made.settle(one) for one in promised}) == 2
    assert made.address_of_source("test 6", returns(0)) == made.settle(promised[0]) == compiler.find("test 2")
    assert jit.Compiler().find("test 5") is not None, "each key's name is kept"


def test_what_llvm_rejects_is_reported_for_each_key_of_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "hardware_threads", lambda: 1)
    made = Batch(jit.Compiler())
    promised = [made.address_of_source(key, lambda name: ModuleSource("define nothing")) for key in ("one", "two")]
    made.finish()
    for one in promised:
        with pytest.raises(SimError, match="LLVM rejects"):
            made.settle(one)


def test_what_another_process_compiles_is_waited_for(begun: list[helpers.Helper]) -> None:
    compiler, other = jit.Compiler(), jit.Compiler()
    made = Batch(compiler)
    code = other.object_code(other.named_source("test 3", returns(3)))
    name = other.name("test 3")
    assert isinstance(code, bytes)
    holds, finished = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        with other.kept.made_once(name):
            holds.set()
            time.sleep(0.3)
            assert not finished.is_set()
            other.keep(name, code)

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(compile_slowly)
        holds.wait()
        promised = wanted(made)
        made.finish()
        finished.set()
        slow.result()
    assert results(made, promised) == list(range(COUNT)) and (compiler.compiled, compiler.loaded) == (COUNT - 1, 1)


def test_two_that_want_the_same_make_each_function_once() -> None:
    compilers = [jit.Compiler() for _ in range(2)]  # as two processes have them

    def run(compiler: jit.Compiler) -> list[int]:
        made = Batch(compiler)
        promised = wanted(made)
        made.finish()
        return results(made, promised)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, compilers)) == [list(range(COUNT))] * 2
    assert sum(compiler.compiled for compiler in compilers) == COUNT


def test_what_a_function_calls_is_compiled_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = jit.Compiler()
    monkeypatch.setitem(jit.CALLED, "test called", returns(11))

    def caller(name: str) -> ModuleSource:
        called = compiler.name("test called")
        return ModuleSource(f'declare i64 @"{called}"()\ndefine i64 @"{name}"() {{\n%x = call i64 @"{called}"()\nret i64 %x\n}}\n')

    made = Batch(compiler)
    promised = [made.address_of_source("test caller", caller)]
    made.finish()
    assert results(made, promised) == [11] and compiler.compiled == 2


def test_a_kept_function_may_call_what_is_being_compiled() -> None:
    """Another process kept a handler, but not its callee: neither this process nor two wait for each other."""
    compiler, other = jit.Compiler(), jit.Compiler()

    def caller(name: str) -> ModuleSource:
        called = compiler.name("test called")
        return ModuleSource(f'declare i64 @"{called}"()\ndefine i64 @"{name}"() {{\n%x = call i64 @"{called}"()\nret i64 %x\n}}\n')

    def run() -> list[int]:
        made = Batch(compiler)
        promised = [made.address_of_source("test called", returns(11, STORES))]
        while not made._claims:  # until a helper has it
            time.sleep(0.01)
        promised.append(made.address_of_source("test caller", caller))
        made.finish()
        return results(made, promised)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setitem(jit.CALLED, "test called", returns(11, STORES))
        code = other.object_code(other.named_source("test caller", caller))
        assert isinstance(code, bytes)
        other.keep(other.name("test caller"), code)
        assert pool.submit(run).result(60) == [11, 11]


@pytest.mark.slow
def test_a_process_that_holds_a_function_for_ever_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, other = jit.Compiler(), jit.Compiler()
    monkeypatch.setattr(batch, "PATIENCE", 0.5)
    made = Batch(compiler)
    other.named_source("test 3", returns(3))
    with other.kept.made_once(other.name("test 3")):
        promised = wanted(made)
        made.finish()
    assert results(made, promised) == list(range(COUNT)) and compiler.compiled == COUNT
