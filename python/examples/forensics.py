"""Lists an image with diskwright and with other parsers, and reports differences.

    python forensics.py IMAGE

The other parsers are dissect.extfs and dissect.xfs, and ext4 of PyPI: those that are installed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import diskwright

Listing = dict[str, tuple[str, int, str]]
"""Type, size and SHA-256 (of files) or target (of links), by path."""


def by_diskwright(file: BinaryIO) -> Listing:
    """Lists with this package, from a file object such as one of an evidence container."""
    found: Listing = {}
    with diskwright.open(file) as image:
        for path, own in image.tree("/"):
            if stat.S_ISREG(own.st_mode):
                digest = hashlib.sha256(image.read_bytes(path)).hexdigest()
                found[path] = ("file", own.st_size, digest)
            elif stat.S_ISLNK(own.st_mode):
                found[path] = ("link", own.st_size, image.readlink(path))
            elif path != "/":
                found[path] = ("directory" if stat.S_ISDIR(own.st_mode) else "other", 0, "")
    return found


def by_dissect(file: BinaryIO) -> Listing:
    """Lists with dissect.extfs or dissect.xfs."""
    file.seek(0)
    fs: Any
    if file.read(4) == b"XFSB":
        from dissect.xfs import XFS

        fs = XFS(file)
    else:
        from dissect.extfs import ExtFS

        fs = ExtFS(file)

    def walk(node: Any, above: str) -> Iterator[tuple[str, Any]]:
        for name, child in node.listdir().items():
            if name not in (".", ".."):
                yield f"{above}/{name}", child
                if child.filetype == stat.S_IFDIR:
                    yield from walk(child, f"{above}/{name}")

    found: Listing = {}
    for path, node in walk(fs.root, ""):
        if node.filetype == stat.S_IFREG:
            found[path] = ("file", node.size, hashlib.sha256(node.open().read()).hexdigest())
        elif node.filetype == stat.S_IFLNK:
            found[path] = ("link", node.size, node.link)
        else:
            found[path] = ("directory" if node.filetype == stat.S_IFDIR else "other", 0, "")
    return found


def by_ext4(file: BinaryIO) -> Listing:
    """Lists with the package ext4."""
    import ext4

    volume = ext4.Volume(file)
    found: Listing = {}

    def walk(directory: Any, above: str) -> None:
        for entry, _ in directory.opendir():
            name = entry.name_bytes.decode("utf-8", "surrogateescape")
            if name in (".", ".."):
                continue
            node, path = volume.inodes[entry.inode], f"{above}/{name}"
            if isinstance(node, ext4.Directory):
                found[path] = ("directory", 0, "")
                walk(node, path)
            elif isinstance(node, ext4.SymbolicLink):
                target = bytes(node.readlink()).decode("utf-8", "surrogateescape")
                found[path] = ("link", len(os.fsencode(target)), target)
            elif isinstance(node, ext4.File):
                data = node.open().read()
                found[path] = ("file", len(data), hashlib.sha256(data).hexdigest())
            else:
                found[path] = ("other", 0, "")

    walk(volume.root, "")
    return found


PARSERS: dict[str, Callable[[BinaryIO], Listing]] = {
    "diskwright": by_diskwright,
    "dissect": by_dissect,
    "ext4": by_ext4,
}


def listings(path: Path) -> dict[str, Listing]:
    """Yields the listing of each installed parser that supports the format."""
    is_xfs = diskwright.info(path)["format"] == "xfs"
    found = {}
    for name, parse in PARSERS.items():
        if is_xfs and name == "ext4":
            continue
        try:
            with open(path, "rb") as file:
                found[name] = parse(file)
        except ImportError:
            print(f"{name}: not installed")
    return found


def main(path: Path) -> int:
    found = listings(path)
    ours, differ = found["diskwright"], 0
    for name, listing in found.items():
        print(f"{name}: {len(listing)} files")
        for file in sorted(ours.keys() | listing.keys()):
            if ours.get(file) != listing.get(file):
                differ += 1
                print(f"  {file}: {ours.get(file)} by diskwright, {listing.get(file)} by {name}")
    return min(differ, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
