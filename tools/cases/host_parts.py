"""Kernels of whole HIP programs: declarations that only the host needs are left out where the compiler refuses them.

Only device code is compiled, without the runtime's and C++'s host headers, so errors in a host function mean nothing. The
compiler names the line; the declaration around it becomes blank, unless it is a kernel's or a device function's, and so on.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from simgpu.hip.names import USE
from simgpu.hip.options import HipSource
from simgpu.tools.shared.hiprtc import HIP_HEADERS, STANDARD, compile_source
from simgpu.tools.shared.source_files import decode_source

ROUNDS = 64  # compilations; each leaves out at least one declaration, mostly all
_ERROR = re.compile(r"^([^\s:]+):(\d+):\d+: (?:fatal )?error: ", re.MULTILINE)
_MISSING = re.compile(r"^([^\s:]+):(\d+):\d+: fatal error: '(?:\./)?([^']+)' file not found", re.MULTILINE)
_ATTRIBUTES = r"__(?:global|device|constant|shared|managed)__"
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|.)*)", re.MULTILINE)
# Headers in angles; in quotes, those of CUDA's runtime, whose functions only the host calls.
_INCLUDE = re.compile(
    r"""^[ \t]*#[ \t]*include[ \t]*(?:<(?=[^>\n]+>)|"(?=cuda(?:_runtime(?:_api)?)?\.h"))([^>"\n]+)[>"]""", re.MULTILINE
)
_ANY_INCLUDE = re.compile(r"""^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]""", re.MULTILINE)
_SPACE = re.compile(r'\s*(?:inline\s+)?(?:namespace\b[^;()={]*|extern\s*"C(?:\+\+)?"\s*)$')  # what stands before its brace
_SKIPPED = re.compile(  # comments and literals
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|.)*", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|el|endif|define|undef)(?:\\\n|.)*", re.MULTILINE)
_INSTANCE = r"(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*\s*<(?:[^<>;(){}]|<[^<>;(){}]*>)*>"
_LAUNCHES = re.compile(rf"({_INSTANCE})\s*<<<|hipLaunchKernelGGL\s*\(\s*(?:HIP_KERNEL_NAME\s*)?\(?\s*({_INSTANCE})")


def compile_kernels(source: HipSource) -> tuple[bytes | None, str]:
    """Compiles a program's kernels, and the instances of templates that it launches by `<<<` or `hipLaunchKernelGGL`.

    The source's folder, and those that options -I name absolutely, are searched for headers. Returns the code object and the
    compiler's messages, without those about parts that were left out.
    """
    whole, named = source.text, False
    folders = [source.folder, *(option[2:] for option in source.options if option.startswith("-I"))]
    rest = (option for option in source.options if not option.startswith("-I"))
    source = replace(source, options=(*rest, "-ferror-limit=0"))
    for _ in range(ROUNDS):
        code, log = compile_source(source)
        if code is not None and not named and source.text != whole:
            shorter, named = replace(source, names=tuple(_instances(whole))), True
        else:
            shorter = source if code is not None else _shorter(source, log, folders)
        if shorter == source:
            break
        source = shorter
    return code, log if code is not None else _with_lost_header(log, whole)


def _with_lost_header(log: str, text: str) -> str:
    """Adds to errors about a library's names, such as `hipcub`, that its header is not here."""
    for name in _INCLUDE.findall(text):
        library, slash, _ = name.partition("/")
        if slash:
            advice = f"; <{name}> is not here: --options=-IFOLDER names its folder"
            log = re.sub(rf"(error: .*'{re.escape(library)}(?:::\w+)*'.*)", rf"\1{advice}", log)
    return log


def _shorter(source: HipSource, log: str, folders: Sequence[str]) -> HipSource:
    """Returns a source without what its errors are about, if only the host needs it, and without the names that are none.

    Headers of `folders` that the compiler misses are added.
    """
    wrong: dict[str, set[int]] = defaultdict(set)
    for file, line in _ERROR.findall(log):
        wrong[os.path.normpath(file)].add(int(line))
    unknown = {int(found) for found in re.findall(rf"error: .*\n.*\b{USE}(\d+) =", log)}
    added = dict[str, str]()
    if missing := _MISSING.findall(log):  # the compiler stops at the first one
        for name, text in [(source.file, source.text), *source.headers]:
            wrong[name] |= _absent_headers(text, folders)
    for includer, line, name in missing:
        if more := _read_headers(includer, name, folders, {*added, *dict(source.headers)}):
            added |= more
            wrong[os.path.normpath(includer)].discard(int(line))
    headers = [(name, _leave_out(text, wrong[name])) for name, text in source.headers]
    return replace(
        source, text=_leave_out(source.text, wrong[source.file]), headers=(*headers, *added.items()),
        names=tuple(name for index, name in enumerate(source.names) if index not in unknown),
    )  # fmt: skip


def _read_headers(includer: str, name: str, folders: Sequence[str], known: set[str]) -> dict[str, str]:
    """Returns the texts of a header and of all that it includes, by name, but for `known`: files of `folders`."""
    found, waiting = dict[str, str](), [(includer, name)]
    while waiting:
        by, wanted = waiting.pop()
        for place in (os.path.normpath(Path(by).parent / wanted), wanted):
            folder = next((folder for folder in folders if Path(folder, place).is_file()), None)
            if folder is None or Path(place).is_absolute() or place in found or place in known:
                continue
            text = decode_source(Path(folder, place).read_bytes())
            found[place] = _leave_out(text, _absent_headers(text, folders))
            waiting += [(place, other) for other in _ANY_INCLUDE.findall(text)]
            break
    return found


def _absent_headers(text: str, folders: Sequence[str]) -> set[int]:
    """Returns the lines that include a header in angles which no folder has."""
    places = [*map(Path, folders), STANDARD, HIP_HEADERS]
    lines = enumerate(text.split("\n"), 1)
    named = ((number, _INCLUDE.match(line)) for number, line in lines)
    return {number for number, found in named if found and not any((place / found[1]).is_file() for place in places)}


def _leave_out(text: str, lines: set[int]) -> str:
    """Blanks the host's declarations that have these lines. Of its headers, only `std::size_t` is left."""
    starts = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
    wrong = [(starts[line - 1], starts[line]) for line in sorted(lines) if line < len(starts)]
    device = re.compile(rf"\b(?:{'|'.join([_ATTRIBUTES, *_macros(text)])})\b|\btexture\s*<")
    headers = {span for span in wrong if _INCLUDE.match(text, *span)}
    spans = list(headers)
    for first, end in _declarations(text):
        if not device.search(_without_comments(text[first:end])) and any(first < last and start < end for start, last in wrong):
            spans.append((first, end))
    for first, end in sorted(spans, reverse=True):
        left = "#include <cstddef>\n" if (first, end) in headers else _blank_declaration(text[first:end])
        text = text[:first] + left + text[end:]
    return text


def _blank_declaration(text: str) -> str:
    """Blanks a declaration, but its directives that choose lines or define macros: what follows it may need them."""
    blank, end = "", 0
    for kept in _CONDITION.finditer(_without_comments(text)):
        blank += re.sub(r"[^\n]", " ", text[end : kept.start()]) + text[kept.start() : kept.end()]
        end = kept.end()
    return blank + re.sub(r"[^\n]", " ", text[end:])


def _macros(text: str) -> list[str]:
    """Returns the names of macros that make a declaration one of the device."""
    found: list[str] = []
    for name, body in _DEFINITION.findall(text):
        if re.search("|".join([_ATTRIBUTES, *(rf"\b{known}\b" for known in found)]), body):
            found.append(name)
    return found


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0] in ('"C"', '"C++"') else re.sub(r"[^\n]", " ", found[0])


def _without_comments(text: str) -> str:
    """Blanks comments and literals, in which braces and words mean nothing, but a language after `extern`; lengths stay."""
    return _SKIPPED.sub(_blank, text)


def _declarations(text: str) -> Iterator[tuple[int, int]]:
    """Yields where declarations outside all functions and classes begin and end, those in namespaces too."""
    plain = _DIRECTIVE.sub(_blank, _without_comments(text))
    if plain.count("{") != plain.count("}"):  # two branches of an #if open a brace, and one closes it
        plain = _DIRECTIVE.sub(_blank, _first_branches(_without_comments(text)))
    start, depth = 0, 0
    opened = 0  # where the outermost brace is
    for found in re.finditer(r"[{}();]", plain):
        sign, at = found[0], found.start()
        if sign in "({":
            if depth == 0 and sign == "{" and _SPACE.match(plain[start:at]):
                start = at + 1
                continue
            opened = at if depth == 0 and sign == "{" else opened
            depth += 1
        elif sign in ")}" and depth:
            depth -= 1
            if sign == "}" and depth == 0 and _is_function(plain[start:opened]):
                yield _place_of(plain, start, at + 1)
                start = at + 1
        elif sign == "}":  # a namespace's
            start = at + 1
        elif sign == ";" and depth == 0:
            yield _place_of(plain, start, at + 1)
            start = at + 1


def _first_branches(text: str) -> str:
    """Blanks the lines from `#else` or `#elif` to `#endif`."""
    lines, left_out = text.split("\n"), [False]
    for index, line in enumerate(lines):
        word = line.strip().removeprefix("#").strip() if line.lstrip().startswith("#") else ""
        if word.startswith("if"):
            left_out.append(left_out[-1])
        elif word.startswith("el") and len(left_out) > 1:
            left_out[-1] = True
        elif word.startswith("endif") and len(left_out) > 1:
            left_out.pop()
        elif left_out[-1]:
            lines[index] = " " * len(line)
    return "\n".join(lines)


def _is_function(head: str) -> bool:
    """True if the text before a brace is a function's, not that of a class, a list of values or a lambda."""
    head, before = re.sub(r"\boperator\W*", "operator", head), ""
    while head != before:  # what is in parentheses and angles may have default values
        head, before = re.sub(r"\([^()]*\)", " @ ", re.sub(r"<[^<>()]*>", "", head)), head
    return "@" in head and "=" not in head


def _place_of(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns where a declaration begins, after space, and ends."""
    return start + len(text[start:end]) - len(text[start:end].lstrip()), end


def _instances(text: str) -> list[str]:
    """Returns the template instances that a program launches, each once."""
    plain = _without_comments(text)
    return list(dict.fromkeys("".join((one or other).split("\n")) for one, other in _LAUNCHES.findall(plain)))
