"""Clones of images, and their snapshots."""

from __future__ import annotations

from . import _diskwright
from ._arguments import size_of
from ._types import StrOrBytesPath

__all__ = ["clone", "commit", "reset", "snapshot"]


def clone(base: StrOrBytesPath, *names: StrOrBytesPath, size: int | None = None) -> None:
    """Creates writable clones of an image: small files with the changes of the base.

    A clone is opened like any image. The base must stay and must not change. With ``size`` the clones are longer than
    the base.
    """
    if not names:
        raise TypeError("clone() needs at least one name")
    _diskwright.clone(base, list(names), size_of("size", size))


def snapshot(clone: StrOrBytesPath, name: StrOrBytesPath) -> None:
    """Keeps the state of a clone as the read-only image ``name``. The clone must be closed."""
    _diskwright.snapshot(clone, name)


def reset(
    clone: StrOrBytesPath, *, to: StrOrBytesPath | None = None, to_base: bool = False
) -> None:
    """Discards the changes of a clone since its last snapshot, the snapshot ``to``, or its creation."""
    if to is not None and to_base:
        raise TypeError("reset() takes either to or to_base")
    _diskwright.reset(clone, to, to_base)


def commit(
    clone: StrOrBytesPath,
    image: StrOrBytesPath,
    *,
    base: StrOrBytesPath | None = None,
    force: bool = False,
) -> None:
    """Creates the raw image ``image`` from a clone and its base, which is at ``base`` if it has moved."""
    _diskwright.commit(clone, image, base, force)
