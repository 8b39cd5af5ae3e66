"""Configurations of a Triton autotuner, as a script tries them: it runs up to the first launch after that."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from simgpu.tools.cases.script import Done, run_until_done
from simgpu.tools.ranking.ranked import Ranked, Ranking
from simgpu.tools.shared.errors import UsageError, did_you_mean


def rank_configs(script: str, words: list[str], wanted: str, board: str) -> Ranking:
    """Ranks the configurations of the first autotuned kernel, or of the kernel `wanted`. Raises UsageError if there is none."""
    begun, found = time.perf_counter(), dict[str, list[tuple[Mapping[str, Any], float]]]()

    def after_candidate(kernel: str, config: Mapping[str, Any], milliseconds: float) -> None:
        if wanted in ("", kernel):
            found.setdefault(kernel, []).append((config, milliseconds))

    def before_launch(kernel: Any, geometry: Any, args: list[object], values: Any) -> None:
        from simgpu.triton.driver import active_driver

        if found and not active_driver().session.clock.samples:
            raise Done

    run_until_done(script, words, board, {"tried": after_candidate, "before": before_launch})
    if not found:
        raise UsageError(f"{script}: it autotunes no kernel{f' {wanted}' if wanted else ''}{did_you_mean(wanted, found)}")
    kernel, times = next(iter(found.items()))
    names = _names([config for config, _ in times])
    rows = [
        Ranked(name, each / 1e3 if math.isfinite(each) else math.inf, "" if math.isfinite(each) else "it does not fit the board")
        for name, (_, each) in zip(names, times, strict=True)
    ]
    rows.sort(key=lambda row: row.seconds)
    return Ranking(f"{kernel} on {board}: {len(rows)} configurations", rows, time.perf_counter() - begun)


def _names(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names configurations by the values that differ between them."""
    keys = [key for key in configs[0] if len({str(config.get(key)) for config in configs}) > 1] or list(configs[0])
    return [" ".join(f"{key}={config.get(key)}" for key in keys) for config in configs]
