"""Slices in other processes: the pool's or Dask's; workers that die, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.hardware.errors import LaunchError
from simgpu.slices.processes import Processes
from simgpu.slices.worker import run_slice
from tests.simgpu.slices.test_sliced import FILL, STORE
from tests.support.kernels import loaded_kernel


@pytest.fixture(scope="module")
def pool():
    with Processes(1) as made:
        yield made


def die_once(path: str) -> int:
    """Kills its own process, the first time."""
    if not os.path.exists(path):
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise ValueError("on purpose")


def launch(executor, slices=4):
    gpu = simgpu.Device("gfx90a")
    words = gpu.upload(np.arange(64 * 8, dtype=np.int32))
    run = loaded_kernel(gpu, FILL + STORE, "buffer").launch(grid=8, args=[words], executor=executor, slices=slices)
    assert (words.download() == np.arange(512) + np.arange(512) // 64).all()
    return run


def test_processes_find_what_they_need_in_a_folder(pool):
    assert not launch(pool).notes
    assert list(pool.folder.iterdir())


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_its_task_runs_again(pool, tmp_path):
    others = [pool.submit(pow, 2, n) for n in range(8)]
    assert pool.submit(die_once, str(tmp_path / "dead")).result(60) == 7
    assert [future.result(60) for future in others] == [2**n for n in range(8)]
    assert not launch(pool).notes


@pytest.mark.slow
def test_a_task_that_kills_every_process_fails(pool):
    with pytest.raises(Exception, match="terminated abruptly"):
        pool.submit(die).result(60)
    assert not launch(pool).notes


def test_what_a_task_raises_arrives(pool):
    with pytest.raises(ValueError, match="on purpose"):
        pool.submit(fail).result(60)


def test_no_processes_at_all():
    with pytest.raises(LaunchError, match="0 processes: at least one"):
        Processes(0)


def test_the_folder_goes_with_the_pool():
    with Processes(1) as made:
        folder = made.folder
        assert made.submit(pow, 2, 3).result(60) == 8
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="shut down"):
        made.submit(pow, 2, 3)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
def test_ctrl_c_leaves_no_process(tmp_path):
    """Ctrl-C comes while the interpreter's workers sleep; all end, and the folder goes with them."""
    code = (
        "import signal, time\nfrom simgpu.slices.processes import Processes\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # it is ignored in the background of a shell
        "    with Processes(2) as pool:\n"
        "        print(pool.folder, *[pool.submit(__import__('os').getpid).result() for _ in range(4)], flush=True)\n"
        "        pool.submit(time.sleep, 600).result()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder, *workers = process.stdout.readline().split()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in said
    deadline = time.monotonic() + 120
    while any(Path("/proc", worker).exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if Path("/proc", worker).exists()]
    assert not Path(folder).exists()


@pytest.mark.slow
def test_dask():
    """Two processes of a Dask cluster get bytes with the tasks, once a worker."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster, distributed.Client(cluster) as client:
        executor = client.get_executor(pure=False)
        assert not launch(executor).notes
        assert not launch(executor, 7).notes
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        launch(executor)


@pytest.mark.slow
def test_a_cut_connection_loses_nothing():
    """A client of Dask, then a worker, loses its connection to the scheduler while slices run; they run again."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with cluster, distributed.Client(cluster) as client:
        executor, cuts = client.get_executor(pure=False), []

        def clients() -> None:
            cuts.append(client.scheduler_comm.comm)

        def workers() -> None:
            cuts.append(next(iter(cluster.scheduler.stream_comms.values())).comm)

        for found in (clients, workers):
            _ = [client.submit(time.sleep, 0.5, pure=False) for _ in range(2)]  # slices wait for them
            for at, done in ((0.1, found), (0.2, lambda: cuts[-1].abort())):
                threading.Timer(at, client.loop.add_callback, (done,)).start()
            launch(executor)
            assert cuts[-1].closed()
        assert len(cuts) == 2


def test_a_task_is_found_by_name():
    """Executors pickle functions by name: this one must stay importable."""
    assert run_slice.__module__ == "simgpu.slices.worker" and run_slice.__qualname__ == "run_slice"
