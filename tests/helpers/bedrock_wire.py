"""Messages of an event stream, as Amazon Bedrock sends them."""

from __future__ import annotations

import json
import struct
from binascii import crc32


def frame(kind, payload, message="event"):
    """Return a message of an event stream: lengths, their checksum, headers, payload, the checksum of it all."""
    named = {f":{message}-type": kind, ":content-type": "application/json", ":message-type": message}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    start = prelude + struct.pack("!I", crc32(prelude)) + headers + body
    return start + struct.pack("!I", crc32(start))
