"""pytest --simgpu mi300x: a test suite on simulated GPUs, without a GPU.

Tests with `simgpu_load` (`simgpu.tools.pytest_kernels`) run once for each target. If Triton is installed, all tests do, inside
`simgpu.triton.device`; modules and wider fixtures are set up on the first target; "cuda" and "hip" devices become the CPU, whose
tensors the simulated device shares. Without the option nothing is imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simgpu.hardware.errors import SimError
from simgpu.tools.torch.environment import CHECK, CHECKS, HOST, OPERATORS, SIMULATED, SUPPRESSIONS, TARGET
from simgpu.tools.torch.results import LAUNCHES, ResultWriter

NAMED = 10  # tests without a launch that the summary names without -v


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--simgpu` and the options that begin with it."""
    group = parser.getgroup("simgpu", "Triton kernels on simulated AMD GPUs")
    group.addoption(
        "--simgpu", action="append", metavar="TARGET",
        help="run every test on this simulated GPU (mi300x, gfx90a, ...; mi300x:2 is two of them); several in turn: give it again, "
        "or with commas",
    )  # fmt: skip
    group.addoption(
        "--simgpu-check", choices=[word for word in CHECKS if word != "collect"], default="yes",
        help="whether a finding fails the test that launched the kernel (default: yes)",
    )  # fmt: skip
    group.addoption(
        "--simgpu-suppressions", metavar="FILE",
        help="known findings, which fail no test, in valgrind's form: see `simgpu help triton`",
    )  # fmt: skip
    group.addoption(
        "--simgpu-sample", metavar="N[:SEED]",
        help="run N tests of those collected, chosen at random by the seed (default: 0)",
    )  # fmt: skip
    group.addoption("--simgpu-strict", action="store_true", help="fail tests that launch no kernel: they prove nothing about one")
    group.addoption(
        "--simgpu-operators", choices=(HOST, SIMULATED), default=os.environ.get(OPERATORS) or HOST,
        help=f"where PyTorch's operators compute: {HOST} (default), or {SIMULATED}, with a summary of them at the end",
    )  # fmt: skip
    group.addoption(
        "--simgpu-results", metavar="FILE",
        help="write the result of each test to this file as it ends",
    )  # fmt: skip


def targets_of(given: Iterable[str]) -> list[str]:
    """Returns the targets, in order. Raises pytest.UsageError for an unknown one."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if names:
        from simgpu import hardware

        for name in names:
            try:
                hardware.target_count(name)
            except hardware.errors.TargetError as error:
                raise pytest.UsageError(f"--simgpu: {error}") from None
    return names


def sample_of(text: str | None) -> tuple[int, int] | None:
    """Parses size and seed of a sample, from "40:7". Raises pytest.UsageError for other text."""
    if text is None:
        return None
    count, _, seed = text.partition(":")
    if not count.isdecimal() or not (seed or "0").isdecimal():
        raise pytest.UsageError(f"--simgpu-sample {text}: give a number of tests, and a seed if you like: 40:7")
    return int(count), int(seed or 0)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begins before any module of the suite is imported, since a module may ask for its device at once."""
    _begin(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Begins here if a conftest.py loads this plugin: then the hook before was not called."""
    _begin(config, config.option)


def _begin(config: pytest.Config, options: Any) -> None:
    """Registers the targets for Triton's kernels, if Triton is installed; reports unknown ones before anything runs."""
    targets = targets_of(options.simgpu or ())
    if not targets or config.pluginmanager.has_plugin("simgpu-targets"):
        return
    try:
        import simgpu.triton  # noqa: F401
    except ModuleNotFoundError:
        return
    except SimError as error:
        raise pytest.UsageError(str(error)) from None
    sample = sample_of(options.simgpu_sample)
    given = options.simgpu_check, options.simgpu_suppressions, sample, options.simgpu_strict, options.simgpu_operators
    plugin = OnTargets(targets, *given)
    config.pluginmanager.register(plugin, "simgpu-targets")
    if options.simgpu_results and not hasattr(config, "workerinput"):  # xdist's workers report to the process that started them
        config.pluginmanager.register(ResultWriter(Path(options.simgpu_results)), "simgpu-results")
    plugin.begin()
    config.add_cleanup(plugin.end)


class OnTargets:
    """Hooks that `--simgpu` adds to a run; suites without it see nothing of this plugin."""

    def __init__(
        self, targets: list[str], check: str, suppressions: str | None, sample: tuple[int, int] | None, strict: bool, where: str
    ) -> None:
        self.targets = targets
        self._suppressions = suppressions
        self._sample = sample
        self._strict = strict
        self._where = where
        self._word = check
        self._check = CHECKS[check]
        self.counting: list[Any] = []  # sessions and devices of the running test, which count their launches
        self.operators: dict[str, Any] = {}  # calls of PyTorch's operators in all tests, by name
        self._whole = contextlib.ExitStack()

    def begin(self) -> None:
        """Enters the first target, for everything outside of tests; PyTorch's GPU is the simulated one. Raises pytest.UsageError
        for an environment variable's unknown word."""
        import triton.runtime.jit

        from simgpu.hardware.errors import LaunchError, says_it_all

        self._whole.enter_context(self._device(self.targets[0]))
        patch = self._whole.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(OPERATORS, self._where)
        patch.setattr(triton.runtime.jit, "__tracebackhide__", says_it_all, raising=False)  # hidden as in our own modules
        if importlib.util.find_spec("torch") is not None:
            from simgpu.tools.torch.pretend import pretended_gpu

            try:
                self._whole.enter_context(pretended_gpu())
            except LaunchError as error:
                raise pytest.UsageError(str(error)) from None

    def end(self) -> None:
        """Undoes `begin`."""
        self._whole.close()

    @contextlib.contextmanager
    def _device(self, target: str) -> Iterator[Any]:
        """Makes a simulated GPU. Raises pytest.UsageError if the suppressions cannot be read."""
        import simgpu.triton
        from simgpu.hardware.errors import LaunchError

        with contextlib.ExitStack() as stack:
            try:
                known = self._suppressions
                session = stack.enter_context(simgpu.triton.device(target, check=self._check, suppressions=known))
            except (LaunchError, OSError) as error:
                raise pytest.UsageError(f"--simgpu-suppressions: {error}") from None
            yield session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselects tests outside the requested sample."""
        if self._sample is None or len(items) <= self._sample[0]:
            return
        count, seed = self._sample
        chosen = set(random.Random(seed).sample(range(len(items)), count))
        config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at not in chosen])
        items[:] = [item for at, item in enumerate(items) if at in chosen]

    @pytest.fixture(autouse=True)
    def simgpu_session(self, simgpu_target: str) -> Iterator[Any]:
        """Yields the `simgpu.triton.Session` that the test's kernels run on."""
        with self._device(simgpu_target) as session, pytest.MonkeyPatch.context() as patch:
            patch.setenv(TARGET, simgpu_target)  # for child processes
            patch.setenv(CHECK, self._word)
            if self._suppressions is not None:
                patch.setenv(SUPPRESSIONS, os.path.abspath(self._suppressions))
            self.counting.append(session)
            yield session
            self.counting.clear()
            for name, use in session.operators.items():
                self.operators.setdefault(name, type(use)(name)).add(use)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Adds the number of launched kernels to the test's report, which also carries it from a worker to the reporting
        process. With `--simgpu-strict`, fails a test that passed without any."""
        try:
            result = yield
        finally:
            launches = sum(session.launches for session in self.counting)
            item.user_properties.append((LAUNCHES, launches))
        if self._strict and not launches:
            pytest.fail("the test launched no kernel on the simulated GPU (--simgpu-strict)", pytrace=False)
        return result


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs each test that asks for `simgpu_target` once per target."""
    targets = targets_of(metafunc.config.option.simgpu or ())
    if targets and "simgpu_target" in metafunc.fixturenames:
        metafunc.parametrize("simgpu_target", targets, indirect=True)


@pytest.fixture
def simgpu_target(request: pytest.FixtureRequest) -> str:
    """Returns the test's target: one of `--simgpu`, or MI300X."""
    targets = targets_of(request.config.option.simgpu or ()) or ["mi300x"]
    return str(getattr(request, "param", targets[0]))  # methods of unittest's classes take no parameters


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Names passed tests that launched no kernel: they prove nothing about kernels. Reports a missing Triton."""
    config = terminalreporter.config
    if config.option.simgpu and not config.pluginmanager.has_plugin("simgpu-targets"):
        missing = "Triton is not installed (pip install 'triton>=3.7')"
        terminalreporter.write_line(f"simgpu: {missing}: only tests with simgpu_load run on simulated GPUs")
    if (plugin := config.pluginmanager.get_plugin("simgpu-targets")) is not None and plugin.operators:
        from simgpu.tools.torch.operators.summary import lines

        for line in lines(", ".join(plugin.targets), plugin.operators.values()):
            terminalreporter.write_line(line)
    passed = [(report.nodeid, dict(report.user_properties)) for report in terminalreporter.stats.get("passed", ())]
    launches = {test: properties[LAUNCHES] for test, properties in passed if LAUNCHES in properties}
    if not launches:
        return
    idle = [test for test, number in launches.items() if number == 0]
    terminalreporter.write_line(
        f"simgpu: {sum(launches.values())} launches of kernels in the tests that passed; "
        f"{len(idle)} of {len(launches)} passed without one" + (", which --simgpu-strict fails:" if idle else "")
    )
    shown = len(idle) if config.option.verbose > 0 else NAMED
    for test in idle[:shown]:
        terminalreporter.write_line(f"  {test}")
    if idle[shown:]:
        terminalreporter.write_line(f"  and {len(idle) - shown} more: -v names all")
