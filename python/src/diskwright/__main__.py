"""``python -m diskwright``: a small command line over the package. The program ``diskwright`` has all commands."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import diskwright

DAMAGED = 3
FAILED = 2


def _image(arguments: argparse.Namespace, **how: Any) -> diskwright.Image:
    return diskwright.open(
        arguments.image, partition=arguments.partition, offset=arguments.offset, **how
    )


def _shown(name: str) -> str:
    """Returns a name without control characters and surrogates, which terminals do not accept."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _complain(problem: object) -> None:
    print(f"diskwright: {_shown(str(problem))}", file=sys.stderr)


def _info(arguments: argparse.Namespace) -> int:
    found = diskwright.info(
        arguments.image, partition=arguments.partition, offset=arguments.offset
    )
    print(json.dumps(found, indent=2))
    return 0


def _partitions(arguments: argparse.Namespace) -> int:
    for one in diskwright.partitions(arguments.image):
        print(one.number, one.offset, one.size, one.contents, _shown(one.description))
    return 0


def _ls(arguments: argparse.Namespace) -> int:
    with _image(arguments) as image:
        for name in sorted(image.listdir(arguments.path)):
            print(_shown(name))
    return 0


def _cat(arguments: argparse.Namespace) -> int:
    with _image(arguments) as image, image.open(arguments.path, "rb") as file:
        while piece := file.read(1 << 20):
            sys.stdout.buffer.write(piece)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    report = diskwright.check(
        arguments.image, partition=arguments.partition, offset=arguments.offset
    )
    print(report)
    return 0 if report else DAMAGED


def _extract(arguments: argparse.Namespace) -> int:
    with _image(arguments, salvage=arguments.salvage) as image:
        onerror = _complain if arguments.salvage else None
        report = image.copy_out(arguments.path, arguments.target, onerror=onerror)
    for warning in report.warnings:
        _complain(warning)
    return DAMAGED if report.unreadable else 0


def _build(arguments: argparse.Namespace) -> int:
    diskwright.build(
        arguments.source, arguments.image, fs=arguments.fs, label=arguments.label, force=arguments.force
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m diskwright", description="ext4 and XFS images, without root."
    )
    parser.add_argument("--version", action="version", version=f"diskwright {diskwright.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(act: Any, name: str, about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(act=act)
        return added

    def of_image(act: Any, name: str, about: str) -> argparse.ArgumentParser:
        added = command(act, name, about)
        added.add_argument("image", help="an image file or a block device")
        added.add_argument("--partition", type=int, help="the number of a partition of a disk")
        added.add_argument("--offset", type=int, default=0, help="the first byte of the image")
        return added

    of_image(_info, "info", "show the superblock and state as JSON")
    of_image(_ls, "ls", "list a directory").add_argument("path", nargs="?", default="/")
    of_image(_cat, "cat", "write a file to standard output").add_argument("path")
    of_image(_check, "check", "check an image; status 3 if it is damaged")
    extract = of_image(_extract, "extract", "copy files out of an image")
    extract.add_argument("target", help="a path of the host")
    extract.add_argument("--path", default="/", help="a file or directory of the image")
    extract.add_argument("--salvage", action="store_true", help="take what is left of a damaged image")
    partitions = command(_partitions, "partitions", "list number, offset, size, contents and name")
    partitions.add_argument("image", help="a disk")
    build = command(_build, "build", "build an image of a directory or archive")
    build.add_argument("source")
    build.add_argument("image")
    build.add_argument("--fs", choices=["ext4", "xfs"], default="ext4")
    build.add_argument("--label")
    build.add_argument("--force", action="store_true", help="replace an existing image")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.act(parsed)
        sys.stdout.flush()
        return status
    except (OSError, ValueError) as error:
        _complain(error)
        return DAMAGED if isinstance(error, diskwright.DamagedImage) else FAILED


if __name__ == "__main__":
    sys.exit(main())
