"""Errors: each is an OSError with a number and, where there is one, a file."""

from __future__ import annotations

import io
import os
from typing import Any

__all__ = [
    "BuildError",
    "ClosedImage",
    "DamagedImage",
    "ImageInUse",
    "InvalidArgument",
    "NotOpenFor",
    "UnsupportedImage",
]

NotOpenFor = io.UnsupportedOperation
"""An open file is asked for what it was not opened for."""


class ClosedImage(OSError, ValueError):
    """An image that was closed, or a file of one, is used."""


class InvalidArgument(OSError, ValueError):
    """A size, label, path or other argument that no file system can have."""


class UnsupportedImage(OSError):
    """The image has unsupported features, or no known file system; the message says what it seems to be."""


class ImageInUse(OSError):
    """Another program, a mount or this program uses the image."""


class BuildError(OSError):
    """A source of an image is invalid."""


class DamagedImage(OSError):
    """The image is damaged: the structure, its place, and the expected and found values.

    ``diskwright.check`` finds all damage.
    """

    structure: str | None
    """The structure that is damaged, as the format's documents name it."""
    problem: str | None
    """What is wrong with it."""
    group: int | None
    """The block group or allocation group."""
    block: int | None
    """The block of the file system."""
    inode: int | None
    """The inode that it belongs to."""
    expected: str | None
    """What must be there."""
    found: str | None
    """What is there."""

    def __init__(
        self,
        errno: int,
        strerror: str,
        filename: str | bytes | os.PathLike[Any] | None = None,
        *,
        structure: str | None = None,
        problem: str | None = None,
        group: int | None = None,
        block: int | None = None,
        inode: int | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        super().__init__(errno, strerror, filename)
        self.structure = structure
        self.problem = problem
        self.group = group
        self.block = block
        self.inode = inode
        self.expected = expected
        self.found = found
