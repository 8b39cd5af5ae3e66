"""Files of the cache: it finds only its own, and refuses, with a message, files that another user could have put there."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simgpu.hardware import cache
from simgpu.hardware.cache import CacheRefused, Folder
from tests.support.places import PYTHON_PATH

OTHER = 65534  # nobody
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
CONTENT = bytes(range(256)) * 5


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the cache's folder, below folders that pass."""
    assert not _refusal(tmp_path, monkeypatch), "pytest's own folder must be the user's"
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _refusal(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the warning of a cache at `place`. It stores something if and only if it does not warn."""
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(place))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder = Folder("things")
    folder.store("name", CONTENT)
    said = [str(one.message) for one in caught if one.category is CacheRefused]
    assert len(said) <= 1 and (folder.load("name") == CONTENT) is not bool(said)
    return "".join(said)


def _names(folder: Path) -> list[str]:
    """Returns the names of a folder's files, without the mark of the last look for unread ones."""
    return sorted({path.name for path in folder.iterdir()} - {".tidied"})


def test_what_is_kept_is_found_by_any_later_process(base: Path) -> None:
    Folder("things").store("name", CONTENT)
    assert Folder("things").load("name") == CONTENT and Folder("things").load("other") is None
    assert Folder("others").load("name") is None
    Folder("things").store("name", b"")
    assert Folder("things").load("name") == b""
    assert _names(base / "things") == ["name"]  # no half-written file next to it


def test_what_several_want_at_once_is_made_once(base: Path) -> None:
    made = []

    def want() -> bytes:
        folder = Folder("things")  # a separate object, like another process's
        with folder.made_once("name"):
            found = folder.load("name")
            if found is None:
                time.sleep(0.05)
                made.append(1)
                folder.store("name", CONTENT)
                found = CONTENT
        return found

    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(lambda _: want(), range(4))} == {CONTENT}
    assert len(made) == 1
    assert _names(base / "things") == ["name"], "no lock is left"


def test_nobody_waits_for_itself_or_for_ever(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = Folder("things"), Folder("things")
    with other.made_once("theirs"), mine.made_once("name"):
        began = time.monotonic()
        with mine.made_once("name") as first, mine.made_once("theirs") as second, mine.made_once("theirs", wait=False) as third:
            assert (first, second, third) == (True, True, False)
        assert time.monotonic() - began < cache.LONGEST_WAIT / 2, "who holds one waits for none: two might wait for each other"
        with other.made_once("name", wait=False) as taken:
            assert not taken, "it is still held"
    monkeypatch.setattr(cache, "LONGEST_WAIT", 0.2)
    with other.made_once("theirs"), mine.made_once("theirs") as late:
        assert late
    assert not _names(base / "things"), "no lock is left"


def test_folders_and_files_are_the_users_alone(base: Path) -> None:
    before = os.umask(0)
    try:
        Folder("things").store("name", CONTENT)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (base, base / "things", base / "things" / "name")}
    assert modes == {"cache": 0o700, "things": 0o700, "name": 0o600}


def _bit(at: int) -> Callable[[bytes], bytes]:
    return lambda kept: kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda kept: b"",
    "no header": lambda kept: CONTENT,
    "cut in the header": lambda kept: kept[:20],
    "cut": lambda kept: kept[:-1],
    "longer": lambda kept: kept + b"\0",
    "digest of another content": lambda kept: kept[: len(cache.MAGIC) + cache.DIGEST_BYTES] + b"other",
    **{f"bit of byte {at}": _bit(at) for at in (0, len(cache.MAGIC), len(cache.MAGIC) + 31, len(cache.MAGIC) + 32, -2)},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_not_found_and_is_replaced(base: Path, damage: Callable[[bytes], bytes]) -> None:
    folder, path = Folder("things"), base / "things" / "name"
    folder.store("name", CONTENT)
    path.write_bytes(damage(path.read_bytes()))
    assert folder.load("name") is None
    folder.store("name", CONTENT)
    assert folder.load("name") == CONTENT


def test_two_names_of_a_placed_file_are_one_file(base: Path) -> None:
    folder = cache.Folder("tests")
    placed, linked = folder.place("a", b"content"), folder.link("b", "a")
    assert placed is not None and linked is not None and placed.samefile(linked) and linked.read_bytes() == b"content"
    linked.unlink()
    linked.write_bytes(b"content")  # a copy, as earlier versions placed it
    assert folder.link("b", "a") == linked and placed.samefile(linked) and folder.link("c", "missing") is None
    assert sorted(path.name for path in placed.parent.iterdir()) == ["a", "b"]


def test_a_file_does_not_pass_for_another(base: Path) -> None:
    folder = Folder("things")
    folder.store("name", CONTENT)
    os.rename(base / "things" / "name", base / "things" / "other")
    assert folder.load("other") is None


def test_what_is_no_file_of_the_users_is_not_read_and_is_replaced(base: Path, tmp_path: Path) -> None:
    folder, path = Folder("things"), base / "things" / "name"
    folder.store("name", CONTENT)
    good = path.read_bytes()

    def pipe() -> None:
        os.mkfifo(path)  # reading would wait for a writer

    def link() -> None:
        (tmp_path / "elsewhere").write_bytes(good)
        path.symlink_to(tmp_path / "elsewhere")

    def writable() -> None:
        path.write_bytes(good)
        path.chmod(0o666)

    def huge() -> None:
        path.touch()
        os.truncate(path, 1 << 40)

    for plant in (pipe, link, writable, huge):
        path.unlink()
        plant()
        assert folder.load("name") is None, plant.__name__
        folder.store("name", CONTENT)
        assert folder.load("name") == CONTENT and path.is_file() and not path.is_symlink(), plant.__name__


@as_root
def test_another_users_file_is_not_read(base: Path) -> None:
    folder, path = Folder("things"), base / "things" / "name"
    folder.store("name", CONTENT)
    os.chown(path, OTHER, -1)
    assert folder.load("name") is None
    folder.store("name", CONTENT)
    assert folder.load("name") == CONTENT and path.stat().st_uid == 0


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o707])
@pytest.mark.parametrize("place", ["cache/things", "cache", "."])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, mode: int) -> None:
    shared = tmp_path / place
    shared.mkdir(parents=True, exist_ok=True)
    shared.chmod(mode)
    said = _refusal(tmp_path / "cache", monkeypatch)
    assert f"other users may write the folder {shared} (mode {mode:04o})" in said and "Set SIMGPU_CACHE_DIR" in said
    shared.chmod(0o755)
    assert not _refusal(tmp_path / "cache", monkeypatch)


@as_root
def test_a_group_other_than_the_users_own_counts_as_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o775)
    assert not _refusal(tmp_path / "cache", monkeypatch)  # only root is in root's group
    os.chown(tmp_path / "cache", -1, OTHER)
    assert "other users may write" in _refusal(tmp_path / "cache", monkeypatch)


def test_a_sticky_folder_is_as_safe_as_what_lies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like /tmp: everybody may add to it, nobody may replace another's files."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    assert not _refusal(shared / "mine", monkeypatch) and not _refusal(shared, monkeypatch)
    (shared / "things").chmod(0o1777)
    assert "other users may write" in _refusal(shared, monkeypatch)


@as_root
@pytest.mark.parametrize("place", ["tmp/mine/things", "tmp/mine", "."])
def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (tmp_path / "tmp" / "mine" / "things").mkdir(parents=True)
    (tmp_path / "tmp").chmod(0o1777)
    os.chown(tmp_path / place, OTHER, -1)
    assert f"the folder {tmp_path / place} belongs to user" in _refusal(tmp_path / "tmp" / "mine", monkeypatch)


def test_links_are_followed_where_nobody_else_can_turn_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "disk" / "again").symlink_to("real/../real")
    (tmp_path / "cache").symlink_to(tmp_path / "disk" / "again")
    assert not _refusal(tmp_path / "cache" / "deep", monkeypatch)
    assert (tmp_path / "disk" / "real" / "deep" / "things" / "name").is_file()
    (tmp_path / "circle").symlink_to("circle")
    monkeypatch.setenv("SIMGPU_CACHE_DIR", str(tmp_path / "circle"))
    assert Folder("things").load("name") is None
    (tmp_path / "disk").chmod(0o777)
    assert f"may write the folder {tmp_path / 'disk'}" in _refusal(tmp_path / "cache" / "deep", monkeypatch)


@as_root
def test_another_users_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    os.chown(tmp_path / "link", OTHER, -1, follow_symlinks=False)
    assert f"the link {tmp_path / 'link'} belongs to user" in _refusal(tmp_path / "link", monkeypatch)


def test_a_folder_exchanged_after_the_look_changes_nothing(base: Path, tmp_path: Path) -> None:
    folder = Folder("things")
    folder.store("name", CONTENT)
    base.rename(tmp_path / "before")
    (base / "things").mkdir(parents=True)
    (base / "things" / "name").write_bytes(b"planted")
    assert folder.load("name") == CONTENT


RUN = """import warnings
warnings.simplefilter("always")
from tests.support.engine_kernel import execute
print(execute("gfx90a", "v_mov_b32 v1, 7", ["v1"])["v1"].tolist() == [7] * 64)
from simgpu.machine.jit import compiler
print(compiler().loaded, compiler().compiled)
"""


def _run(place: Path) -> tuple[list[str], str]:
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH, "SIMGPU_CACHE_DIR": str(place)}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.slow
def test_damaged_handlers_are_compiled_anew_and_a_shared_folder_costs_only_time(tmp_path: Path) -> None:
    (right, *_), said = _run(tmp_path / "cache")
    assert right == "True" and not said
    kept = [tmp_path / "cache" / "handlers" / name for name in _names(tmp_path / "cache" / "handlers")]
    assert len(kept) > 2
    for number, path in enumerate(kept):
        path.write_bytes((b"", path.read_bytes()[:-5], b"\x7fELF" + bytes(60))[number % 3])
    assert _run(tmp_path / "cache") == (["True", "0", str(len(kept))], "")
    assert _run(tmp_path / "cache") == (["True", str(len(kept)), "0"], "")
    tmp_path.chmod(0o777)
    (right, loaded, _), said = _run(tmp_path / "cache")
    assert (right, loaded) == ("True", "0") and "other users may write" in said


STORE = """
from simgpu.hardware.cache import Folder
folder, number = Folder("things"), 0
print("begun", flush=True)
while True:
    number += 1
    folder.store("name", bytes([number % 251]) * (1 << 20))
"""


@pytest.mark.slow
def test_a_process_killed_while_it_writes_leaves_a_whole_file(base: Path) -> None:
    rng = random.Random(1)
    Folder("things").store("name", bytes(1 << 20))
    for _ in range(8):
        command = [sys.executable, "-c", STORE]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": PYTHON_PATH}, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"begun\n"
            time.sleep(rng.random() / 50)
            writer.kill()
        held = Folder("things").load("name")
        assert held is not None and held == held[:1] * (1 << 20)
    Folder("things").store("name", CONTENT)
    assert Folder("things").load("name") == CONTENT


@pytest.mark.parametrize("runs", [2, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_first_runs_at_once(runs: int, tmp_path: Path) -> None:
    with ThreadPoolExecutor(runs) as pool:
        ended = [*pool.map(lambda _: _run(tmp_path / "cache"), range(runs))]
    assert {(right, said) for (right, *_), said in ended} == {("True", "")}
    assert {path.name for path in (tmp_path / "cache").rglob(".*")} == {".tidied"}, "neither a lock nor half a file is left"
    (right, _, compiled), _ = _run(tmp_path / "cache")
    assert (right, compiled) == ("True", "0"), "the next run finds all that they made"


def test_files_that_nobody_reads_are_removed(base: Path) -> None:
    """A file stays for 60 days after it was last read; a process looks when it stores something, once a week."""
    folder = Folder("things")
    for name in ("read", "unread", "new"):
        folder.store(name, CONTENT)
    files, ago = base / "things", time.time() - cache.UNREAD - 1
    for name in ("read", "unread"):
        os.utime(files / name, (ago, ago))
    assert Folder("things").load("read") == CONTENT
    Folder("things").store("more", CONTENT)
    assert Folder("things").load("new") == CONTENT and (files / "unread").exists(), "it looked less than a week ago"
    os.utime(files / ".tidied", (ago, ago))
    (files / "folder").mkdir()
    os.utime(files / "folder", (ago, ago))
    os.symlink(base, files / "link")
    Folder("things").store("last", CONTENT)
    assert _names(files) == ["folder", "last", "link", "more", "new", "read"]
