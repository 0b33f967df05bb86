"""What a connection and its transport agree on; buffers given to a transport in one call, also in versions of
asyncio with a fault."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tidelog.broker.storage.disk import in_memory
from tidelog.protocol.types import Buffer

WRITE_HIGH_WATER_BYTES: Final = 1 << 20
CLIENT_USER: Final = "client_user"
"""`get_extra_info` of this name is the user that the client's certificate names, or empty."""
FORWARDED_USER: Final = "X-Tidelog-User"
FORWARDED_HOST: Final = "X-Tidelog-Host"
"""Headers in which the HTTP port of several processes names the user of a client's certificate, and the
client's address, to the process that answers. They count on the private socket of that process only."""
CHECK_ONLY: Final = "X-Tidelog-Check"
"""A header by which that port asks whether its visitor may ask, before it takes a place for the request. The
answer has it too if so."""
RECEIVED_BYTES: Final = "received_bytes"
"""`get_extra_info` of this name counts the bytes that the transport received and did not deliver."""
_MOST_BUFFERS: Final = os.sysconf("SC_IOV_MAX")
WRITELINES_PAUSES: Final = not (
    (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
)
"""In some versions asyncio's writelines forgets to pause the protocol (CVE-2024-12254); write never does."""


def write_all(transport: asyncio.WriteTransport, buffers: Sequence[Buffer]) -> None:
    """Write these in order; large ones are not copied."""
    if len(buffers) == 1:
        transport.write(buffers[0])
    elif WRITELINES_PAUSES:
        transport.writelines(buffers)
    else:
        transport.write(b"".join(buffers))


def write_at_once(transport: asyncio.WriteTransport, handle: int, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Write as much as the socket takes now; the rest in memory, for `write_all`. Raises OSError."""
    sent_bytes = 0
    if not (transport.get_write_buffer_size() or transport.is_closing()):
        with suppress(OSError):  # The transport, or the read of the file, meets it again.
            sent_bytes = os.writev(handle, buffers[:_MOST_BUFFERS])
    return in_memory(buffers, sent_bytes)
