"""The process that serves a mount: ``diskwright.mount`` starts it.

It is separate because a process that waits for an answer of the mount that it serves itself cannot be killed. It reads its
arguments from standard input, a pipe that its parent keeps open, and writes two pickled objects to standard output: None
or an exception when the mount can be used, and again when it has ended and the image is closed.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import sys
import threading
from typing import Any

from . import _diskwright


def _report(result: BaseException | None) -> None:
    try:
        os.write(sys.stdout.fileno(), pickle.dumps(result))
    except OSError:
        # The parent has ended.
        pass


def _unmount_after(parent: int, mount: Any) -> None:
    """Unmounts when the parent ends, also if a child of it has a copy of the pipe."""
    waits = [sys.stdin.fileno()]
    try:
        waits.append(os.pidfd_open(parent))
    except (AttributeError, OSError):
        # Without pidfd, or after the end of the parent, only the pipe reports it.
        pass
    if os.getppid() == parent:
        select.select(waits, [], [])
    try:
        mount.unmount()
    except OSError:
        pass


def main() -> None:
    """Serves a mount until it is unmounted."""
    arguments = json.loads(sys.stdin.readline())
    source, point = (bytes.fromhex(arguments[name]) for name in ("source", "point"))
    try:
        mount = _diskwright.Mount(
            source, point, arguments["writable"], arguments["partition"], arguments["offset"], arguments["options"]
        )
    except Exception as error:
        _report(error)
        return
    _report(None)
    watch = threading.Thread(target=_unmount_after, args=(arguments["parent"], mount), daemon=True)
    watch.start()
    result: BaseException | None = None
    try:
        mount.wait()
    except Exception as error:
        result = error
    _report(result)
    # Another thread may still wait in a system call.
    os._exit(0)
