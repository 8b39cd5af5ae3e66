"""Where work runs beside this process: `--cluster` of the verbs that have many cases, as a `concurrent.futures.Executor`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from simgpu.slices.processes import Processes
from simgpu.tools.shared.errors import UsageError

HELP = "where to run: local:N, processes of this machine (default: local:1), or tcp://HOST:PORT, a Dask scheduler; docs/cluster.md"


def add_cluster_option(parser: ArgumentParser) -> None:
    """Adds --cluster."""
    parser.add_argument("--cluster", default="local:1", metavar="WHERE", help=HELP)


@contextmanager
def executor_of(where: str) -> Iterator[tuple[Executor, int]]:
    """The executor that `--cluster` names, and how many tasks it runs at once; raises UsageError for another name."""
    kind, _, rest = where.partition(":")
    if kind == "local" and rest.isdecimal() and 0 < int(rest) <= 1024:
        with Processes(int(rest)) as executor:
            yield executor, int(rest)
    elif kind in ("tcp", "tls"):
        try:
            from distributed import Client
        except ImportError:
            raise UsageError(f"--cluster {where}: Dask is not installed here: pip install 'simgpu[cluster]'") from None
        try:
            client = Client(where, timeout=10)
        except (OSError, ValueError) as error:
            raise UsageError(f"--cluster {where}: no Dask scheduler answers there ({error})") from None
        with client:
            yield client.get_executor(pure=False), max(1, sum(client.nthreads().values()))
    else:
        raise UsageError(f"--cluster {where}: give local:N, N processes from 1 to 1024, or tcp://HOST:PORT")
