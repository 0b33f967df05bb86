"""Notices new files of certificates and keys, so that they are used without a restart.

Owns the times of looking. Invariants: files are looked at and read in a thread; they are read again only when
they changed and then stayed the same from one look to the next, so that files are not read half-written.
"""

import asyncio
from collections.abc import Sequence

from tidelog.broker.security.tls import ListenerTls
from tidelog.broker.tasks import kept

LOOK_SECONDS = 1.0


class CertificateWatch:
    """Watches the files of these listeners until `close`. Event loop only."""

    def __init__(self, watched: Sequence[ListenerTls]) -> None:
        self._watched = watched
        self._task = asyncio.get_running_loop().create_task(kept(self._run)) if watched else None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        used = [one.fingerprint() for one in self._watched]
        seen = used.copy()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for number, one in enumerate(self._watched):
                found = await asyncio.to_thread(one.fingerprint)
                if found != used[number] and found == seen[number]:
                    used[number] = found
                    await asyncio.to_thread(one.reload)
                seen[number] = found
