"""Comparing images and directories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import _diskwright
from ._types import StrOrBytesPath

__all__ = ["Change", "diff", "write_layer"]

Ignored: TypeAlias = Literal["times", "owner", "mode", "xattrs", "flags", "links"]
Side: TypeAlias = StrOrBytesPath | tuple[StrOrBytesPath, int]
"""A directory, an image, or a disk and the number of a partition."""


@dataclass(frozen=True)
class Change:
    """Differences of one path."""

    change: Literal["added", "removed", "modified"]
    """``added`` (only in the second), ``removed`` or ``modified``."""
    path: str
    """The path from the root, with a leading slash."""
    type: str
    """The type in the second, or for a removed path in the first."""
    differences: tuple[Mapping[str, Any], ...]
    """The differences, each with ``what`` (``mode``, ``contents``, …) and usually ``from`` and ``to``."""

    @property
    def what(self) -> frozenset[str]:
        """The kinds of differences."""
        return frozenset(difference["what"] for difference in self.differences)


def _side(side: Side) -> tuple[StrOrBytesPath, int | None]:
    return side if isinstance(side, tuple) else (side, None)


def diff(a: Side, b: Side, *, ignore: Iterable[Ignored] = ()) -> list[Change]:
    """Compares the contents of two images or directories. Returns the changes from ``a`` to ``b`` in path order."""
    changes = map(json.loads, _diskwright.diff(_side(a), _side(b), list(ignore)))
    return [
        Change(told["change"], told["path"], told["type"], tuple(told.get("differences", ())))
        for told in changes
    ]


def write_layer(
    a: Side,
    b: Side,
    output: StrOrBytesPath,
    *,
    ignore: Iterable[Ignored] = (),
    force: bool = False,
) -> dict[str, Any]:
    """Writes the changes from ``a`` to ``b`` as a layer of a container image: ``.tar``, ``.tar.gz`` or ``.tar.zst``."""
    told = _diskwright.layer(_side(a), _side(b), output, list(ignore), force)
    report: dict[str, Any] = json.loads(told)
    return report
