"""Looking at whole images: what they say of themselves, checking and repairing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import _diskwright
from ._types import StrOrBytesPath

__all__ = ["CheckReport", "Finding", "RepairReport", "check", "info", "repair", "restore"]

Progress: TypeAlias = Callable[[str, int, int], object]
"""Is told the phase, and how much of how much is done in it; what it raises ends the work."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ``docs/check.md`` has all codes."""

    code: str
    """The stable name of what is wrong."""
    severity: Literal["unusable", "at-risk", "harmless"]
    structure: str
    """The structure that is damaged."""
    meaning: str
    """What this code means."""
    repair: str
    """What a repair does about it."""
    group: int | None
    block: int | None
    inode: int | None
    field: str | None
    name: str | None
    path: str | None
    """The file that it concerns."""
    expected: str | None
    found: str | None
    detail: str | None


@dataclass(frozen=True)
class CheckReport:
    """What a check found."""

    verdict: Literal["clean", "damaged", "incomplete"]
    format: Literal["ext4", "xfs"]
    findings: tuple[Finding, ...]
    """What is wrong, the worst first; of each code at most the first 1000."""
    counts: Mapping[str, int]
    """How many findings there are of each severity, those that are left out included."""
    summary: Mapping[str, int]
    """How much was looked at."""
    details: Mapping[str, Any]
    """All that the report of the command has."""

    @property
    def is_clean(self) -> bool:
        """Whether everything was looked at, and nothing is wrong."""
        return self.verdict == "clean"

    def __bool__(self) -> bool:
        return self.is_clean


@dataclass(frozen=True)
class RepairReport:
    """What a repair found, and did."""

    verdict: Literal["clean", "planned", "repaired", "damaged"]
    """``planned`` if only the plan was wanted, ``damaged`` if something is wrong still."""
    findings: tuple[Finding, ...]
    """What was found."""
    left: tuple[Finding, ...]
    """What cannot be repaired."""
    actions: tuple[str, ...]
    """What was done, or would be."""
    undo: str | None
    """The file that takes it back, if there is one."""
    details: Mapping[str, Any]
    """All that the report of the command has."""


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
    """Looks at everything in an image, in a file or a file object, and says what is wrong. Nothing is written.

    Damage is no exception. ``progress(phase, done, of)`` is called now and then; what it raises ends the check.
    """
    told = json.loads(_diskwright.check(source, partition, offset, threads, progress))
    return CheckReport(
        told["verdict"],
        told["format"],
        _findings(told["kinds"]),
        told["counts"],
        told["summary"],
        told,
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
    """Brings an image back to what it was before a repair that kept an undo file; how many pages were written."""
    return _diskwright.restore(source, undo, partition, offset)


def info(
    source: StrOrBytesPath, *, partition: int | None = None, offset: int = 0
) -> dict[str, Any]:
    """What an image says about itself, as ``diskwright info --json``."""
    told: dict[str, Any] = json.loads(_diskwright.info(source, partition, offset))
    return told
