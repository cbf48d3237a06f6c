"""ext4 and XFS images: built, read, changed, mounted, checked and repaired, without root.

>>> import diskwright
>>> with diskwright.open("root.img") as image:  # doctest: +SKIP
...     print((image / "etc" / "hostname").read_text())

- :func:`open` opens an image, :func:`create` makes an empty one: an :class:`Image`. ``image / "etc"`` is an
  :class:`ImagePath`, which is what ``pathlib.Path`` is.
- :func:`build` makes an image of a directory, an archive, a container image or any :class:`Entry`.
- :func:`check`, :func:`repair`, :func:`restore`, :func:`diff`, :func:`write_layer`, :func:`convert`, :func:`info` and
  :func:`mount` do what the commands of these names do.
- :mod:`diskwright.fsspec` is ``ext4://``, ``xfs://`` and ``disk://`` for fsspec.
"""

from ._build import BuildReport, Entry, build, convert
from ._check import CheckReport, Finding, RepairReport, check, info, repair, restore
from ._copying import CopyReport
from ._diff import Change, diff, write_layer
from ._diskwright import DirEntry, Stat
from ._errors import BuildError, ClosedImage, DamagedImage, ImageInUse, UnsupportedImage
from ._file import RawFile
from ._image import Image, Statfs, create
from ._image import open_image as open
from ._mount import mount
from ._path import ImagePath

__all__ = [
    "BuildError",
    "BuildReport",
    "Change",
    "CheckReport",
    "ClosedImage",
    "CopyReport",
    "DamagedImage",
    "DirEntry",
    "Entry",
    "Finding",
    "Image",
    "ImageInUse",
    "ImagePath",
    "RawFile",
    "RepairReport",
    "Stat",
    "Statfs",
    "UnsupportedImage",
    "build",
    "check",
    "convert",
    "create",
    "diff",
    "info",
    "mount",
    "open",
    "repair",
    "restore",
    "write_layer",
]
