"""`simgpu lint`: errors on any path through a kernel's code, without a launch; prints nothing and returns 0 if it finds none."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from simgpu.checks.lint.causes import TOLERATED
from simgpu.engine.finding import Finding
from simgpu.hardware.targets import architecture
from simgpu.tools.cases.file_kernel import kernel_named
from simgpu.tools.cases.sources import FILE, add_compiler_option, read_code_object
from simgpu.tools.shared.console import add_json_option, print_json, show
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.known_findings import add_suppressions_option, read_suppressions, show_suppressed
from simgpu.tools.shared.launching import has_errors
from simgpu.tools.shared.outputs import add_force_option, claim, write
from simgpu.tools.shared.sarif import sarif

USAGE = """examples:
  simgpu lint k.co
  simgpu lint k.s --target mi300x
Status: 0 nothing found but notes, 1 findings, 2 a file that cannot be read or assembled.
Kinds of findings, and guarantees: simgpu help lint
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("file", metavar="FILE", help=FILE)
    parser.add_argument("--kernel", metavar="K", help="only this kernel (default: all)")
    parser.add_argument("--target", help="board or architecture of assembly, or the entry of a bundle")
    add_compiler_option(parser)
    parser.add_argument("--each", action="store_true", help="one finding for each pair of places (default: for each cause)")
    add_suppressions_option(parser)
    parser.add_argument("--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0, for code review tools")
    parser.add_argument("--verbose", action="store_true", help="print the kernels that were checked")
    add_force_option(parser)
    add_json_option(parser)


def run(options: Namespace) -> int:
    """Prints the findings; status 1 if any of them is an error."""
    from simgpu.checks.lint import lint_causes, lint_kernel

    claim([options.sarif], options.force)
    known = read_suppressions(options.suppressions)
    code = read_code_object(options.file, options.target, options.options)
    if options.target and architecture(options.target) != code.target:
        raise UsageError(f"{options.file} holds code for {code.target}, not for {options.target}: leave --target out")
    if not code.kernels:
        raise UsageError(f"{options.file} contains no kernel")
    names = list(code.kernels) if options.kernel is None else [kernel_named(code.kernels, options.kernel)]
    look = lint_kernel if options.each else lint_causes
    found = {name: known.left_of(look(code, code.kernels[name])) for name in names}
    findings = [finding for name in names for finding in found[name]]
    status = int(has_errors(findings))
    if options.sarif:
        write(options.sarif, (json.dumps(sarif(findings, options.file), indent=1) + "\n").encode(), options.force)
    if options.json:
        documents = [finding.document() for finding in findings]
        print_json({
            "linted": options.file, "kernels": names, "findings": documents, "suppressed": dict(known.used), "status": status,
        })  # fmt: skip
        return status
    for finding in findings:
        show(_line(finding) if finding.rule in TOLERATED and not options.each else str(finding))
    if options.verbose:
        for name in names:
            count = sum(finding.pairs for finding in found[name])
            show(f"{code.kernels[name].title}: " + ("nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}"))
    show_suppressed(known.used)
    return status


def _line(finding: Finding) -> str:
    """Formats a finding of a rule that shipped kernels break everywhere: the first pair of places, and the number of pairs."""
    places = f"{finding.pairs} pairs of places, the first at" if finding.pairs > 1 else "at"
    where = f"{places} {finding.at} `{finding.text}`"
    return f"{finding.severity}: {finding.kind}: {finding.rule}: {where} (shipped kernels break this rule everywhere)"
