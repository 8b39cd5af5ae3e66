"""Completion for shells: verbs, operators, options and their values, as scripts that start no process."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")
BEFORE = ("--help", "--version", "--completion", "--quiet")  # options before the verb
Verbs = Mapping[str, tuple[str, argparse.ArgumentParser]]  # help text and parser of each verb
HOW = {
    "bash": 'add to ~/.bashrc: eval "$(simgpu --completion bash)"',
    "zsh": 'add to ~/.zshrc, after compinit: eval "$(simgpu --completion zsh)"',
    "fish": "simgpu --completion fish > ~/.config/fish/completions/simgpu.fish",
}


def completion(shell: str, verbs: Verbs) -> str:
    """Returns the script of a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](verbs)


@dataclass(frozen=True)
class VerbOptions:
    """Words that may follow a verb."""

    options: list[str]  # options
    words: list[str]  # values of arguments
    values: dict[str, list[str]]  # by option: its values, if they are a fixed list


def known_options(verb: str, verbs: Verbs) -> VerbOptions:
    """Collects the words of a verb's parser and its sub-parsers. A verb that leaves the rest of its line to `run` or `exec`
    also gets theirs."""
    parsers = list(_parsers(verbs[verb][1]))
    if any(action.nargs == argparse.REMAINDER for one in parsers for action in one._actions):
        parsers += [one for other in TAKES_ANY for one in _parsers(verbs[other][1])]
    found = VerbOptions(list(EVERYWHERE), [], {})
    for one in parsers:
        for action in one._actions:
            choices = list(map(str, action.choices or ())) or VALUES.get(action.dest, list)()
            if not action.option_strings:
                found.words.extend(word for word in choices if word not in found.words)
            elif action.help != argparse.SUPPRESS:
                found.options.extend(option for option in action.option_strings if option not in found.options)
                found.values.update(dict.fromkeys(action.option_strings, choices) if choices else {})
    return found


def _targets() -> list[str]:
    from simgpu.hardware import targets
    from simgpu.hardware.targets import architectures

    return [*targets(), *architectures()]


def _dtypes() -> list[str]:
    from simgpu.hardware import target, targets

    return sorted({name for board in targets() for name in target(board).dtypes()})


EVERYWHERE = ("--quiet",)
TAKES_ANY = ("run", "exec")  # verbs of operators and of code objects; other verbs pass their options on
# Values of options for which argparse has no choices, by the option's name.
VALUES: dict[str, Callable[[], list[str]]] = {"target": _targets, "dtype": _dtypes}


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


def _cases(verbs: Verbs, assigned: str) -> str:
    """Returns one `case` line per verb, for bash and zsh. assigned: the shell's syntax for assigning a list."""
    lines = []
    for verb in verbs:
        it = known_options(verb, verbs)
        values = "".join(f" {option}) values={assigned % ' '.join(words)} ;;" for option, words in it.values.items())
        picked = f' case "$previous" in{values} esac;' if values else ""
        lines.append(f"    {verb}) words_={assigned % ' '.join(it.words)}; options={assigned % ' '.join(it.options)};{picked} ;;")
    return "\n".join(lines)


def _bash(verbs: Verbs) -> str:
    """Returns the script for bash 4 and later; files complete if no option does."""
    return f"""# {HOW["bash"]}
_simgpu() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb="" words_ options values at
  for (( at = 1; at < COMP_CWORD; at++ )); do
    if [[ ${{COMP_WORDS[at]}} != -* ]]; then verb=${{COMP_WORDS[at]}}; break; fi
  done
  if [[ $previous == --completion ]]; then
    COMPREPLY=($(compgen -W "{' '.join(SHELLS)}" -- "$word"))
    return
  fi
  if [[ -z $verb ]]; then
    COMPREPLY=($(compgen -W "{' '.join((*verbs, *BEFORE))}" -- "$word"))
    return
  fi
  case $verb in
{_cases(verbs, '"%s"')}
  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words_" -- "$word") $(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _simgpu simgpu
"""


def _zsh(verbs: Verbs) -> str:
    listed = "\n".join(f"    {_quote(f'{verb}:{_plain(text)}')}" for verb, (text, _) in verbs.items())
    return f"""# {HOW["zsh"]}
_simgpu() {{
  local -a verbs words_ options values
  local verb previous=$words[CURRENT-1] at
  verbs=(
{listed}
  )
  for (( at = 2; at < CURRENT; at++ )); do
    if [[ $words[at] != -* ]]; then verb=$words[at]; break; fi
  done
  if [[ $previous == --completion ]]; then
    compadd -- {' '.join(SHELLS)}
    return
  fi
  if [[ -z $verb ]]; then
    _describe verb verbs
    compadd -- {' '.join(BEFORE)}
    return
  fi
  case $verb in
{_cases(verbs, '(%s)')}
  esac
  if (( $#values )); then
    compadd -- $values
  elif [[ $PREFIX == -* ]]; then
    compadd -- $options
  else
    compadd -- $words_
    _files
  fi
}}
compdef _simgpu simgpu
"""


def _fish(verbs: Verbs) -> str:
    lines = [f"# {HOW['fish']}"]
    for option in BEFORE:
        value = f" -x -a {_quote(' '.join(SHELLS))}" if option == "--completion" else ""
        lines.append(f"complete -c simgpu -n __fish_use_subcommand {_switch(option)}{value}")
    for verb, (text, _) in verbs.items():
        lines.append(f"complete -c simgpu -n __fish_use_subcommand -f -a {verb} -d {_quote(_plain(text))}")
        it = known_options(verb, verbs)
        seen = f"-n '__fish_seen_subcommand_from {verb}'"
        if it.words:
            lines.append(f"complete -c simgpu {seen} -a {_quote(' '.join(it.words))}")
        for option in it.options:
            value = f" -x -a {_quote(' '.join(it.values[option]))}" if option in it.values else ""
            lines.append(f"complete -c simgpu {seen} {_switch(option)}{value}")
    return "\n".join(lines) + "\n"


def _switch(option: str) -> str:
    """Formats an option for fish's `complete`."""
    return f"{'-l' if option.startswith('--') else '-s' if len(option) == 2 else '-o'} {option.lstrip('-')}"


def _plain(text: str) -> str:
    return text.replace("`", "")


def _quote(text: str) -> str:
    """Quotes text as one word in single quotes, for zsh and fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "’") + "'"
