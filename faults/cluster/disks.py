"""A broker's own file system on a loop device: it can be filled, fail, be repaired and be replaced.

Owns the image, the device and the mount. A device that fails has become shorter: the kernel answers writes
with EIO and makes the file system read-only, as with a disk that dies. What was synced before is there after
the repair.
Invariant: after `close` nothing is mounted.
"""

import asyncio
import fcntl
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from faults.cluster.network import command
from faults.process import BrokerProcessError

_SIZE: Final = "512M"
_TRIES: Final = 300
_AGAIN_S: Final = 0.2
_LEFT_BYTES: Final = 1 << 20
"""Of a device that fails: where the file system's first blocks are."""
_GET_STATUS: Final = 0x4C05
_SET_STATUS: Final = 0x4C04
_STATUS_BYTES: Final = 232
_LIMIT_AT: Final = 32
"""LOOP_GET_STATUS64 and LOOP_SET_STATUS64, and lo_sizelimit in struct loop_info64."""


class LoopDisk:
    """`make` first. Who repairs or replaces it has closed its files."""

    def __init__(self, folder: Path) -> None:
        self.mounted = folder / "disk"
        self._image = folder / "image"
        self._filler = self.mounted / "filler"
        self._device = ""

    async def make(self) -> None:
        self.mounted.mkdir()
        await command("truncate", "-s", _SIZE, str(self._image))
        self._device = (await command("losetup", "-f", "--show", str(self._image))).strip()
        await self._format()

    def fill(self) -> None:
        """Nothing more can be written until `empty`."""
        with self._filler.open("wb") as file, suppress(OSError):
            free = os.statvfs(self.mounted)
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize))

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)

    def fail(self) -> None:
        """Writes get EIO from now on."""
        self._limit(_LEFT_BYTES)

    def go_on(self) -> None:
        """The device is whole again. Until then ext4 may repeat a call (truncate) that no signal ends."""
        self._limit(0)

    async def repair(self) -> None:
        """After `go_on`."""
        await _once_free("umount", str(self.mounted))
        # Exit code 1: it mended something.
        await _once_free("e2fsck", "-fy", self._device, accepted=(0, 1))
        await command("mount", self._device, str(self.mounted))

    async def replace(self) -> None:
        """By an empty one."""
        await _once_free("umount", str(self.mounted))
        await self._format()

    async def close(self) -> None:
        if self._device:
            await command("umount", str(self.mounted), accepted=(0, 32))
            await command("losetup", "-d", self._device)

    async def _format(self) -> None:
        await _once_free(
            "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", "-J", "size=4", self._device
        )
        await command("mount", self._device, str(self.mounted))

    def _limit(self, size_bytes: int) -> None:
        device = os.open(self._device, os.O_RDWR)
        try:
            status = bytearray(fcntl.ioctl(device, _GET_STATUS, bytes(_STATUS_BYTES)))
            struct.pack_into("<Q", status, _LIMIT_AT, size_bytes)
            fcntl.ioctl(device, _SET_STATUS, bytes(status))
        finally:
            os.close(device)


async def _once_free(*words: str, accepted: Sequence[int] = (0,)) -> None:
    """Others may use a disk for a while: who lists its folders in this process, and mount namespaces that
    were made meanwhile, with copies of all mounts."""
    for tries_left in reversed(range(_TRIES)):
        try:
            await command(*words, accepted=accepted)
            return
        except BrokerProcessError:
            if not tries_left:
                raise
            await asyncio.sleep(_AGAIN_S)
