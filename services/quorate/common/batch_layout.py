"""The layout of a record batch: sizes, positions and attributes. Source: KIP-98, RecordBatch v2."""

from __future__ import annotations

HEADER_SIZE = 61
PREFIX_SIZE = 12
"""Base offset and length: what the length does not count."""
LENGTH_AT = 8
EPOCH_AT = 12
CRC_AT = 17
CRC_START = 21
"""Where the bytes begin that the checksum covers."""
ATTRIBUTES_AT = 21
LAST_DELTA_AT = 23
MAX_TIMESTAMP_AT = 35
PRODUCER_AT = 43
COUNT_AT = 57
MAGIC = 2
BATCH_BYTES_MAX = 0x7FFF_FFFF

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
COMPRESSION_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
PRODUCER_EPOCH_MAX = 0x7FFF
SEQUENCE_MODULUS = 1 << 31
