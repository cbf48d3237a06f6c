"""Arguments that the compiled half cannot describe by their names."""

from __future__ import annotations

import operator
from typing import Any, overload

__all__ = ["size_of"]


@overload
def size_of(name: str, value: None) -> None: ...
@overload
def size_of(name: str, value: int) -> int: ...
@overload
def size_of(name: str, value: int | None) -> int | None: ...
def size_of(name: str, value: Any) -> int | None:
    """Checks a size, count or number: an integer of at least 0, or None."""
    if value is None:
        return None
    try:
        size = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if not 0 <= size < 1 << 63:
        raise ValueError(f"{name} is {size}: it must be from 0 to 2**63 - 1")
    return size
