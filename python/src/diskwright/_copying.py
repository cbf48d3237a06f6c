"""What a copy reports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CopyReport"]


@dataclass(frozen=True)
class CopyReport:
    """What was copied."""

    files: int
    """Files of any type."""
    bytes: int
    """Bytes of contents, without holes."""
    left_out: int
    """Files and attributes that the destination did not take."""
    warnings: tuple[str, ...]
    """What was left out, and why."""
