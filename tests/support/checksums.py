"""Names that a checksum does not tell apart."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable


def of_one_checksum(named: Callable[[str], str] = str) -> tuple[str, str]:
    """Two texts for which what `named` makes of them has the same CRC-32."""
    seen: dict[int, str] = {}
    chance = random.Random(1)  # numbers in turn differ by too little to meet soon
    while True:
        text = f"{chance.getrandbits(64):x}"
        other = seen.setdefault(zlib.crc32(named(text).encode()), text)
        if other != text:
            return other, text
