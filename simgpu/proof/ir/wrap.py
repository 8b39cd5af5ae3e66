"""A kernel around a device function: it loads the function's arguments, calls it and stores the result."""

from __future__ import annotations

import re

from simgpu.proof.ir.syntax import Function, IrParameter, Unreadable

CALLABLE = ("ccc", "fastcc", "coldcc", "amdgpu_gfx", "spir_func")
SHADERS = ("amdgpu_ps", "amdgpu_vs", "amdgpu_gs", "amdgpu_cs", "amdgpu_es", "amdgpu_hs", "amdgpu_ls")  # become plain functions
SPACES = (0, 1, 3, 4, 8)  # of pointers that a kernel takes
MODES = re.compile(r'"(amdgpu-ieee|amdgpu-dx10-clamp|denormal-fp-math[-\w]*)"="[^"]*"')  # attributes that set the MODE register
PRIVATE = "<16 x i32>"  # what a pointer to private memory points to
SUFFIX = ".kernel"
IDS = "@llvm.amdgcn.workitem.id.x"


DECLARED = re.compile(
    r"^(?P<name>@\S+) = external (?P<how>(?:\w+ )*?)(?P<space>addrspace\(\d+\) )?(?P<kind>global|constant) (?P<type>.*)$",
    re.MULTILINE,
)


def with_kernel(text: str, function: Function) -> str:
    """Returns a module's text, as LLVM prints it, with a kernel that calls a function of it on each work-item's arguments.

    Pointers are arguments of the kernel, the same for each work-item; private memory is copied from and to a buffer. `inreg` values
    are in a struct in constant memory, the same for each work-item as well. Other arguments are in a struct for each work-item, and
    the result is stored to memory. A shader becomes a plain function. Raises Unreadable for a function that cannot be called so.

    >>> from simgpu.proof.ir.read import read_ir
    >>> module = read_ir("define i8 @f(i8 %a) {\\n ret i8 %a\\n}")
    >>> print(with_kernel(module.text, module.functions["@f"]).count("call i8 @f(i8 %a0)"))
    1
    """
    if function.convention not in (*CALLABLE, *SHADERS):
        raise Unreadable(f"a function of calling convention {function.convention}")
    for each in function.parameters:
        if each.byref is not None or each.type.kind == "other" or (each.type.kind == "ptr" and each.type.space not in (*SPACES, 5)):
            raise Unreadable(f"a parameter of type {each.type}{' by reference' if each.byref is not None else ''}")
    lines = text.splitlines()
    inlined = not re.search(r"\b(noinline|optnone|alwaysinline)\b", function.attributes)
    at = next(at for at, line in enumerate(lines) if line.startswith("define ") and f" {function.name}(" in line)
    lines[at] = _plain(lines[at], function, inlined)
    declared = "" if IDS in text else f"declare i32 {IDS}()\n"
    return "\n".join(lines) + "\n" + declared + _kernel(function)


def kernel_name(function: Function) -> str:
    """Returns the name of a function's kernel."""
    return f"{function.title}{SUFFIX}"


def _plain(line: str, function: Function, inlined: bool) -> str:
    """Returns the function's first line, of a shader without its convention. inlined: with the attribute alwaysinline."""
    if function.convention in SHADERS:
        line = line.replace(f" {function.convention} ", " ", 1)
    end = closing(line)
    return f"{line[:end]} alwaysinline{line[end:]}" if inlined else line


def closing(line: str) -> int:
    """Returns the place after the parameters in a function's first line."""
    depth = 0
    for at in range(line.index("(", line.index(" @")), len(line)):
        depth += (line[at] == "(") - (line[at] == ")")
        if not depth:
            return at + 1
    return len(line)


def _kernel(function: Function) -> str:
    pointers = [(at, each) for at, each in enumerate(function.parameters) if each.type.kind == "ptr"]
    values = [(at, each) for at, each in enumerate(function.parameters) if each.type.kind != "ptr"]
    uniform = [one for one in values if "inreg" in one[1].attributes]
    private = [at for at, each in pointers if each.type.space == 5]
    taken = ["ptr addrspace(1) %in", "ptr addrspace(1) %out"]
    taken += [f"ptr addrspace(1) %b{at}" if at in private else f"{_declaration(each)} %a{at}" for at, each in pointers]
    lines = [f"  %lane = call i32 {IDS}()"]
    lines += _loads([one for one in values if one not in uniform], "ptr addrspace(1) %in", "%lane")
    if uniform:
        taken.append("ptr addrspace(4) %uniform")
        lines += _loads(uniform, "ptr addrspace(4) %uniform", "0")
    for at in private:
        lines += [f"  %a{at} = alloca {PRIVATE}, align 64, addrspace(5)",
                  f"  %p{at} = getelementptr {PRIVATE}, ptr addrspace(1) %b{at}, i32 %lane",
                  f"  %c{at} = load {PRIVATE}, ptr addrspace(1) %p{at}",
                  f"  store {PRIVATE} %c{at}, ptr addrspace(5) %a{at}"]  # fmt: skip
    arguments = ", ".join(f"{each.type} %a{at}" for at, each in enumerate(function.parameters))
    convention = "" if function.convention in ("ccc", *SHADERS) else f"{function.convention} "
    call = f"call {convention}{function.result} {function.name}({arguments})"
    if function.result.kind == "void":
        lines.append(f"  {call}")
    else:
        lines += [f"  %r = {call}", f"  %q = getelementptr {function.result}, ptr addrspace(1) %out, i32 %lane",
                  f"  store {function.result} %r, ptr addrspace(1) %q"]  # fmt: skip
    for at in private:
        lines += [f"  %d{at} = load {PRIVATE}, ptr addrspace(5) %a{at}", f"  store {PRIVATE} %d{at}, ptr addrspace(1) %p{at}"]
    body = "\n".join((*lines, "  ret void"))
    name = f'"{kernel_name(function)}"'
    modes = "".join(f" {each[0]}" for each in MODES.finditer(function.attributes))
    return f"define amdgpu_kernel void @{name}({', '.join(taken)}){modes} {{\n{body}\n}}\n"


def _loads(values: list[tuple[int, IrParameter]], pointer: str, index: str) -> list[str]:
    """Returns lines that load the fields of a struct as arguments."""
    fields = "{ " + ", ".join(str(each.type) for _, each in values) + " }"
    lines = []
    for field, (at, each) in enumerate(values):
        lines.append(f"  %p{at} = getelementptr {fields}, {pointer}, i32 {index}, i32 {field}")
        lines.append(f"  %a{at} = load {each.type}, {pointer.partition(' %')[0]} %p{at}")
    return lines


def _declaration(parameter: IrParameter) -> str:
    align = f" align {parameter.align}" if parameter.align > 1 else ""
    return f"{parameter.type}{align}"


def with_variables(text: str) -> str:
    """Returns a module that defines the global variables which it only declares, so that its code can be linked.

    A weak definition may be replaced by another one, so the compiler assumes nothing about its content.

    >>> with_variables("@x = external addrspace(1) global { i32, i8 }, align 4")
    '@x = weak addrspace(1) global { i32, i8 } zeroinitializer, align 4'
    """
    return DECLARED.sub(_define, text)


def _define(found: re.Match[str]) -> str:
    space, type_ = found["space"] or "", found["type"]
    end, depth = len(type_), 0
    for at, letter in enumerate(type_):
        depth += letter in "[{<("
        depth -= letter in ")>}]"
        if letter == "," and not depth:
            end = at
            break
    if space == "addrspace(3) " or type_.startswith("%"):  # LDS of a launch's size; a type that may be opaque
        return found[0]
    return f"{found['name']} = weak {found['how']}{space}{found['kind']} {type_[:end]} zeroinitializer{type_[end:]}"
