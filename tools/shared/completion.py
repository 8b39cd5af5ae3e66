"""Completion for shells: verbs, operators and options, as scripts that ask nothing when they are used."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": 'add to ~/.bashrc: eval "$(simgpu --completion bash)"',
    "zsh": 'add to ~/.zshrc, behind compinit: eval "$(simgpu --completion zsh)"',
    "fish": "simgpu --completion fish > ~/.config/fish/completions/simgpu.fish",
}


def completion(shell: str, verbs: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """The script of a shell. verbs: what each is for, and its parser."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](verbs)


def words(parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """(options, words) that may stand behind a verb: of its sub-parsers', too."""
    options: dict[str, None] = {}
    named: dict[str, None] = {}
    for one in _parsers(parser):
        for action in one._actions:
            options |= dict.fromkeys(option for option in action.option_strings if action.help != argparse.SUPPRESS)
            if isinstance(action, argparse._SubParsersAction):
                named |= dict.fromkeys(action.choices)
    return list(options), list(named)


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


def _bash(verbs: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """For bash 4 and later; files complete where no option does."""
    cases = []
    for verb, (_, parser) in verbs.items():
        options, named = words(parser)
        cases.append(f"    {verb}) words=\"{' '.join(named)}\"; options=\"{' '.join(options)}\" ;;")
    return f"""# {HOW["bash"]}
_simgpu() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words options
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W "{' '.join(verbs)} --help --version --completion" -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{chr(10).join(cases)}
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _simgpu simgpu
"""


def _zsh(verbs: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> str:
    listed = "\n".join(f"    {_quoted(f'{verb}:{_plain(text)}')}" for verb, (text, _) in verbs.items())
    cases = []
    for verb, (_, parser) in verbs.items():
        options, named = words(parser)
        cases.append(f"    {verb}) words_=({' '.join(named)}); options=({' '.join(options)}) ;;")
    return f"""# {HOW["zsh"]}
_simgpu() {{
  local -a verbs words_ options
  verbs=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  case $words[2] in
{chr(10).join(cases)}
  esac
  if [[ $PREFIX == -* ]]; then
    compadd -- $options
  else
    compadd -- $words_
    _files
  fi
}}
compdef _simgpu simgpu
"""


def _fish(verbs: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> str:
    lines = [f"# {HOW['fish']}"]
    for verb, (text, parser) in verbs.items():
        lines.append(f"complete -c simgpu -n __fish_use_subcommand -f -a {verb} -d {_quoted(_plain(text))}")
        options, named = words(parser)
        seen = f"-n '__fish_seen_subcommand_from {verb}'"
        if named:
            lines.append(f"complete -c simgpu {seen} -a {_quoted(' '.join(named))}")
        for option in options:
            kind = "-l" if option.startswith("--") else "-s" if len(option) == 2 else "-o"
            lines.append(f"complete -c simgpu {seen} {kind} {option.lstrip('-')}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("`", "")


def _quoted(text: str) -> str:
    """As one word in single quotes, for zsh and fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "’") + "'"
