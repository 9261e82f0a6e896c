"""Results that are added up: what was done here, and what was done there."""

from __future__ import annotations

from typing import Self

import msgspec


class Sum(msgspec.Struct, frozen=True):
    """A record of numbers, and of lists; the sum of two is that of each field."""

    def __add__(self, other: Self) -> Self:
        fields = self.__struct_fields__
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in fields})
