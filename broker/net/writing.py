"""Buffers given to a transport in one call, in versions of asyncio with a fault too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from tidelog.protocol.types import Buffer

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
