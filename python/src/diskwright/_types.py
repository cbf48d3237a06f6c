"""Types that several modules name."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    from ._path import ImagePath

__all__ = ["ImagePathLike", "StrOrBytesPath"]

StrOrBytesPath: TypeAlias = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
"""A path of the host."""

ImagePathLike: TypeAlias = Union[str, bytes, PurePosixPath, "ImagePath"]
"""A path in an image, or the name of an attribute. It starts at the root, with or without a slash."""
