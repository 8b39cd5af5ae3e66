"""Parser of the command line, and the end of a verb's `--help`: command lines to copy, and the targets."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, NoReturn

from simgpu.tools.shared.errors import UsageError, did_you_mean

EXAMPLES = {
    "derive": ("derive gemm -m 1000 -n 777 -k 333 --target mi300x", "derive attention -L 4096 -d 128 --dtype bf16"),
    "tree": ("tree gemm -m 4096 -n 4096 -k 4096", "tree attention -L 1024 -d 64 --target mi300x"),
    "report": ("report gemm -m 1000 -n 777 -k 333", "report gemm -m 4096 -n 4096 -k 4096 --dtype f16 --target mi300x --schedule"),
    "emit": ("emit gemm -m 40 -n 33 -k 7 -o k.s --object k.co", "emit softmax --rows 100 -n 5000 --listing"),
    "asm": ("asm k.s -o k.co", "asm k.s --target mi300x -o -"),
    "run": ("run gemm -m 1000 -n 777 -k 333 --dtype f16 --target mi300x", "run attention -L 1000 -d 64 --causal --target mi355x"),
    "time": ("time gemm -m 4096 -n 4096 -k 4096 --dtype f16 --target mi300x", "time k.co --grid 304 --arg zeros:f32:4096"),
    "profile": (
        "profile k.hip --grid 16,16 --block 32,8 --arg count:f32:262144 --arg zeros:f32:262144 --target mi300x",
        "profile gemm -m 4096 -n 4096 -k 4096 --dtype f16 --target mi300x",
    ),
    "museum": ("museum", "museum barrier-before-wait --save ."),
    "judge": ("judge k.hip --reference ref.py", "judge new.py --reference ref.py --size batch_size=16 --seed 7 --json"),
    "layout": ("layout v_mfma_f32_16x16x16f16 --target mi300x", "layout v_mfma_f32_32x32x8f16 --target gfx90a --element 9,3"),
    "lds": ("lds k.co --grid 4 --arg zeros:f32:256", "lds gemm -m 256 -n 256 -k 64 --dtype f16 --target mi300x"),
    "probe": ("probe --target mi300x", "probe --device hip"),
    "warm": ("warm", "warm --target mi300x,mi355x"),
    "bench": ("bench gemm -m 4096 -n 4096 -k 4096", "bench gemm -m 4096 -n 4096 -k 4096 --device hip --against-sim"),
    "paper": ("paper", "paper -o paper.md"),
    "sweep": ("sweep gemm --targets mi100,mi300x --dtypes f32,f16 --shapes shapes.txt --cluster local:2 -o table.csv",),
    "regret": ("regret gemm", "regret attention --json"),
    "baselines": ("baselines",),
    "tune": ("tune gemm --target mi300x", "tune gemm -m 512 -n 4096 -k 4096"),
    "disasm": ("disasm k.co", "disasm k.s --kernel NAME --json"),
    "debug": ("debug gemm -m 40 -n 36 -k 20", "debug k.s --grid 4 --arg x.npy -ex 'break loop' -ex continue"),
    "why": ("why 'C[4,22]' gemm -m 40 -n 36 -k 20", "why --worst gemm -m 64 -n 64 -k 999 --dtype f16 --target mi300x"),
    "same": ("same gemm -m 64 -n 64 -k 99 --target mi100 and gemm -m 64 -n 64 -k 99 --target mi300x",),
    "help": ("help", "help fragments"),
}

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: .*?(--?[a-z][\w-]*)")
_VALUE = re.compile(r"argument (?:-\w+/)?(--[\w-]+): expected one argument")


class Parser(argparse.ArgumentParser):
    """Reports a bad command line as UsageError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        near = ""
        if choice := _CHOICE.search(message):
            known = re.findall(r"'([^']*)'", choice[2])
            near = did_you_mean(choice[1], known)
            if not near and message.startswith("argument OP:"):
                near = f": options follow OP, as in `{self.prog} {known[0]} --target mi300x`"
        elif unknown := _UNKNOWN.search(message):
            near = did_you_mean(unknown[1], self.options())
        elif wanting := _VALUE.fullmatch(message):
            near = f"; if it begins with -, write {wanting[1]}=-..."
        raise UsageError(f"{message}{near}; see `{self.prog} --help`")

    def options(self) -> Iterator[str]:
        """Yields the options of this parser and of its sub-parsers."""
        yield from self._option_string_actions
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser.options()


class _HelpLine(argparse.Action):
    """Line of a sub-parser in help. Its text is made when help is formatted."""

    def __init__(self, name: str, summary: Callable[[], str]) -> None:
        self._summary = summary
        super().__init__([], name, metavar=name)

    @property  # type: ignore[override]
    def help(self) -> str:
        return self._summary()

    @help.setter
    def help(self, _text: str | None) -> None:
        """Ignores the text that argparse sets: there is none yet."""


class SubParsers(MutableMapping[str, argparse.ArgumentParser]):
    """Sub-parsers of an argparse action by name. Each is made when it is looked up: a command line uses one of many.

    >>> from argparse import ArgumentParser
    >>> parser = ArgumentParser(prog="tool")
    >>> verbs = SubParsers(parser.add_subparsers(dest="verb"))
    >>> verbs.announce("run", lambda made: made.add_argument("-n", type=int), lambda: "runs it")
    >>> parser.parse_args(["run", "-n", "3"]).n
    3
    """

    def __init__(self, action: Any) -> None:
        """action: what `add_subparsers` returned; looks up its parsers here from now on."""
        self._action = action
        self._makers: dict[str, Callable[[], argparse.ArgumentParser]] = {}
        self._made: dict[str, argparse.ArgumentParser] = {}
        self._each: list[Callable[[argparse.ArgumentParser], None]] = []
        action.choices = action._name_parser_map = self

    def announce(
        self, name: str, configure: Callable[[argparse.ArgumentParser], object], summary: Callable[[], str], listed: bool = False
    ) -> None:
        """Adds a name. configure: adds the arguments of its parser. summary: called when help or the parser needs it. listed: True
        for a line in the help of the parser above."""

        def make() -> argparse.ArgumentParser:
            prog = f"{self._action._prog_prefix} {name}"
            made: argparse.ArgumentParser = self._action._parser_class(prog=prog, description=summary())
            configure(made)
            return made

        self._makers[name] = make
        if listed:
            self._action._choices_actions.append(_HelpLine(name, summary))

    def for_each(self, function: Callable[[argparse.ArgumentParser], None]) -> None:
        """Calls function(parser) for all parsers: now for those that are made, and for the others once they are."""
        self._each.append(function)
        for made in self._made.values():
            function(made)

    def __getitem__(self, name: str) -> argparse.ArgumentParser:
        if name not in self._made:
            made = self._makers[name]()
            for function in self._each:
                function(made)
            self._made[name] = made
        return self._made[name]

    def __setitem__(self, name: str, parser: argparse.ArgumentParser) -> None:
        self._makers[name] = lambda: parser
        self._made[name] = parser

    def __delitem__(self, name: str) -> None:
        del self._makers[name]
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __len__(self) -> int:
        return len(self._makers)


def own_options(
    add: Callable[[argparse.ArgumentParser], None], options: argparse.Namespace
) -> tuple[argparse.Namespace, list[str]]:
    """Parses a verb's options among its `rest`, in addition to those before it. Returns them and the words for another parser.

    add: adds the verb's options to a parser.
    """
    own = Parser(add_help=False, allow_abbrev=False)
    add(own)
    return own.parse_known_args(options.rest, argparse.Namespace(**vars(options)))


def split_at_commas(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def add_examples(parser: argparse.ArgumentParser, verb: str) -> None:
    """Adds the verb's examples to its help, after an existing epilog, and the targets if it takes one."""
    lines = [parser.epilog] if parser.epilog else []
    if verb in EXAMPLES:
        lines.append("examples:\n" + "".join(f"  simgpu {example}\n" for example in EXAMPLES[verb]))
    if verb not in ("museum", "paper", "help", "validate-time", "doctor", "dap"):
        from simgpu.hardware import targets
        from simgpu.hardware.targets import architectures

        lines.append(f"targets: {', '.join(targets())}\n  or {', '.join(architectures())}")
    parser.epilog = "\n".join(lines)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
