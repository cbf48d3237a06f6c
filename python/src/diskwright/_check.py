"""Whole images: information, partitions, checks and repairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import _diskwright
from ._arguments import size_of
from ._types import StrOrBytesPath

__all__ = [
    "CheckReport",
    "Finding",
    "Partition",
    "RepairReport",
    "check",
    "info",
    "partitions",
    "repair",
    "restore",
]

Progress: TypeAlias = Callable[[str, int, int], object]
"""Receives the phase, the amount done and the total. An exception that it raises cancels the operation."""


@dataclass(frozen=True)
class Finding:
    """One finding of a check. ``docs/check.md`` lists all codes."""

    code: str
    """The stable name of the kind of finding."""
    severity: Literal["unusable", "at-risk", "harmless"]
    structure: str
    """The damaged structure."""
    meaning: str
    """The meaning of the code."""
    repair: str
    """The effect of a repair."""
    group: int | None
    block: int | None
    inode: int | None
    field: str | None
    name: str | None
    path: str | None
    """The affected file."""
    expected: str | None
    found: str | None
    detail: str | None

    def __str__(self) -> str:
        """One line: severity, code, place, and expected and found values."""
        places = ((what, getattr(self, what)) for what in ("path", "name", "group", "block", "inode", "field"))
        where = ", ".join(f"{what} {value}" for what, value in places if value is not None)
        line = f"{self.severity}: {self.code}: {self.meaning}"
        line += f" ({where})" if where else ""
        if self.expected is not None or self.found is not None:
            line += f"; expected {self.expected}, found {self.found}"
        return f"{line}; {self.detail}" if self.detail else line


def _lines(title: str, findings: tuple[Finding, ...], total: int) -> str:
    shown = [f"  {finding}" for finding in findings[:LINES_MAX]]
    if total > len(shown):
        shown.append(f"  and {total - len(shown)} more")
    return "\n".join([title, *shown])


#: The maximum number of findings in the text of a report.
LINES_MAX = 20


@dataclass(frozen=True)
class CheckReport:
    """Result of a check."""

    verdict: Literal["clean", "damaged", "incomplete"]
    format: Literal["ext4", "xfs"]
    findings: tuple[Finding, ...]
    """Findings, the most severe first, with at most 1000 of each code."""
    counts: Mapping[str, int]
    """Number of findings by severity, including those that are not listed."""
    summary: Mapping[str, int]
    """Numbers of checked objects."""
    details: Mapping[str, Any]
    """The complete report of the command."""

    @property
    def is_clean(self) -> bool:
        """True if the check was complete and found nothing."""
        return self.verdict == "clean"

    def __bool__(self) -> bool:
        return self.is_clean

    def __str__(self) -> str:
        """The verdict, and a line for each of the first findings."""
        total = sum(self.counts.values())
        if not total:
            return f"{self.format}: {self.verdict}"
        kinds = ", ".join(f"{count} {severity}" for severity, count in self.counts.items() if count)
        return _lines(f"{self.format}: {self.verdict}: {kinds}", self.findings, total)


@dataclass(frozen=True)
class RepairReport:
    """Result of a repair."""

    verdict: Literal["clean", "planned", "repaired", "damaged"]
    """``planned`` if only a plan was requested, ``damaged`` if damage remains."""
    findings: tuple[Finding, ...]
    """Findings before the repair."""
    left: tuple[Finding, ...]
    """Findings that cannot be repaired."""
    actions: tuple[str, ...]
    """Repairs that were or would be carried out."""
    undo: str | None
    """The undo file, if there is one."""
    details: Mapping[str, Any]
    """The complete report of the command."""

    def __str__(self) -> str:
        """The verdict, the actions, and a line for each of the first findings."""
        actions = "".join(f"\n  {action}" for action in self.actions[:LINES_MAX])
        more = len(self.actions) - LINES_MAX
        actions += f"\n  and {more} more actions" if more > 0 else ""
        return _lines(f"{self.verdict}{actions}", self.findings, len(self.findings))


@dataclass(frozen=True)
class Partition:
    """A partition of a disk."""

    number: int
    """Its number, from 1 on: the argument ``partition`` of other functions."""
    offset: int
    """Its first byte."""
    size: int
    """Its length in bytes."""
    description: str
    """Its name, if the table has names; otherwise its type."""
    contents: str
    """``ext4`` (also for ext2 and ext3), ``xfs``, ``zeros``, ``unknown``, ``unreadable``, or the name of another format."""


_PLACES = ("group", "block", "inode", "field", "name", "path", "expected", "found", "detail")


def _findings(kinds: list[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            kind["code"],
            kind["severity"],
            kind["structure"],
            kind["meaning"],
            kind["repair"],
            *(finding.get(place) for place in _PLACES),
        )
        for kind in kinds
        for finding in kind.get("findings", ())
    )


def check(
    source: StrOrBytesPath | Any,
    *,
    partition: int | None = None,
    offset: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Checks all metadata of an image, in a file or a file object. Nothing is written.

    Damage raises nothing. ``progress(phase, done, of)`` is called at intervals; an exception of it ends the check.
    """
    found = json.loads(
        _diskwright.check(
            source,
            size_of("partition", partition),
            size_of("offset", offset),
            size_of("threads", threads),
            progress,
        )
    )
    return CheckReport(
        found["verdict"],
        found["format"],
        _findings(found["kinds"]),
        found["counts"],
        found["summary"],
        found,
    )


def repair(
    source: StrOrBytesPath,
    *,
    partition: int | None = None,
    offset: int = 0,
    plan: bool = False,
    undo: StrOrBytesPath | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RepairReport:
    """Repairs an image: tried out in memory first, then written through its journal or log, or in place.

    - ``plan``: only say what would be done.
    - ``undo``: keep in this new file what was there before. Where the log cannot be trusted, one is made beside the image
      in any case: ``report.undo``.
    """
    told = json.loads(
        _diskwright.repair(source, partition, offset, plan, undo, threads, progress)
    )
    actions = [action["what"] for step in told["steps"] for action in step["actions"]]
    return RepairReport(
        told["verdict"],
        _findings(told["kinds"]),
        _findings(told["left"]),
        tuple(actions),
        told.get("undo"),
        told,
    )


def restore(
    source: StrOrBytesPath,
    undo: StrOrBytesPath,
    *,
    partition: int | None = None,
    offset: int = 0,
) -> int:
    """Undoes a repair with its undo file, and returns the number of pages written."""
    return _diskwright.restore(source, undo, partition, offset)


def info(
    source: StrOrBytesPath, *, partition: int | None = None, offset: int = 0
) -> dict[str, Any]:
    """The superblock and state of an image, as ``diskwright info --json``."""
    told: dict[str, Any] = json.loads(_diskwright.info(source, partition, offset))
    return told


def partitions(source: StrOrBytesPath | Any) -> list[Partition]:
    """The partitions of a disk (GPT or MBR), in a file, on a block device or in a file object. Empty without a table."""
    return [Partition(*fields) for fields in _diskwright.partitions(source) or ()]
