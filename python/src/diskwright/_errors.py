"""What goes wrong: all of it is an OSError with a number and the file that it is about."""

from __future__ import annotations

import io
import os
from typing import Any

__all__ = ["BuildError", "ClosedImage", "DamagedImage", "ImageInUse", "NotOpenFor", "UnsupportedImage"]

NotOpenFor = io.UnsupportedOperation
"""An open file is asked for what it was not opened for."""


class ClosedImage(OSError, ValueError):
    """An image that was closed, or a file of one, is used."""


class UnsupportedImage(OSError):
    """The image uses what is not supported, or is none; the message says what it seems to be."""


class ImageInUse(OSError):
    """Somebody else has the image: another program, a mount, or this one."""


class BuildError(OSError):
    """What an image was to be built of is not what it should be."""


class DamagedImage(OSError):
    """The image is damaged: which structure, where, what must be there and what is.

    ``diskwright.check`` tells what else is.
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
