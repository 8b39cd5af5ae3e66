"""Kernels of whole HIP programs: what only the host needs is left out, and errors of kernels stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.tools.cases import host_parts
from simgpu.tools.cases.sources import HIP, compile
from simgpu.tools.cli import main
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compile_source

KERNEL = """__device__ float twice(float v) { return 2 * v; } /* a } in a comment, main's */
extern "C" __global__ void add(const float* x, float* y, int n) {
    __shared__ float s[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    if (i < n) y[i] += twice(s[(threadIdx.x + 1) % N]);
}
"""
PROGRAM = f"""#include <hip/hip_runtime.h>
#include <iostream>
#include <vector>
#include "own.h"
#define CHECK(x) do {{ hipError_t e = (x); if (e != hipSuccess) {{ std::cerr << "}}" << '"'; exit(1); }} }} while (0)
constexpr int N = 256;
struct Timer {{ hipEvent_t event; Timer() {{ hipEventCreate(&event); }} }};
namespace app {{
template <typename T, int M> __global__ void scale(T *y, const T *x, int n) {{
    int i = blockIdx.x * M + threadIdx.x;
    if (i < n) y[i] = 2 * x[i] + own();
}}
std::vector<float> ones(int n = 1, bool operator_ = N == 3) {{ return std::vector<float>(n, 1.0f); }}
}}
{KERNEL}static std::vector<int> table = {{1, 2, 3}};
extern "C" {{
static hipStream_t stream;
int main(int argc, char **argv) {{
    float *x, *y;
#ifdef ONE
    if (argc > 1) {{
#else
    if (argc > 2) {{
#endif
        CHECK(hipMalloc(&x, 400));
        add<<<dim3(1), dim3(128)>>>(x, y, 100);
        app::scale<float, N><<<1, N, 0, stream>>>(y, x, 100);
        hipLaunchKernelGGL(HIP_KERNEL_NAME(app::scale<double, 64>), dim3(1), dim3(64), 0, 0, nullptr, nullptr, 0);
    }}
    return 0;
}}
}}
"""
OWN = "#pragma once\n#include <chrono>\n__device__ inline float own() { return 1; }\nstd::chrono::seconds waited;\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "own.h").write_text(OWN)
    file = tmp_path / "program.hip"
    file.write_text(PROGRAM)
    return file


def test_a_program_s_kernels_and_launched_instances(program: Path) -> None:
    found = set(CodeObject.parse(compile(str(program), "mi300x")).kernels)
    assert found == {"add", "_ZN3app5scaleIfLi256EEEvPT_PKS1_i", "_ZN3app5scaleIdLi64EEEvPT_PKS1_i"}


def test_lint_and_check_keep_the_program_s_lines(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(program), "--target", "mi300x"]) == 0
    given = ["--grid", "1", "--block", "256", "--arg", "count:f32:256", "--arg", "zeros:f32:256", "--arg", "i32:256"]
    assert main(["check", str(program), "--target", "mi300x", "--kernel", "add", *given]) == 1
    line = PROGRAM[: PROGRAM.index("if (i < n) y[i] += twice")].count("\n") + 1
    said = capsys.readouterr().out
    assert "race" in said and f"(program.hip:{line})" in said


@pytest.mark.parametrize(("wrong", "said"), [
    ("__global__ void broken(int *x) { missing(x); }", "undeclared identifier 'missing'"),
    ("#define KERNEL __global__ void\n#define MINE KERNEL\nMINE broken(int *x) { missing(x); }", "undeclared identifier 'missing'"),
    ("struct Pair { __device__ int sum() { return missing; } };", "undeclared identifier 'missing'"),
    ('#include "absent.h"', "'absent.h' file not found"),
    ("__global__ void broken(std::vector<int> x) {}", "incomplete type"),
])  # fmt: skip
def test_errors_of_kernels_stay(wrong: str, said: str, program: Path) -> None:
    program.write_text(f"{PROGRAM}\n{wrong}\n")
    with pytest.raises(UsageError, match="error") as error:
        compile(str(program), "mi300x")
    assert said in str(error.value)


def test_an_instance_that_does_not_exist_is_left_out(program: Path) -> None:
    dependent = "template <typename T> void run(T *y) { app::scale<T, 1><<<1, 1>>>(y, y, 1); }"
    program.write_text(PROGRAM.replace("static std", f"{dependent}\nstatic std"))
    assert len(CodeObject.parse(compile(str(program), "mi300x")).kernels) == 3


REFERENCE = "#include <vector>\nvoid reference(std::vector<float> &y) { for (auto &v : y) v = expf(v); }\n#define TIMES 3\n"


@pytest.mark.parametrize(("place", "name", "options"), [
    ("include/reference.h", "reference.h", ["-I{}/include"]),
    ("include/deep/reference.h", "deep/all.h", ["-I{}/include"]),
    ("beside/reference.h", "../beside/reference.h", []),
    ("beside/reference.h", "../beside/all.h", []),
])  # fmt: skip
def test_headers_of_other_folders(place: str, name: str, options: list[str], tmp_path: Path) -> None:
    """Host parts of headers that -I or a header beside them finds are left out, too."""
    for folder in ("sources", "include/deep", "beside"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / place).write_text(REFERENCE)
    (tmp_path / "include" / "deep" / "all.h").write_text('#include "reference.h"\n')
    (tmp_path / "beside" / "all.h").write_text('#include "../beside/reference.h"\n')
    file = tmp_path / "sources" / "k.hip"
    kernel = "__global__ void k(int *y) { std::size_t at = threadIdx.x; y[at] = TIMES; }"
    file.write_text(f'#include <iostream>\n#include "{name}"\n{kernel}\nint main() {{ std::cout << TIMES; }}\n')
    code = compile(str(file), "mi300x", [option.format(tmp_path) for option in options])
    assert list(CodeObject.parse(code).kernels) == ["_Z1kPi"]


def test_a_header_in_no_folder(program: Path) -> None:
    program.write_text('#include "elsewhere.h"\n' + PROGRAM)
    with pytest.raises(UsageError, match=r"'elsewhere\.h' file not found; --options=-IFOLDER names its folder$"):
        compile(str(program), "mi300x")


@pytest.mark.parametrize("absent", ["hipcub/hipcub.hpp", "rocwmma/rocwmma.hpp"])
def test_a_library_s_header_in_no_folder(absent: str, program: Path) -> None:
    library = absent.partition("/")[0]
    program.write_text(f"#include <{absent}>\n__global__ void k(int *x) {{ using reduce = {library}::thing; }}\n{PROGRAM}")
    with pytest.raises(UsageError, match=f"'{library}'; <{absent}> is not here: --options=-IFOLDER names its folder$"):
        compile(str(program), "mi300x")


@pytest.mark.parametrize("how", ["float, 1", "float, 2, cudaReadModeElementType"])
def test_a_texture_s_declaration_is_what_is_wrong(program: Path, how: str) -> None:
    program.write_text(f"{PROGRAM}texture<{how}> t;\n__global__ void k(float *x) {{ *x = tex1Dfetch(t, 1); }}\n")
    with pytest.raises(UsageError, match="MI300 and MI350 have no textures"):
        compile(str(program), "mi300x")


def test_a_host_function_with_two_heads(program: Path) -> None:
    """Directives that choose lines or define macros stay."""
    heads = "#ifdef FORTRAN\ndouble now_()\n#else\ndouble now()\n#endif\n{\n#define EIGHT 8\n  timeval t; return t.tv_sec;\n}\n"
    program.write_text(PROGRAM.replace(KERNEL, heads + KERNEL.replace("1) % N", "EIGHT) % N")))
    assert "add" in CodeObject.parse(compile(str(program), "mi300x")).kernels


def test_absent_headers_cost_one_compilation(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []
    monkeypatch.setattr(host_parts, "compile_source", lambda source: (sources.append(source), compile_source(source))[1])
    names = [f"{name}.h" for name in "abcdefghijklmnop"]
    program.write_text("".join(f"#include <host/{name}>\n" for name in names) + PROGRAM)
    compile(str(program), "mi300x")
    assert len(sources) < len(names) / 2


def test_headers_that_include_others_cost_one_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's headers include each other from their folders; each would be missing in a compilation of its own."""
    library, count = tmp_path / "library", 2 * host_parts.ROUNDS
    for number in range(count):
        place = library / f"part{number}"
        place.mkdir(parents=True)
        after = f'#include "../part{number + 1}/part.h"' if number + 1 < count else "inline __device__ int last() { return 7; }"
        (place / "part.h").write_text(f"#pragma once\n// #include <iostream>\n{after}\n")
    (tmp_path / "k.hip").write_text("#include <part0/part.h>\n__global__ void k(int *x) { *x = last(); }\n")
    sources = []
    monkeypatch.setattr(host_parts, "compile_source", lambda source: (sources.append(source), compile_source(source))[1])
    assert CodeObject.parse(compile(str(tmp_path / "k.hip"), "mi300x", [f"-I{library}"])).kernels
    assert len(sources) == 2


@pytest.mark.parametrize("suffix", HIP)
def test_sources_and_headers_in_latin_1(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"k{suffix}"
    (tmp_path / "own.h").write_bytes(b"// \xa9 1999 \\\r\n#error a comment\r\n")
    kernel = b'#include "own.h"\r\n__global__ void k(int *y) {\r\n    *y = 1;\r\n}\r\n'
    file.write_bytes((tmp_path / "own.h").read_bytes() + kernel)
    assert list(CodeObject.parse(compile(str(file), "mi300x")).kernels) == ["_Z1kPi"]


def test_mathematical_constants_and_cuda_s_headers_need_nothing(tmp_path: Path) -> None:
    """hipcc includes <cmath> in every source; "cuda.h" in quotes is left out, as in angles, unless a folder has it."""
    text = """#include "cuda.h"
#include <cuda_runtime.h>
extern "C" __global__ void turn(float *x) { x[threadIdx.x] *= (float)(M_PI * M_SQRT1_2) ADDED; }
int main() { cudaMalloc(0, 4); }
"""
    source = tmp_path / "turn.cu"
    source.write_text("#define ADDED\n" + text)
    assert CodeObject.parse(compile(str(source), "gfx942")).kernels.keys() == {"turn"}
    (tmp_path / "cuda.h").write_text("#define ADDED + undeclared\n")
    source.write_text(text)
    with pytest.raises(UsageError, match="undeclared"):
        compile(str(source), "gfx942")
