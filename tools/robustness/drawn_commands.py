"""Draws commands on operators, with any of their options: each must be right, or be refused in a line.

    python -m simgpu.tools.robustness.drawn_commands --seconds 60 --seed 1

The parsers of `simgpu run` say which options an operator has, so new ones are drawn, too. A failure is printed with its
command: a wrong result, a finding, or an internal error. The exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

from simgpu.hardware import targets
from simgpu.tools.cli import main as simgpu
from simgpu.tools.cli import verb_parser

# `check` and `run` compute; the others only plan, emit or time.
VERBS = ("check", "check", "check", "run", "run", "derive", "tree", "report", "time", "emit", "lint")
COMPUTING = ("check", "run")
ALWAYS = ("-m", "-n", "-k", "-d", "--rows", "--lq", "--lk", "--ic", "--ih", "--iw", "--oc", "--kh", "--kw", "--target", "--dtype")
# Options that choose how a command works, not what it computes.
LEFT_OUT = frozenset((
    "--help", "--device", "--threads", "--max-instructions", "--timeout", "--against-sim", "--html", "--against", "--force",
    "--json", "--weak", "--late", "--ring", "--seed",
))  # fmt: skip
COMMON_TYPES, OTHER_TYPES = ("f32", "f16", "bf16"), ("f64", "xf32", "i8", "fp8", "bf8", "fp6", "bf6", "fp4")
OFTEN = 0.22  # share of commands that have an optional option
# Words of options whose parsers leave them to the problem, which refuses others.
WORDS: dict[str, Sequence[str]] = {
    "--target": targets(), "--policy": ("corrected",) * 8 + ("published",), "--layout": ("nchw", "nhwc"),
    "--activation": ("none", "relu", "gelu", "silu", "reglu", "geglu", "swiglu"), "--values": ("mfma", "valu"),
    "--scales": ("none", "tensor", "row", "block", "mx"), "--reduce": ("sum", "max"),
}  # fmt: skip
NUMBERS = ("0.5", "-1.25", "2", "0", "1e-3", "3.7")
SIZES: dict[str, Sequence[int]] = {
    "--batch": (1, 2, 3, 4, 8), "--groups": (1, 2, 3, 4, 8), "--heads": (1, 2, 3, 8), "--kv-heads": (1, 2, 3, 8),
    "--kh": (1, 2, 3, 3, 5, 7), "--kw": (1, 2, 3, 3, 5, 7), "--stride": (1, 1, 2, 3), "--padding": (0, 1, 2, 3),
    "--dilation": (0, 1, 2, 3), "-d": (1, 7, 16, 32, 40, 64, 80, 96, 128, 192, 256), "--dv": (1, 7, 16, 32, 64, 96, 128, 192),
    "--page": (1, 16, 64, 128), "--group": (16, 32, 64, 128),
}  # fmt: skip
LARGEST = {"--ih": 5.5, "--iw": 5.5, "--ic": 7.0, "--oc": 7.0}  # log2; of other sizes 9


def draw_command(rng: random.Random) -> list[str]:
    """Draws the arguments of `simgpu`: a verb, an operator and its options."""
    verb, op = rng.choice(VERBS), rng.choice(list(_operators()))
    drawn, largest = [verb, op], 1
    for action in _operators()[op]._actions:
        name = action.option_strings[-1] if action.option_strings else ""
        if not name or name in LEFT_OUT or (name == "--inputs" and verb not in COMPUTING):
            continue
        if name not in ALWAYS and rng.random() > OFTEN:
            continue
        drawn.append(name)
        if action.nargs == 0:
            continue
        value = _word(rng, name, action)
        if not value:
            size = _size(rng, name)
            value = str(largest + size % 9 if name.startswith("--ld") else size)
            largest = max(largest, size)
        drawn[-1:] = [f"{name}={value}"] if name.startswith("--") else [name, value]
    return drawn


@functools.cache
def _operators() -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of `simgpu run`, by operator."""
    return next(action.choices for action in verb_parser("run")._actions if isinstance(action, argparse._SubParsersAction))


def _word(rng: random.Random, name: str, action: argparse.Action) -> str:
    """Draws a value that is no size; "" for sizes."""
    if name.startswith("--dtype"):
        return rng.choice(COMMON_TYPES if rng.random() < 0.7 else OTHER_TYPES)
    words = WORDS.get(name) or list(action.choices or ())
    if words:
        return rng.choice(words)
    return "" if action.type is int else rng.choice(NUMBERS)


def _size(rng: random.Random, name: str) -> int:
    return rng.choice(SIZES[name]) if name in SIZES else int(2 ** rng.uniform(0, LARGEST.get(name, 9.0)))


def run_command(arguments: Sequence[str]) -> tuple[int, str]:
    """Runs a command in this process. Returns its exit status and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = simgpu(list(arguments))
    return status, out.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    name = "python -m simgpu.tools.robustness.drawn_commands"
    made = argparse.ArgumentParser(prog=name, description=(__doc__ or "").split("\n")[0])
    made.add_argument("--seconds", type=float, default=60.0, help="how long to draw (60)")
    made.add_argument("--seed", type=int, default=1)
    options = made.parse_args(argv)
    ends, rng, counts = time.monotonic() + options.seconds, random.Random(options.seed), Counter[str]()
    while time.monotonic() < ends:
        arguments = draw_command(rng)
        status, text = run_command(arguments)
        counts[{0: "right", 2: "refused"}.get(status, "failed")] += 1
        if status not in (0, 2):
            print(f"simgpu {' '.join(arguments)}\n{text.strip()[-700:]}\n", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
