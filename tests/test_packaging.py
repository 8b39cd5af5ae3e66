"""Installation: the wheel's content, the command from an environment that has nothing else, one version."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from simgpu.version import VERSION
from tests.support.places import PYTHON_PATH, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SIZES = ("-m", "40", "-n", "33", "-k", "21")


def python(*arguments: str | Path, at: Path | str = sys.executable, cwd: Path | None = None) -> str:
    """Returns the standard output of a Python command that succeeds; this process's additions to the path stay out."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SIMGPU_CLANG")}
    done = subprocess.run([at, *arguments], cwd=cwd, env=outside, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the files of git, so that no stray file gets into the wheel, and the build leaves none in the checkout."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: nothing says which files are the project's")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel by the setuptools that is here if it is new enough, else by one that pip fetches."""
    folder = tmp_path_factory.mktemp("wheel")
    alone = int(importlib.metadata.version("setuptools").partition(".")[0]) >= 68
    how = ["--no-build-isolation", "--no-index"] if alone else []
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", *how, "-q", "-w", folder, source]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("setuptools is older than 68 here, and no index has another")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def environment(folder: Path) -> Path:
    """Returns the Python of an empty environment, without pip, which takes as long to install as all else."""
    venv.create(folder)
    return folder / "bin" / "python"


def install(at: Path, *arguments: str | Path) -> None:
    """Installs into an environment, by this environment's pip."""
    python("-m", "pip", "--python", at, "install", "-q", *arguments)


def check_command(at: Path, cwd: Path) -> None:
    """Asserts that the installed command prints its version and runs a kernel, from a folder without the sources."""
    command = at.parent / "simgpu"
    assert command.is_file()
    said = python(command, "--version", at=at, cwd=cwd).splitlines()
    assert said[0] == f"simgpu {VERSION}" and "clang version" in said[1] and re.search(r"Python 3\.\d+", said[2])
    assert python(command, "run", "gemm", *SIZES, at=at, cwd=cwd).endswith("PASS\n")
    where = python("-c", "import simgpu; print(simgpu.__file__)", at=at, cwd=cwd)
    assert Path(where.strip()).is_relative_to(at.parent.parent)


def test_the_wheel_holds_the_packages_and_no_tests(wheel: Path) -> None:
    assert wheel.name == f"simgpu-{VERSION}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"simgpu", f"simgpu-{VERSION}.dist-info"}
    assert "simgpu/py.typed" in names
    assert {name for name in names if name.startswith("simgpu/docs/")} == {
        f"simgpu/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "notes"
    }
    page = ROOT / "tools" / "page"
    drawn = {path.relative_to(page).as_posix() for path in page.rglob("*") if path.suffix in (".css", ".js")}
    assert drawn and {f"simgpu/tools/page/{name}" for name in drawn} <= set(names)
    made = {name for name in names if name.endswith(".py")}
    assert made == {
        f"{folder}/{path.name}"
        for folder in (package.replace(".", "/") for package in PROJECT["tool"]["setuptools"]["packages"])
        for path in (ROOT / folder).glob("*.py")
    }
    assert not [name for name in made if re.match("simgpu/tools/(benchmarks|robustness|style)/", name)]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a Python with the wheel. A .pth gives it this environment's dependencies, but not the project."""
    folder = tmp_path_factory.mktemp("env")
    at = environment(folder)
    install(at, "--no-deps", "--no-index", wheel)
    (site,) = (folder / "lib").glob("python*/site-packages")
    here = {str(Path(path).resolve()) for path in sys.path if path.endswith("site-packages")}
    (site / "dependencies.pth").write_text("\n".join(sorted(here)) + "\n")
    return at


def test_the_wheel_in_an_environment_with_nothing_but_its_dependencies(installed: Path, tmp_path: Path) -> None:
    check_command(installed, tmp_path)


@pytest.mark.slow
def test_the_wheel_times_kernels_and_leaves_the_goals_to_a_checkout(installed: Path, tmp_path: Path) -> None:
    command = [installed, "-m", "simgpu", "bench"]
    table = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert table.returncode == 2 and "from a checkout" in table.stderr
    assert "--corpus" not in python(*command[1:], "--help", at=installed, cwd=tmp_path)
    assert "median" in python(*command[1:], "gemm", "-m", "16", "-n", "16", "-k", "16", at=installed, cwd=tmp_path)


def test_a_checkout_that_is_not_installed(installed: Path, tmp_path: Path) -> None:
    """A checkout's links replace the folders; this environment's wheel does not."""
    links = {path.name for path in (ROOT / "simgpu").iterdir() if path.is_symlink()}
    assert links == {"asm", "docs", "hardware", "operators", "tools"}
    program = "import simgpu, simgpu.tools.cli as cli; print(simgpu.asm.__file__); cli.main(['layout', 'v_mfma_f32_16x16x4f32'])"
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    done = subprocess.run([installed, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.splitlines()[0]).is_relative_to(ROOT) and "v_mfma_f32_16x16x4f32" in done.stdout


@pytest.mark.exhaustive
def test_a_project_with_folders_of_our_names(installed: Path, tmp_path: Path) -> None:
    """Tests of such a project import its own `tools`, `asm`, `hardware` and `operators`, and ours below `simgpu`; pytest loads
    our plugin."""
    names = ("tools", "asm", "hardware", "operators")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'the project {name}'\n")
    (tmp_path / "test_it.py").write_text(
        f"import {', '.join(names)}\nimport simgpu\nfrom simgpu import asm as ours, hardware as chips\n"
        "def test_both():\n"
        f"    assert [m.OWNER for m in ({', '.join(names)})] == {[f'the project {name}' for name in names]}\n"
        "    assert chips.target('mi300x').arch == 'gfx942' and ours.emit and simgpu.Device('mi100')\n"
    )
    said = python("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, at=installed, cwd=tmp_path)
    assert "1 passed" in said
    assert "--simgpu TARGET" in " ".join(python("-m", "pytest", "--help", at=installed, cwd=tmp_path).split()).replace("=", " ")


@pytest.mark.packaging
@pytest.mark.skipif(
    not os.environ.get("SIMGPU_TEST_PACKAGING"),
    reason="fetches the dependencies (250 MB) twice and takes minutes: set SIMGPU_TEST_PACKAGING=1",
)
@pytest.mark.parametrize("what", ["pip install .", "the wheel"])
def test_from_an_empty_environment(what: str, source: Path, wheel: Path, tmp_path: Path) -> None:
    at = environment(tmp_path / "env")
    install(at, source if what == "pip install ." else wheel)
    check_command(at, tmp_path)


def test_the_version_is_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "simgpu.version.VERSION"}
    sources = [path for package in ("hardware", "operators", "asm", "simgpu", "tools") for path in (ROOT / package).rglob("*.py")]
    assert [path.name for path in sources if f'"{VERSION}"' in path.read_text()] == ["version.py"]
    assert re.search(rf"^## {re.escape(VERSION)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
