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
"""An open file does not support the operation in its mode."""


class ClosedImage(OSError, ValueError):
    """The image was closed."""


class InvalidArgument(OSError, ValueError):
    """A size, label, path or other argument is invalid in every file system."""


class UnsupportedImage(OSError):
    """The image has unsupported features or an unknown format. The message names the detected format."""


class ImageInUse(OSError):
    """Another program, a mount or this program uses the image."""


class BuildError(OSError):
    """A source of an image is invalid."""


class DamagedImage(OSError):
    """The image is damaged. Attributes give the structure, its location, and the expected and found values.

    ``diskwright.check`` finds all damage.
    """

    structure: str | None
    """The damaged structure, in the terms of the format documentation."""
    problem: str | None
    """Description of the damage."""
    group: int | None
    """The block group or allocation group."""
    block: int | None
    """The block of the file system."""
    inode: int | None
    """The inode to which the structure belongs."""
    expected: str | None
    """The expected value."""
    found: str | None
    """The found value."""

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
