"""Makes hostile inputs out of sound ones: flipped bits, cut ends, huge lengths, other parts."""

from __future__ import annotations

from random import Random

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80",
)
SIZE_MAX = 64 * 1024


def hostile(random: Random, corpus: list[bytes]) -> bytes:
    """One input. A tenth is noise; the others are sound inputs with one to six things wrong."""
    if not corpus or random.random() < 0.1:
        return random.randbytes(int(2 ** random.uniform(0, 12)))
    data = bytearray(random.choice(corpus))
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        _damage(random, data, corpus)
    return bytes(data[:SIZE_MAX])


def _damage(random: Random, data: bytearray, corpus: list[bytes]) -> None:
    at = random.randrange(len(data) + 1) if data else 0
    match random.randrange(8):
        case 0 if data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        case 1:
            del data[at:]
        case 2:
            data[at:at] = random.randbytes(random.randrange(1, 20))
        case 3:
            del data[at : at + random.randrange(1, 20)]
        case 4:
            width = random.choice((1, 2, 4, 8))
            value = random.choice(INTERESTING) & ((1 << 8 * width) - 1)
            data[at : at + width] = value.to_bytes(width, random.choice(("big", "little")))
        case 5:
            data[at:at] = random.choice(VARINTS)
        case 6:
            other = random.choice(corpus)
            start = random.randrange(len(other) + 1)
            data[at:] = other[start:]
        case _:
            data[at:at] = data[at : at + random.randrange(1, 200)]
