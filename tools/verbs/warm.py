"""`simgpu warm`: compiles the handlers of common instructions, so that the first launch of a new kernel finds them in the cache."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from typing import Any

from simgpu.engine.lowering import ahead
from simgpu.hardware import cache
from simgpu.hardware.targets import target
from simgpu.machine.jit import compiler
from simgpu.tools.shared.console import add_json_option, count_progress, print_json, show
from simgpu.tools.shared.errors import UsageError


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--target", default="mi300x", metavar="BOARD", help="board or architecture, several by commas (mi300x)")
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Compiles, target by target."""
    if compiler().kept.path is None:
        raise UsageError("there is no cache: set SIMGPU_CACHE_DIR to a folder that only you can write")
    rows = [_warm(arch) for arch in dict.fromkeys(target(board).arch for board in options.target.split(","))]
    if options.json:
        print_json(rows)
    else:
        for row in rows:
            took = f"{row['compiled']} functions compiled in {row['seconds']:.2g} s"
            show(f"{row['target']}: {row['handlers']} common handlers, {took}")
        show(f"They are in {cache.Folder('handlers').path}")
    return 0


def _warm(arch: str) -> dict[str, Any]:
    begun, before, handlers = time.perf_counter(), compiler().compiled, len(ahead.common_handlers(arch))
    with count_progress(handlers, f"handlers of {arch}") as step:
        ahead.compile_common(arch, compiler(), step=step)
    compiled, seconds = compiler().compiled - before, time.perf_counter() - begun
    return {"target": arch, "handlers": handlers, "compiled": compiled, "seconds": seconds}
