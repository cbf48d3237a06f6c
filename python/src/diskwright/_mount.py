"""Images as directories of the host."""

from __future__ import annotations

import atexit
import errno
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _diskwright
from ._arguments import size_of
from ._types import StrOrBytesPath

__all__ = ["mount"]

#: Seconds to wait for the server: to mount, and to write all changes after the unmount.
PATIENCE_S = 60.0

_servers: weakref.WeakSet[_Server] = weakref.WeakSet()


def _command() -> list[str]:
    from multiprocessing.spawn import get_executable

    executable = get_executable()
    if not executable or getattr(sys, "frozen", False):
        raise OSError(errno.ENOSYS, "mount needs a Python interpreter to start; set one with multiprocessing.set_executable")
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = f"import sys; sys.path.append({package!r}); from diskwright._server import main; main()"
    return [os.fsdecode(executable), "-I", "-S", "-c", program]


def _within(timeout: float, work: Callable[[], None]) -> bool:
    """Calls a function that can block in the kernel. Returns whether it finished in time."""
    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The interpreter is ending and cannot start threads any more.
        work()
        return True
    thread.join(timeout)
    return not thread.is_alive()


class _Server:
    """A process that serves a mount."""

    def __init__(self, point: bytes, arguments: dict[str, Any]) -> None:
        # Imported here: most programs mount nothing.
        import subprocess
        import tempfile

        self.point = point
        self.owner = os.getpid()
        self.log = tempfile.TemporaryFile()
        try:
            # A separate session, so that an interrupt from the terminal reaches only the program that uses the mount.
            self.process = subprocess.Popen(
                _command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self.log.close()
            raise
        _servers.add(self)
        try:
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                # The server has ended. Its answer contains the reason.
                pass
            self._answer(None)
        except BaseException:
            self.end()
            raise

    def _answer(self, patience: float | None) -> None:
        """Waits for the next answer. Raises it if it is an exception."""
        import pickle

        answers: list[Any] = []

        def read() -> None:
            try:
                answers.append(pickle.load(self.process.stdout))  # type: ignore[arg-type]
            except (EOFError, pickle.UnpicklingError, ValueError, OSError):
                answers.append(self._died())

        if patience is None:
            read()
        else:
            _within(patience, read)
        if not answers:
            raise TimeoutError(errno.ETIMEDOUT, "the server of the mount does not answer", os.fsdecode(self.point))
        if answers[0] is not None:
            raise answers[0]

    def _died(self) -> OSError:
        status = self.process.wait()
        self.log.seek(0)
        text = self.log.read()[-2000:].decode(errors="replace").strip()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        problem = f"the server of the mount ended with {how}: the image is as after a crash"
        return OSError(errno.EIO, f"{problem}; {text}" if text else problem, os.fsdecode(self.point))

    def unmount(self, timeout: float) -> None:
        """Unmounts and waits until the image is closed.

        Raises EBUSY if files of the mount are still open. It is then out of sight, and ends with the last of them. If the
        server does not answer in time, it is killed, which ends all waiting for it.
        """
        if os.getpid() != self.owner or self.process.stdin is None or self.process.stdin.closed:
            return
        failures: list[OSError] = []
        if not _within(timeout, lambda: self._take_away(failures)):
            self.end()
            _within(PATIENCE_S, self._detach)
            shown = os.fsdecode(self.point)
            raise TimeoutError(errno.ETIMEDOUT, "the mount was aborted: its server did not answer", shown)
        if failures:
            # The server ends when the last file is closed; until then it keeps the image.
            self._let_go()
            raise failures[0]
        try:
            self._answer(timeout)
        finally:
            self.end()

    def _take_away(self, failures: list[OSError]) -> None:
        try:
            _diskwright.unmount(self.point, False)
        except OSError as error:
            self._detach()
            if self.process.poll() is not None or error.errno == errno.EINVAL:
                # The image was already unmounted. The server reports the reason.
                return
            shown = os.fsdecode(self.point)
            if error.errno == errno.EBUSY or "busy" in str(error):
                problem = "files of the mount are still open: the image is in use until they are closed"
                error = OSError(errno.EBUSY, problem, shown)
            failures.append(error)

    def _detach(self) -> None:
        try:
            _diskwright.unmount(self.point, True)
        except OSError:
            pass

    def _let_go(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()
        threading.Thread(target=self.process.wait, daemon=True).start()

    def end(self) -> None:
        """Ends the process, if it has not ended."""
        from subprocess import TimeoutExpired

        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        try:
            self.process.wait(1)
        except TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        # close would wait for the lock of a thread that still reads from the pipe. The thread reaches the end of the pipe now.
        if self.process.stdout is not None:
            _within(1, self.process.stdout.close)


@atexit.register
def _unmount_all() -> None:
    for server in list(_servers):
        try:
            server.unmount(PATIENCE_S)
        except OSError:
            pass


@contextmanager
def mount(
    source: StrOrBytesPath,
    point: StrOrBytesPath | None = None,
    *,
    writable: bool = False,
    partition: int | None = None,
    offset: int = 0,
    options: str = "",
    timeout: float = PATIENCE_S,
) -> Iterator[Path]:
    """Mounts an image by FUSE for the duration of a ``with``: on a directory, or on a temporary one. Linux only.

    Another process serves the mount. When the ``with`` ends, the image is unmounted, all changes are in it, and a temporary
    directory is removed. If files of the mount are still open then, an ``OSError`` with ``EBUSY`` is raised: the mount is
    out of sight, the files can be used until they are closed, and the image is in use until then. If the server does not
    answer within ``timeout`` seconds, the mount is aborted (``TimeoutError``). ``options`` are those of
    ``diskwright mount -o``.
    """
    if not hasattr(_diskwright, "Mount"):
        raise OSError(errno.EOPNOTSUPP, "images are mounted on Linux only")
    import tempfile

    image = os.path.abspath(os.fsencode(source))
    made = tempfile.mkdtemp(prefix="diskwright-") if point is None else None
    where = os.path.abspath(os.fsencode(point if point is not None else made or ""))
    try:
        server = _Server(
            where,
            {
                "source": image.hex(),
                "point": where.hex(),
                "writable": bool(writable),
                "partition": size_of("partition", partition),
                "offset": size_of("offset", offset),
                "options": options,
                "parent": os.getpid(),
            },
        )
        try:
            yield Path(os.fsdecode(where))
        except BaseException as error:
            # The exception of the block takes precedence over one of the unmount. Its frames can keep files of the mount open.
            try:
                server.unmount(timeout)
            except OSError as second:
                error.add_note(f"unmounting failed, too: {second}")
            raise
        else:
            server.unmount(timeout)
    finally:
        if made is not None:
            try:
                os.rmdir(made)
            except OSError:
                # The directory remains only if it is still a mount point, which the raised error reports.
                pass
