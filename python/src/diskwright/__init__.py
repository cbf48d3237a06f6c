"""ext4 and XFS images: built, read, changed, mounted, checked and repaired, without root.

>>> import diskwright
>>> with diskwright.open("root.img") as image:  # doctest: +SKIP
...     print((image / "etc" / "hostname").read_text())

- :func:`open` opens an image, :func:`create` makes an empty one: an :class:`Image`. ``image / "etc"`` is an
  :class:`ImagePath`, with the methods of ``pathlib.Path``.
- :func:`build` builds an image of a directory, an archive, a container image or any :class:`Entry`.
- :func:`check`, :func:`repair`, :func:`restore`, :func:`diff`, :func:`write_layer`, :func:`convert`, :func:`info`,
  :func:`partitions` and :func:`mount` are the commands of these names.
- :func:`clone`, :func:`snapshot`, :func:`reset` and :func:`commit` are for many writable images of one base.
- :mod:`diskwright.fsspec` is ``ext4://``, ``xfs://`` and ``disk://`` for fsspec.
- ``python -m diskwright`` is a small command line.
"""

from ._build import BuildReport, Entry, build, convert
from ._check import (
    CheckReport,
    Finding,
    Partition,
    RepairReport,
    check,
    info,
    partitions,
    repair,
    restore,
)
from ._clones import clone, commit, reset, snapshot
from ._copying import CopyReport
from ._diff import Change, diff, write_layer
from ._diskwright import DirEntry, Stat, __version__
from ._errors import (
    BuildError,
    ClosedImage,
    DamagedImage,
    ImageInUse,
    InvalidArgument,
    UnsupportedImage,
)
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
    "InvalidArgument",
    "Partition",
    "RawFile",
    "RepairReport",
    "Stat",
    "Statfs",
    "UnsupportedImage",
    "__version__",
    "build",
    "check",
    "clone",
    "commit",
    "convert",
    "create",
    "diff",
    "info",
    "mount",
    "open",
    "partitions",
    "repair",
    "reset",
    "restore",
    "snapshot",
    "write_layer",
]
