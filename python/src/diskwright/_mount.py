"""Images as directories of the host."""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _diskwright
from ._types import StrOrBytesPath

__all__ = ["mount"]

_mounted: weakref.WeakSet[Any] = weakref.WeakSet()


class _Mounted:
    """A mount, so that it can be unmounted when the program ends."""

    def __init__(self, mount: Any) -> None:
        self.mount = mount


@atexit.register
def _unmount_all() -> None:
    for mounted in list(_mounted):
        try:
            mounted.mount.unmount()
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
) -> Iterator[Path]:
    """Mounts an image by FUSE for the time of a ``with``: on a directory, or on a temporary one. Linux only.

    Threads of this process serve it, without Python. When the ``with`` ends, it is unmounted and all changes are in the
    image. ``options`` are those of ``diskwright mount -o``.
    """
    if not hasattr(_diskwright, "Mount"):
        raise OSError(95, "images are mounted on Linux only")
    made = tempfile.mkdtemp(prefix="diskwright-") if point is None else None
    try:
        where = made if point is None else point
        assert where is not None
        served = _diskwright.Mount(source, where, writable, partition, offset, options)
        mounted = _Mounted(served)
        _mounted.add(mounted)
        try:
            yield Path(os.fsdecode(where))
        finally:
            served.unmount()
            _mounted.discard(mounted)
    finally:
        if made is not None:
            os.rmdir(made)
