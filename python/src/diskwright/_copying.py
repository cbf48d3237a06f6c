"""Copies between images, and the report of a copy."""

from __future__ import annotations

import errno
import stat as modes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._file import SEEK_DATA, SEEK_HOLE, RawFile

if TYPE_CHECKING:
    from ._path import ImagePath

__all__ = ["CopyReport", "copy_between"]

PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class CopyReport:
    """The result of a copy."""

    files: int
    """Files of any type."""
    bytes: int
    """Bytes of contents, without holes."""
    left_out: int
    """Number of files and attributes that the destination could not store."""
    warnings: tuple[str, ...]
    """These files and attributes, with the reasons."""
    unreadable: int = 0
    """Number of files of a damaged image that could not be read completely."""


def copy_between(source: ImagePath, target: ImagePath) -> int:
    """Copies contents and permissions of a file to another image, with its holes."""
    with source.open("rb", 0) as reader, target.open("wb", 0) as writer:
        assert isinstance(reader, RawFile) and isinstance(writer, RawFile)
        found = reader.stat()
        done = 0
        try:
            while True:
                start = reader.seek(done, SEEK_DATA)
                done = reader.seek(start, SEEK_HOLE)
                writer.seek(reader.seek(start))
                while start < done:
                    piece = reader.read(min(done - start, PIECE_BYTES))
                    if not piece:
                        break
                    start += writer.write(piece)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        writer.truncate(found.st_size)
    target.chmod(modes.S_IMODE(found.st_mode))
    return found.st_size
