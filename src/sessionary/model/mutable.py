"""Frozen values by the thousand.

Setting each field of a frozen value takes longer than reading the row it comes from. A twin is a
class with the same slots that is not frozen: it is filled quickly, and then becomes the value.
"""

from dataclasses import fields, make_dataclass
from typing import Any


def mutable_class(value: type) -> Any:
    """The twin of a frozen dataclass with slots; called with every field, in order.

    Afterwards `made.__class__ = Value` makes it one. Nothing is checked on the way, so it is for
    what was checked when it was stored.
    """
    names = [each.name for each in fields(value)]
    return make_dataclass(f"{value.__name__}Twin", names, slots=True, eq=False, repr=False)
