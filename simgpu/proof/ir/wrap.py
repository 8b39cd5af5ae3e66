"""A kernel around a device function: it loads the function's arguments, calls it and stores the result."""

from __future__ import annotations

import re

from simgpu.proof.ir.syntax import Function, Parameter, Unreadable

CALLABLE = ("ccc", "fastcc", "coldcc", "amdgpu_gfx", "spir_func")
SUFFIX = ".kernel"
IDS = "@llvm.amdgcn.workitem.id.x"


def with_kernel(text: str, function: Function) -> str:
    """Returns a module's text, as LLVM prints it, with a kernel that calls a function of it on each work-item's arguments.

    Pointers are the kernel's arguments, the same for each work-item; other arguments are in a struct, and the result is stored to
    memory. Raises Unreadable for a function that cannot be called so.

    >>> from simgpu.proof.ir.read import read_ir
    >>> module = read_ir("define i8 @f(i8 %a) {\\n ret i8 %a\\n}")
    >>> print(with_kernel(module.text, module.functions["@f"]).count("call i8 @f(i8 %a0)"))
    1
    """
    if function.convention not in CALLABLE:
        raise Unreadable(f"a function of calling convention {function.convention}")
    for each in function.parameters:
        if each.byref is not None or each.type.kind == "other" or (each.type.kind == "ptr" and each.type.space not in (0, 1, 4)):
            raise Unreadable(f"a parameter of type {each.type}{' by reference' if each.byref is not None else ''}")
    lines = text.splitlines()
    if not re.search(r"\b(noinline|optnone|alwaysinline)\b", function.attributes):
        lines = [_inlined(line) if line.startswith("define ") and f" {function.name}(" in line else line for line in lines]
    declared = "" if IDS in text else f"declare i32 {IDS}()\n"
    return "\n".join(lines) + "\n" + declared + _kernel(function)


def kernel_name(function: Function) -> str:
    """Returns the name of a function's kernel."""
    return f"{function.title}{SUFFIX}"


def _inlined(line: str) -> str:
    """Returns the function's first line with the attribute alwaysinline."""
    end = _closing(line)
    return f"{line[:end]} alwaysinline{line[end:]}"


def _closing(line: str) -> int:
    """Returns the place after the parameters."""
    depth = 0
    for at in range(line.index("(", line.index(" @")), len(line)):
        depth += (line[at] == "(") - (line[at] == ")")
        if not depth:
            return at + 1
    return len(line)


def _kernel(function: Function) -> str:
    values = [each for each in function.parameters if each.type.kind != "ptr"]
    pointers = [(at, each) for at, each in enumerate(function.parameters) if each.type.kind == "ptr"]
    taken = ["ptr addrspace(1) %in", "ptr addrspace(1) %out", *(f"{_declared(each)} %a{at}" for at, each in pointers)]
    fields = "{ " + ", ".join(str(each.type) for each in values) + " }"
    lines = [f"  %lane = call i32 {IDS}()"]
    field = 0
    for at, each in enumerate(function.parameters):
        if each.type.kind != "ptr":
            lines.append(f"  %p{at} = getelementptr {fields}, ptr addrspace(1) %in, i32 %lane, i32 {field}")
            lines.append(f"  %a{at} = load {each.type}, ptr addrspace(1) %p{at}")
            field += 1
    arguments = ", ".join(f"{each.type} %a{at}" for at, each in enumerate(function.parameters))
    convention = "" if function.convention == "ccc" else f"{function.convention} "
    call = f"call {convention}{function.result} {function.name}({arguments})"
    if function.result.kind == "void":
        lines.append(f"  {call}")
    else:
        lines += [f"  %r = {call}", f"  %q = getelementptr {function.result}, ptr addrspace(1) %out, i32 %lane",
                  f"  store {function.result} %r, ptr addrspace(1) %q"]  # fmt: skip
    body = "\n".join((*lines, "  ret void"))
    name = f'"{kernel_name(function)}"'
    return f"define amdgpu_kernel void @{name}({', '.join(taken)}) {{\n{body}\n}}\n"


def _declared(parameter: Parameter) -> str:
    align = f" align {parameter.align}" if parameter.align > 1 else ""
    return f"{parameter.type}{align}"
