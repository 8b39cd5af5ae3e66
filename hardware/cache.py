"""Files kept between runs in the user's cache. Any of them may be deleted at any time, and each is verified before use.

A file that nobody reads for `UNREAD` is removed, so that the code of old versions does not stay for ever.

Some are machine code. So a folder of the cache is used only if nobody except root and the user can change it or any folder
above it, and a file only if nobody else can write it. The content is compared with its digest before it is used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

MAGIC = b"simgpu cache 1\n"
DIGEST_BYTES = 32  # SHA-256
LARGEST = 1 << 26  # most bytes of a file: the largest kernel here has 2 MB of code
LONGEST_WAIT, LOOK = 20.0, 0.01  # most seconds of waiting for another process that makes a file, and between looks
AHEAD = "SIMGPU_AHEAD"  # environment variable: with 0, no process in the background compiles handlers ahead
DAY = 86400.0  # seconds
UNREAD, BETWEEN = 60 * DAY, 7 * DAY  # seconds after which an unread file is removed, and between looks for such files
LINKS = 40  # most symbolic links in a path, as in Linux

# Flags that the system may lack. Windows protects a user's cache from others by access lists.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# to pass through a folder that cannot be listed
PASS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | NO_LINK


def digest_of(files: Iterable[Path]) -> bytes:
    """Returns the SHA-256 of the files' contents, one after another: it names what these sources make.

    >>> digest_of([]).hex()[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.digest()


def _lock(file: int, seconds: float) -> bool:
    """True if no other process has the file locked, after at most `seconds`; locks it if the system can."""
    try:
        import fcntl
    except ImportError:
        return True
    ends = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= ends:
                return False
            time.sleep(LOOK)
        except OSError:
            return True


class CacheRefused(RuntimeWarning):
    """Warning: another user could change the cache, so it is not used."""


class Folder:
    """Folder `kind` in `SIMGPU_CACHE_DIR`, or in `simgpu` in the user's cache directory; created if it is missing.

    If it cannot be used, `load` finds nothing and `store` does nothing, which only costs time. If it is unsafe, a warning gives
    the reason.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._at: int | None = None  # the folder, held open: another folder may take its path
        self._held = set[str]()  # names of files that this process is making
        self._tidy = False  # True once this process has looked for unread files
        try:
            self._path = _place(kind)
            if hasattr(os, "geteuid"):
                self._at = _open_folder(self._path)
                weakref.finalize(self, os.close, self._at)
            else:
                self._path.mkdir(parents=True, exist_ok=True)
            self._usable = True
        except _FolderRefused as why:
            self._usable = False
            warnings.warn(f"simgpu: nothing is cached: {why}. {_ADVICE}", CacheRefused, stacklevel=1)
        except (OSError, RuntimeError):  # RuntimeError: the user has no home
            self._usable = False

    @property
    def path(self) -> Path | None:
        """Path of the folder with the files, None if it is not used."""
        return self._path if self._usable else None

    def load(self, name: str) -> bytes | None:
        """Returns the content of a file, or None if it is missing, damaged, of another name, or writable by others."""
        if not self._usable:
            return None
        try:
            # Does not wait if the name is a pipe's.
            found = os.open(self._name(name), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | NO_LINK, dir_fd=self._at)
            with os.fdopen(found, "rb") as file:
                status = os.fstat(found)
                if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST or _changeable(status):
                    return None
                kept = file.read(LARGEST + 1)
                if time.time() - status.st_mtime > DAY:
                    with contextlib.suppress(OSError):
                        os.utime(found if os.utime in os.supports_fd else self._name(name))  # read today: it stays
        except OSError:
            return None
        content = kept[len(MAGIC) + DIGEST_BYTES :]
        return content if kept == self._pack(name, content) else None

    def store(self, name: str, content: bytes) -> None:
        """Keeps a file, whole or not at all; it replaces another with this name. A failure only costs time."""
        if self._usable:
            self._write(name, self._pack(name, content))
            if not self._tidy:
                self._tidy = True
                with contextlib.suppress(OSError):
                    self._remove_unread()

    def _remove_unread(self) -> None:
        """Removes files that were not read for UNREAD, once in BETWEEN. The time of the file `.tidied` is that of the last look."""
        now, mark = time.time(), self._name(".tidied")
        with contextlib.suppress(FileNotFoundError):
            if now - os.stat(mark, dir_fd=self._at, follow_symlinks=False).st_mtime < BETWEEN:
                return
        self._write(".tidied", b"")
        with os.scandir(self._path if self._at is None else self._at) as entries:
            old = [
                entry.name
                for entry in entries
                if entry.is_file(follow_symlinks=False) and now - entry.stat(follow_symlinks=False).st_mtime > UNREAD
            ]
        for name in old:
            with contextlib.suppress(OSError):
                os.unlink(self._name(name), dir_fd=self._at)

    def _write(self, name: str, data: bytes) -> bool:
        """Replaces a file by one of these bytes; True on success."""
        scratch = f".{name}.{os.urandom(8).hex()}"
        try:
            made = os.open(self._name(scratch), os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600, dir_fd=self._at)
            try:
                with os.fdopen(made, "wb") as file:
                    file.write(data)
                os.replace(self._name(scratch), self._name(name), src_dir_fd=self._at, dst_dir_fd=self._at)
                return True
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(self._name(scratch), dir_fd=self._at)
        except OSError:
            pass
        return False

    @contextlib.contextmanager
    def made_once(self, name: str, wait: bool = True) -> Iterator[bool]:
        """Locks a file's name around a `with` block that loads the file, or makes and stores it.

        One process runs the block at a time, so the next one finds the file. It yields True, or False if another process runs the
        block and `wait` is False. A process waits for at most LONGEST_WAIT seconds, and not at all while it has another file of
        this folder locked, so that no two processes wait for each other. If the system cannot lock files, nobody waits, and
        several processes may make the file.
        """
        lock = f".{name}.lock"
        try:
            made = os.open(self._name(lock), os.O_RDWR | os.O_CREAT | NO_LINK, 0o600, dir_fd=self._at) if self._usable else -1
        except OSError:
            made = -1
        if made < 0:
            yield True
            return
        if not _lock(made, LONGEST_WAIT if wait and not self._held else 0.0):
            os.close(made)
            yield wait
            return
        self._held.add(name)
        try:
            yield True
        finally:
            self._held.discard(name)
            with contextlib.suppress(OSError):
                os.unlink(self._name(lock), dir_fd=self._at)
            os.close(made)

    def place(self, name: str, content: bytes) -> Path | None:
        """Stores exactly `content`, without header, for other programs to load. Returns the path, or None on failure."""
        if not self._usable:
            return None
        try:
            found = os.open(self._name(name), os.O_RDONLY | NO_LINK, dir_fd=self._at)
            with os.fdopen(found, "rb") as file:
                if not _changeable(os.fstat(found)) and file.read(len(content) + 1) == content:
                    return self._path / name
        except OSError:
            pass
        return self._path / name if self._write(name, content) else None

    def link(self, name: str, placed: str) -> Path | None:
        """Gives a file that `place` stored a second name by a hard link. Returns the new path, or None on failure.

        Since both names are one file, a loader loads it once.
        """
        if not self._usable:
            return None
        try:
            with contextlib.suppress(FileNotFoundError):
                one, other = (os.stat(self._name(each), dir_fd=self._at, follow_symlinks=False) for each in (name, placed))
                if os.path.samestat(one, other):
                    return self._path / name
            scratch = f".{name}.{os.urandom(8).hex()}"
            os.link(self._name(placed), self._name(scratch), src_dir_fd=self._at, dst_dir_fd=self._at, follow_symlinks=False)
            os.replace(self._name(scratch), self._name(name), src_dir_fd=self._at, dst_dir_fd=self._at)
        except OSError:
            return None
        return self._path / name

    def _name(self, name: str) -> str:
        return name if self._at is not None else str(self._path / name)

    def _pack(self, name: str, content: bytes) -> bytes:
        """Returns a file's bytes: the digest covers its name, so that no file passes for another."""
        return MAGIC + hashlib.sha256(f"{self.kind}/{name}\0".encode() + content).digest() + content


def _place(kind: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.path.abspath(os.environ.get("SIMGPU_CACHE_DIR") or Path(base, "simgpu")), kind)


# -- permissions of a folder ----------------------------------------------------------------------


class _FolderRefused(Exception):
    """Reason why a folder must not be used."""


_ADVICE = "Set SIMGPU_CACHE_DIR to a folder that only you can write, such as one in your home."


def _open_folder(path: Path) -> int:
    """Opens the folder at an absolute path, made if it is missing; raises `_FolderRefused` or OSError.

    It walks from the root, one name at a time, and checks each folder by its descriptor before it follows a name in it.
    So the folder that is used is the one that was checked.
    """
    left, seen, links = list(reversed(path.parts[1:])), Path("/"), 0
    at = os.open("/", PASS)
    try:
        while left:
            _check(at, seen)
            name = left.pop()
            try:
                below = _enter(at, name, os.O_RDONLY | os.O_DIRECTORY | NO_LINK if not left else PASS)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR) or links == LINKS:
                    raise
                target = _link(at, name, seen)  # raises OSError if it is no link
                links += 1
                left.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                below, name = (os.open("/", PASS), "/") if target.is_absolute() else (os.dup(at), ".")
            os.close(at)
            at, seen = below, seen / name
        _check(at, seen, last=True)
        return at
    except BaseException:
        os.close(at)
        raise


def _enter(at: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=at)
        return os.open(name, flags, dir_fd=at)


def _link(at: int, name: str, folder: Path) -> Path:
    """Returns the target of a symbolic link. Raises `_FolderRefused` for another user's, and OSError if it is no link."""
    target = os.readlink(name, dir_fd=at)
    owner = os.stat(name, dir_fd=at, follow_symlinks=False).st_uid
    if owner not in _trusted_users():
        raise _FolderRefused(f"the link {folder / name} belongs to {_user(owner)}")
    return Path(target)


def _check(at: int, path: Path, last: bool = False) -> None:
    """Raises `_FolderRefused` if another user could replace an entry of the folder, or add one if it is the last of a path."""
    status = os.fstat(at)
    if status.st_uid not in _trusted_users():
        raise _FolderRefused(f"the folder {path} belongs to {_user(status.st_uid)}")
    # In a sticky folder, such as /tmp, an entry belongs to its owner, who is checked next.
    if _changeable(status) and (last or not status.st_mode & stat.S_ISVTX):
        raise _FolderRefused(f"other users may write the folder {path} (mode {stat.S_IMODE(status.st_mode):04o})")


def _trusted_users() -> set[int]:
    """Returns the users whose files are trusted: this one, root, and the owner of / (in a user namespace root may have no name)."""
    return {0, os.geteuid(), os.stat("/").st_uid}


def _changeable(status: os.stat_result) -> bool:
    """True if another user may write a file or folder."""
    if not hasattr(os, "geteuid"):
        return False
    by_group = status.st_mode & stat.S_IWGRP and not _own_group(status.st_gid)
    return bool(status.st_uid not in _trusted_users() or status.st_mode & stat.S_IWOTH or by_group)


def _own_group(group: int) -> bool:
    """True if a group has only the user: named like the user, without another member (as Debian and Fedora make them)."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and user.pw_gid == group and set(entry.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
