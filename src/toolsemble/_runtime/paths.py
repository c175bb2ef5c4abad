"""Read and write files inside one directory only, safe against time-of-check to time-of-use races.

If the system supports directory handles, each component of a path is opened relative to the one before, and links are
never followed. Otherwise paths are resolved and checked before each use, which leaves a race with other programs.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath

from toolsemble._runtime.text import quote_text
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError

DENIED = "Access denied: path is outside the sandbox directory"
"""The message for every path outside, whether or not it exists."""

HANDLES = {os.access, os.open, os.stat, os.mkdir, os.rename, os.link, os.unlink} <= os.supports_dir_fd
"""Whether the system can open files relative to a directory handle."""

_LONGEST = 4096
_DEEPEST = 100  # many programs cannot remove deeper directories
_LONGEST_NAME = 255  # in bytes, the limit of most file systems
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
# A system without a flag does not need it.
_SAFE_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NOCTTY", 0)
_BINARY = _SAFE_FLAGS | getattr(os, "O_BINARY", 0)
_DIRECTORY = os.O_RDONLY | _SAFE_FLAGS | getattr(os, "O_DIRECTORY", 0)
_READ = os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer must not block
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
_LEFTOVER = re.compile(r"\.toolsemble-[0-9a-f]{16}\.tmp", re.IGNORECASE)
_STALE = 60.0  # seconds after which a temporary file counts as abandoned
_MAX_SWEEP_ENTRIES = 1000
_NEXT_SWEEP: dict[tuple[int, int], float] = {}  # the time of the next sweep, by device and inode of the directory
_SEPARATORS = str.maketrans("\\", "/")
_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in "0123456789¹²³")}


class MissingFileError(ToolExecutionError):
    """The file does not exist in the sandbox.

    >>> str(MissingFileError("File not found: 'a.txt'"))
    "File not found: 'a.txt'"
    """


class Sandbox:
    """A directory that confines paths: they cannot read, write, create or detect anything outside it.

    Paths are relative. Links are treated as outside, wherever they lead, and so are files with several hard links,
    devices, and file systems that are mounted inside.

    >>> import tempfile
    >>> sandbox = Sandbox(tempfile.mkdtemp())
    >>> sandbox.read("../secret.txt", max_bytes=100)
    Traceback (most recent call last):
    ...
    toolsemble.ToolExecutionError: Access denied: path is outside the sandbox directory
    """

    __slots__ = ("_base", "_handles")

    def __init__(self, base_dir: str | os.PathLike[str], *, handles: bool = HANDLES) -> None:
        """Create a sandbox for an existing directory; links in ``base_dir`` itself are followed.

        :param base_dir: the directory
        :param handles: whether files are opened relative to directory handles; otherwise paths are resolved and checked
        """
        self._base = os.path.realpath(base_dir)
        self._handles = handles
        if not Path(self._base).is_dir():
            raise ToolDefinitionError(f"base_dir must be a directory that exists, not {os.fspath(base_dir)!r:.200}")

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the bytes of a file; raise ToolExecutionError if it has more than ``max_bytes``."""
        with self._folder(path) as folder:
            return folder.read(max_bytes)

    def write(self, path: str, data: bytes, *, replace: bool = True) -> None:
        """Write a file atomically, and create its parent directories; without ``replace``, the file must not exist.

        At any time there is the old file or the new one, never a part of it.
        """
        with self._folder(path, create=True) as folder:
            folder.write(data, replace=replace)

    def normalize(self, path: str) -> str:
        """Return the same text for all spellings of a file's path; names that differ only in case may share it.

        >>> import tempfile
        >>> sandbox = Sandbox(tempfile.gettempdir())
        >>> sandbox.normalize("notes/../A.txt") == sandbox.normalize("./a.txt")
        True
        """
        whole = Path(self._base, *_split_path(path, portable=not self._handles))
        return unicodedata.normalize("NFKC", str(whole)).casefold()

    @contextmanager
    def _folder(self, path: str, *, create: bool = False) -> Iterator[_Folder]:
        """Yield the parent directory of a file; raise system errors as ToolExecutionError, without the base path."""
        *parents, name = _split_path(path, portable=not self._handles)
        if is_leftover(name):
            raise MissingFileError(f"File not found: {quote_text(path)}")
        try:
            folder = _Folder(self._base, name, quote_text(path), handles=self._handles)
            try:
                for parent in parents:
                    folder.enter(parent, create=create)
                yield folder
            finally:
                folder.close()
        except FileNotFoundError:
            raise MissingFileError(f"File not found: {quote_text(path)}") from None
        except FileExistsError:
            raise ToolExecutionError(f"{quote_text(path)} already exists") from None
        except OSError as error:
            raise ToolExecutionError(f"Cannot open {quote_text(path)}: {os.strerror(error.errno or 0)}") from None


class _Folder:
    """A directory in the sandbox, open if the system supports handles, and the name of a file in it."""

    __slots__ = ("_device", "_fd", "_name", "_path", "_shown")

    def __init__(self, base: str, name: str, shown: str, *, handles: bool) -> None:
        self._path = Path(base)
        self._name = name
        self._shown = shown
        self._device = os.lstat(base).st_dev
        self._fd = os.open(base, _DIRECTORY) if handles else None

    def close(self) -> None:
        """Close the directory."""
        if self._fd is not None:
            os.close(self._fd)

    def enter(self, name: str, *, create: bool) -> None:
        """Enter a subdirectory, creating it if requested; raise ToolExecutionError for a link or a mount point."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self._fd)
        info = self._info(name)
        if _is_link(info):
            raise ToolExecutionError(DENIED)
        if not stat.S_ISDIR(info.st_mode):
            raise ToolExecutionError(f"{self._shown} leads through a file, not a directory")
        if info.st_dev != self._device:
            raise ToolExecutionError(DENIED)
        if self._fd is not None:
            inner = _open(name, _DIRECTORY, self._fd)
            os.close(self._fd)
            self._fd = inner
            _check_same_file(info, os.fstat(inner))
        self._path /= name

    def read(self, max_bytes: int) -> bytes:
        """Return the content of the file."""
        seen = self._file()
        with open(_open(self._at(self._name), _READ, self._fd), "rb") as file:
            info = os.fstat(file.fileno())
            _check_same_file(seen, info)
            self._check(info)
            data = b"" if info.st_size > max_bytes else file.read(max_bytes + 1)
            size = max(info.st_size, len(data))
        if size > max_bytes:
            raise ToolExecutionError(f"{self._shown} is too large: {size} bytes, the limit is {max_bytes}")
        return data

    def write(self, data: bytes, *, replace: bool) -> None:
        """Write a temporary file, then move it into place in one step."""
        try:
            mode = stat.S_IMODE(self._file().st_mode) & 0o777
        except FileNotFoundError:
            mode = None
        if mode is not None:
            self._check_replaceable(mode, replace=replace)
        self._sweep()
        beside = f".toolsemble-{secrets.token_hex(8)}.tmp"
        try:
            with self._write_draft(beside, data, mode):
                if replace:
                    os.replace(self._at(beside), self._at(self._name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
                else:
                    # Unlike a rename, a link fails if the file was created meanwhile.
                    os.link(self._at(beside), self._at(self._name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(self._at(beside), dir_fd=self._fd)
        if self._fd is not None:
            with suppress(OSError):  # makes the new name durable, if the file system supports it
                os.fsync(self._fd)

    def _check_replaceable(self, mode: int, *, replace: bool) -> None:
        """Reject an existing file that may not be replaced; a rename checks only the permissions of the directory."""
        if not replace:
            raise FileExistsError(errno.EEXIST, "")
        name, follow = self._at(self._name), self._fd is None  # without handles, the path was just resolved
        if not mode & _WRITABLE or not os.access(name, os.W_OK, dir_fd=self._fd, follow_symlinks=follow):
            raise ToolExecutionError(f"{self._shown} is read-only")

    @contextmanager
    def _write_draft(self, name: str, data: bytes, mode: int | None) -> Iterator[None]:
        """Write a new file, and keep it locked if an open file can be moved."""
        with open(_open(self._at(name), _NEW, self._fd), "wb") as file:
            _lock(file.fileno())
            if mode is not None:
                os.chmod(file.fileno() if self._fd is not None else self._at(name), mode)  # noqa: PTH101 - a handle
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if self._fd is None:
                file.close()
            yield

    def _sweep(self) -> None:
        """Remove old, unlocked temporary files that killed writers left in this directory."""
        place = self._path if self._fd is None else self._fd
        info = os.stat(place)  # noqa: PTH116 - a handle, or a path
        now = time.monotonic()
        if now < _NEXT_SWEEP.get((info.st_dev, info.st_ino), 0.0):
            return  # a directory may have many files and frequent writes
        if len(_NEXT_SWEEP) >= _MAX_SWEEP_ENTRIES:
            _NEXT_SWEEP.clear()
        _NEXT_SWEEP[info.st_dev, info.st_ino] = now + _STALE
        with suppress(OSError):  # a directory may be writable but not readable
            for name in filter(is_leftover, os.listdir(place)):  # noqa: PTH208 - as above
                with suppress(OSError, ToolExecutionError):
                    self._remove_stale(name)

    def _remove_stale(self, name: str) -> None:
        info = self._info(name)
        if stat.S_ISREG(info.st_mode) and time.time() - info.st_mtime > _STALE:
            with open(_open(self._at(name), _READ, self._fd), "rb") as file:
                if _lock(file.fileno()):
                    os.unlink(self._at(name), dir_fd=self._fd)

    def _file(self) -> os.stat_result:
        info = self._info(self._name)
        self._check(info)
        return info

    def _check(self, info: os.stat_result) -> None:
        """Raise ToolExecutionError for anything but a regular file with one hard link."""
        if stat.S_ISDIR(info.st_mode):
            raise ToolExecutionError(f"{self._shown} is a directory, not a file")
        if _is_link(info) or (stat.S_ISREG(info.st_mode) and info.st_nlink > 1):
            raise ToolExecutionError(DENIED)
        if not stat.S_ISREG(info.st_mode):
            raise ToolExecutionError(f"{self._shown} is a device or a pipe, not a file")

    def _info(self, name: str) -> os.stat_result:
        return os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)

    def _at(self, name: str) -> str:
        if self._fd is not None:
            return name
        if self._path.resolve() != self._path:
            raise ToolExecutionError(DENIED)
        return str(self._path / name)


def is_leftover(name: str) -> bool:
    """Return whether a name belongs to a temporary file.

    >>> is_leftover(".toolsemble-0123456789abcdef.tmp"), is_leftover("notes.tmp")
    (True, False)
    """
    return _LEFTOVER.fullmatch(name) is not None


def _lock(file: int) -> bool:
    """Lock a file until it is closed; return False if another process has locked it.

    Without such locks, as on Windows, an open file cannot be removed anyway.
    """
    try:
        import fcntl  # not available on every system

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # some file systems have no locks
        pass
    return True


def _open(path: str, flags: int, folder: int | None) -> int:
    try:
        return os.open(path, flags, 0o666, dir_fd=folder)
    except OSError as error:
        # A link created after the check; the error code depends on the system.
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
            raise ToolExecutionError(DENIED) from None
        raise


def _check_same_file(seen: os.stat_result, opened: os.stat_result) -> None:
    """Raise ToolExecutionError if the opened file is not the one that was checked."""
    if (seen.st_dev, seen.st_ino) != (opened.st_dev, opened.st_ino):
        raise ToolExecutionError(DENIED)


def _is_link(info: os.stat_result) -> bool:
    junction = getattr(info, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT
    return stat.S_ISLNK(info.st_mode) or bool(junction)


def _split_path(path: str, *, portable: bool) -> list[str]:
    """Return the components of a path; raise ToolExecutionError if it could lead outside on any system."""
    drive = PureWindowsPath(path)
    if "\0" in path or path.startswith("/") or drive.drive or drive.root or not _is_encodable(path):
        raise ToolExecutionError(DENIED)
    # A backslash is a separator on some systems; both readings must stay inside.
    _resolve_dots(path.translate(_SEPARATORS).split("/"))
    names = (path.translate(_SEPARATORS) if portable else path).split("/")
    parts = _resolve_dots(names)
    if portable and any(":" in part or part.split(".")[0].strip().upper() in _DEVICES for part in parts):
        raise ToolExecutionError(DENIED)
    if names[-1] in {"", ".", ".."}:
        raise ToolExecutionError(f"{quote_text(path)} names a directory; name a file")
    if len(path) > _LONGEST or len(parts) > _DEEPEST:
        raise ToolExecutionError(f"The path is too long: at most {_LONGEST} characters and {_DEEPEST} names")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):  # before parent directories are created
        raise ToolExecutionError(f"Cannot open {quote_text(path)}: {os.strerror(errno.ENAMETOOLONG)}")
    return parts


def _resolve_dots(names: list[str]) -> list[str]:
    parts: list[str] = []
    for name in names:
        if name == ".." and parts:
            parts.pop()
        elif name.startswith("..") and not name.strip(". "):
            raise ToolExecutionError(DENIED)  # also "..." and ".. ", which some systems treat as ".."
        elif name not in {"", "."}:
            parts.append(name)
    return parts


def _is_encodable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
