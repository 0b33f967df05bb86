"""`python -m faults.power_cut.machine IMAGE EARLY_SHARE SEED …`: a machine whose power a kill -9 cuts.

Runs in namespaces of its own. It is the disk (see `volatile`), mounts the ext4 of IMAGE on it, gives the
kernel another boot id, and runs `python -m tidelog.broker …`, with the folder `data` of the ext4 for its
`--data-dir`. Exit code CANNOT if the system does not allow this, with the reason on standard error.

Linux only: needs root, /dev/fuse, a free loop device, and mount, losetup, mkfs.ext4 and unshare.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from faults.power_cut.fuse import DISK_NAME, mount, serve
from faults.power_cut.volatile import VolatileDisk
from faults.process_tree import command_of, descendants, state_of

TOOLS: Final = ("unshare", "mount", "losetup", "mkfs.ext4")
CANNOT: Final = 77
_SIZE_BYTES: Final = 512 << 20
"""Of a sparse file: enough for half an hour of records."""
_BROKER: Final = "tidelog.broker"
_STOPPED: Final = ("T", "Z", "X", "")
_LOOK_S: Final = 0.001
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class FileImage:
    """Bytes in a file; the page cache of the machine below is durable enough, for that one stays on."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        os.pwrite(self._fd, data, offset)


def command(image: Path, early_share: float, seed: str) -> tuple[str, ...]:
    """How to start it: with mounts and processes that end with it."""
    unshare = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--")
    return (*unshare, sys.executable, "-m", __spec__.name, str(image), str(early_share), seed)


def brokers_of(pid: int) -> list[int]:
    """The broker of the machine that was started as process `pid`, unless it has ended."""
    return [each for each in descendants(pid) if _BROKER in command_of(each).split()]


def stop_broker(pid: int) -> None:
    """SIGSTOP for the broker of the machine `pid`; returns once it does nothing more. Blocking.

    While a file system is shut down under it, an fdatasync may answer 0 for data that is lost (seen on Linux
    6.18). A power cut stops the broker and its disk at once.
    """
    for broker in brokers_of(pid):
        with suppress(ProcessLookupError):
            os.kill(broker, signal.SIGSTOP)
        while state_of(broker) not in _STOPPED:
            time.sleep(_LOOK_S)


def make_image(path: Path) -> None:
    """An empty ext4. Raises CalledProcessError."""
    with path.open("wb") as file:
        file.truncate(_SIZE_BYTES)
    subprocess.run(("mkfs.ext4", "-q", "-F", "-E", "nodiscard", str(path)), check=True, capture_output=True)


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def main() -> int:
    """Be the machine; the broker's exit code."""
    image, early_share, seed, *arguments = sys.argv[1:]
    try:
        mount_point = _power_on(Path(image), float(early_share), seed)
    except (OSError, subprocess.CalledProcessError) as error:
        words = getattr(error, "stderr", None) or b""
        print(f"{error} {words.decode(errors='replace').strip()}", file=sys.stderr)
        return CANNOT
    at = arguments.index("--data-dir") + 1
    arguments[at] = str(mount_point / "data")
    return subprocess.call((sys.executable, "-m", _BROKER, *arguments), stdin=subprocess.DEVNULL)


def _power_on(image: Path, early_share: float, seed: str) -> Path:
    """Mount everything, for these namespaces alone; where the ext4 is. OSError, CalledProcessError."""
    work = image.with_suffix(".machine")
    work.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", str(work))
    lower, upper, boot_id = work / "lower", work / "upper", work / "boot_id"
    lower.mkdir()
    upper.mkdir()
    boot_id.write_text(f"{uuid4()}\n")
    file = FileImage(image)
    disk = VolatileDisk.seeded(file, file.size_bytes, early_share, seed)
    threading.Thread(target=serve, args=(mount(lower), disk), daemon=True).start()
    _run("mount", "-o", "loop", str(lower / DISK_NAME.decode()), str(upper))
    _run("mount", "--bind", str(boot_id), _BOOT_ID)
    return upper


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
