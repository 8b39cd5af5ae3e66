"""docs/reference/commands.md, written from the parsers of the verbs.

    python -m tests.support.commands       # writes it anew
"""

from __future__ import annotations

import argparse
import functools
import re
import textwrap
from collections.abc import Iterable

from simgpu.tools.cli import GROUPS, VERBS, verb_parser
from simgpu.tools.shared.parser import EXAMPLES
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands: every option

`python -m tests.support.commands` writes this page from the parsers; do not edit it.
[Examples](examples.md) shows what each command prints.

Every verb takes `--help`, and `--quiet`, which shows no progress. Every verb but `dap` takes `--json`:
one JSON document instead of text. Nothing is overwritten without `--force`.

| status | meaning |
|---|---|
| 0 | all is well |
| 1 | a wrong result, a finding, or an error that the kernel raised |
| 2 | something to put right before running: a wrong option, a missing file |
| 3 | `check`: a check failed itself, and nothing else was found; `prove`: unknown |
| 130, 141 | interrupted by Ctrl-C; the reader of a pipe went away |
"""
EVERYWHERE = {"-h", "--quiet", "--json"}  # named once, above


def page() -> str:
    """Returns the whole page."""
    lines = [HEAD]
    for group, verbs in GROUPS.items():
        links = ", ".join(f"[{verb}](#{verb})" for verb in verbs)
        lines += textwrap.wrap(f"* {group}: {links}", 100, subsequent_indent="  ", break_on_hyphens=False)
    links = ", ".join(f"[{name}](#operator-{name})" for name in _operators())
    lines += textwrap.wrap(f"* operators: {links}", 100, subsequent_indent="  ")
    for verb, text in VERBS.items():
        lines.append(_section(verb, text))
    for name, common in _operators().items():
        lines += [f"\n## Operator {name}\n", _table(common.values())]
    return "\n".join(lines) + "\n"


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of what a verb's OP may be, none if it has no OP."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Returns a parser's arguments by name, without those of every verb and OP itself."""
    found = {action.dest: action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)}
    return {name: action for name, action in found.items() if action.nargs != 0 or not EVERYWHERE & set(action.option_strings)}


@functools.cache
def _operators() -> dict[str, dict[str, argparse.Action]]:
    """Returns the options that an operator has in each verb that takes it, by the operator's name."""
    found: dict[str, dict[str, argparse.Action]] = {}
    for verb in VERBS:
        for name, parser in _choices(verb_parser(verb)).items():
            options = _options(parser)
            if name != "exec":
                found[name] = {key: found.get(name, options)[key] for key in options if key in found.get(name, options)}
    return found


def _section(verb: str, text: str) -> str:
    """Returns the verb's heading, examples and options; for a verb with OP, those that are not the operator's."""
    parser = verb_parser(verb)
    choices = _choices(parser)
    lines = [f"\n## {verb}\n", f"{text[0].upper()}{text[1:]}.\n"]
    if examples := EXAMPLES.get(verb):
        lines += [*(f"    simgpu {example}" for example in examples), ""]
    if parser.epilog:
        lines += ["```text", parser.epilog.strip(), "```", ""]
    shared = _operators()
    if choices:
        named = ", ".join(f"[{name}](#operator-{name})" for name in choices if name in shared)
        lines.append(f"`simgpu {verb} OP …`; OP and its own options: {named}.\n")
    own = dict(_options(parser))
    for name, choice in choices.items():
        own |= {key: action for key, action in _options(choice).items() if key not in shared.get(name, {})}
    return "\n".join((*lines, _table(own.values()))) if own else "\n".join(lines).rstrip()


def _table(actions: Iterable[argparse.Action]) -> str:
    return "\n".join(("| argument | meaning |", "|---|---|", *(f"| {_name(action)} | {_meaning(action)} |" for action in actions)))


def _name(action: argparse.Action) -> str:
    """Returns the flags with the value that they take, or a positional argument's name."""
    value = action.metavar or (None if action.nargs == 0 else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    shown = ", ".join(action.option_strings)
    return f"`{f'{shown} {value}'.strip()}`".replace("|", "\\|") if value else f"`{shown}`"


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": "simgpu"} if action.help else ""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return f"{text}; required" if action.required and action.option_strings else text


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
