"""Summary of a program's operators: how many calls were simulated, by which kernels, and which operators the host computed."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable

from simgpu.triton.usage import OperatorUse

WIDTH = 80
KERNELS = 3  # of an operator, that a line names


def lines(target: str, operators: Iterable[OperatorUse]) -> list[str]:
    """Returns the summary of the operators of one session or several; no lines if nothing was computed.

    >>> used = OperatorUse("aten::mm", Counter(gemm_f32_nn_32x32x16=2), simulated=2)
    >>> for line in lines("mi300x", [used]):
    ...     print(line)
    simgpu: 2 calls of PyTorch's operators computed on the simulated mi300x
      aten::mm 2: gemm_f32_nn_32x32x16
    simgpu: 0 calls of PyTorch's operators computed on the host
    """
    uses = sorted(operators, key=lambda use: (-use.simulated, use.operator))
    if not any(use.simulated or use.host for use in uses):
        return []
    head = "simgpu: {} call{} of PyTorch's operators computed on "
    simulated, host = sum(use.simulated for use in uses), sum(use.host for use in uses)
    told = [head.format(simulated, "" if simulated == 1 else "s") + f"the simulated {target}"]
    told += [line for use in uses if use.simulated for line in _wrap(_simulated_line(use))]
    told.append(head.format(host, "" if host == 1 else "s") + "the host")
    told += [line for use in uses if use.reasons for line in _wrap(_with_reasons(use))]
    rest = [f"{use.operator} {use.host}" for use in sorted(uses, key=lambda one: -one.host) if use.host and not use.reasons]
    return told + (_wrap(", ".join(rest)) if rest else [])


def _simulated_line(use: OperatorUse) -> str:
    names = [name for name, _ in use.kernels.most_common()]
    shown = ", ".join(names[:KERNELS]) + (f" and {len(names) - KERNELS} more" if names[KERNELS:] else "")
    spent = "" if use.milliseconds is None else f", {use.milliseconds:.3g} ms modelled"
    return f"{use.operator} {use.simulated}{spent}: {shown}"


def _with_reasons(use: OperatorUse) -> str:
    """Names an operator that has kernels, and why they did not serve."""
    return f"{use.operator} {use.host}: {'; '.join(_reason_texts(use.reasons))}"


def _reason_texts(reasons: Counter[str]) -> list[str]:
    return [reason if count == 1 else f"{reason} ({count} times)" for reason, count in reasons.most_common()]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
