"""Place where work runs: `--cluster` of the verbs that have many cases, as a `concurrent.futures.Executor`."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from simgpu.slices.processes import Processes
from simgpu.tools.shared.console import count_progress
from simgpu.tools.shared.errors import UsageError

Task = TypeVar("Task")
Result = TypeVar("Result")
HERE = "here"
AHEAD = 4  # tasks submitted to an executor for each that it runs at once
HELP = (
    "where to run: here, in this process, local:N, processes of this machine, tcp://HOST:PORT, a Dask scheduler, or slurm:N, "
    "tasks of srun (default: {}); `simgpu help cluster`"
)
MOST = 1024  # processes or tasks
RESTARTS = 2  # of an srun task that ends before its work does


def add_cluster_option(parser: ArgumentParser, default: str = HERE) -> None:
    """Adds --cluster."""
    parser.add_argument("--cluster", default=default, metavar="WHERE", help=HELP.format(default))


def run_tasks(
    where: str, function: Callable[[Task], Result], tasks: Sequence[Task], noun: str
) -> Iterator[tuple[Task, Future[Result]]]:
    """Runs `function` of every task on the cluster `where` and yields each task with its future as it finishes. Shows progress.

    Workers import the function by its name, so it must be defined at module level. Raises UsageError for an unknown cluster.
    """
    with executor_of(where) as (executor, at_once), count_progress(len(tasks), noun) as done:
        ahead = 1 if where == HERE else AHEAD * at_once  # here, a task runs as soon as it is submitted
        for task, future in as_they_finish(executor, function, tasks, ahead):
            done()
            yield task, future


def as_they_finish(
    executor: Executor, function: Callable[[Task], Result], tasks: Iterable[Task], most: int
) -> Iterator[tuple[Task, Future[Result]]]:
    """Yields each task with its future as it finishes in the executor; submits at most `most` tasks at a time."""
    waiting = iter(tasks)
    pending: dict[Future[Result], Task] = {}
    while True:
        for task in islice(waiting, most - len(pending)):
            pending[executor.submit(function, task)] = task
        if not pending:
            return
        future = next(as_completed(pending))
        yield pending.pop(future), future


def processes_of(where: str) -> int:
    """N of local:N, 0 for another cluster."""
    kind, _, rest = where.partition(":")
    return _count(rest) if kind == "local" else 0


def _count(text: str) -> int:
    """Parses a number from 1 to MOST; 0 for other text."""
    return int(text) if text.isdecimal() and int(text) <= MOST else 0


@contextmanager
def executor_of(where: str) -> Iterator[tuple[Executor, int]]:
    """Yields the executor that `--cluster` names and how many tasks it runs at once. Raises UsageError for another name."""
    kind, _, rest = where.partition(":")
    if where == HERE:
        yield InThisProcess(), 1
    elif count := processes_of(where):
        with Processes(count) as executor:
            yield executor, count
    elif kind == "slurm" and (count := _count(rest)):
        with _slurm(where, count) as executor:
            yield executor, count
    elif kind in ("tcp", "tls"):
        try:
            from distributed import Client
        except ImportError:
            raise UsageError(f"--cluster {where}: Dask is not installed here: pip install distributed") from None
        try:
            client = Client(where, timeout=10)
        except (OSError, ValueError) as error:
            raise UsageError(f"--cluster {where}: no Dask scheduler answers there ({error})") from None
        with client:
            yield client.get_executor(pure=False), max(1, sum(client.nthreads().values()))
    else:
        raise UsageError(f"--cluster {where}: give here, local:N or slurm:N, N from 1 to {MOST}, or tcp://HOST:PORT")


class InThisProcess(Executor):
    """Runs each task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`; an interrupt of this process is raised here."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _slurm(where: str, count: int) -> Executor:
    """Starts `count` tasks of `srun`, one core each, that last for all of the work."""
    if shutil.which("srun") is None:
        raise UsageError(f"--cluster {where}: there is no srun here: run it on a node of a Slurm cluster, in `salloc` or `sbatch`")
    try:
        from executorlib import SlurmJobExecutor
    except ImportError:
        raise UsageError(f"--cluster {where}: executorlib is not installed here: pip install executorlib") from None
    try:
        made: Executor = SlurmJobExecutor(max_workers=count, block_allocation=True, restart_limit=RESTARTS)
    except ValueError as error:  # more than the allocation has
        raise UsageError(f"--cluster {where}: {error}: give fewer, or ask Slurm for more") from None
    return made
