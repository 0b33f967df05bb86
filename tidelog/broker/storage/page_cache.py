"""How many pages of a file are in the page cache: asked of the kernel, which reads nothing for the answer.

Owns the system call, which has no wrapper in libc. If the kernel or a sandbox does not know it, the answer
is 0. A file system that keeps its pages elsewhere (overlayfs) gives 0 too.

Safe in any thread. Source: cachestat(2), in Linux since 6.5.
"""

import ctypes
import mmap
import sys
from typing import Final

_IS_LINUX_64: Final = sys.platform == "linux" and sys.maxsize > 1 << 32
_CACHESTAT: Final = 451
"""Its number on every architecture."""
_Range = ctypes.c_uint64 * 2  # struct cachestat_range: offset, length.
_Counts = ctypes.c_uint64 * 5  # struct cachestat: pages in the cache, then four other counts.
_NO_FLAGS: Final = 0
# PyDLL keeps the interpreter: the call never waits.
_syscall = ctypes.PyDLL(None).syscall


def cached_pages(fd: int, position: int, size: int) -> int:
    """How many pages of this part of the open file are cached. Some may be on their way from the disk."""
    counts = _Counts()
    if not _IS_LINUX_64 or _syscall(_CACHESTAT, fd, _Range(position, size), counts, _NO_FLAGS):
        return 0
    return counts[0]


def pages(position: int, size: int) -> int:
    """How many pages this part of a file takes."""
    return (position + size - 1) // mmap.PAGESIZE - position // mmap.PAGESIZE + 1
