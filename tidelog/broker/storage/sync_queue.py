"""fdatasync without a thread of the interpreter: the kernel runs it, and signals on a descriptor at its end.

Owns one io_uring and its eventfd. A flush in a thread makes the interpreter switch threads twice. That costs
a one-record request more processor time than all other work of the broker for it, and while the loop is busy
the flush waits for the interpreter.

Invariants: it gives the guarantee of the call: a worker of the kernel runs the same fsync of the same open
file, and its error is the answer; the caller keeps the descriptor open until then. The answer ECANCELED says
that no worker could be started: nothing was done, and the caller syncs itself. If the kernel does not accept
a request (too many are in progress), `submit` returns None, and the caller syncs itself. `open` returns None
if the kernel or a sandbox (the usual one of containers) lacks or refuses any of the calls.

For the event loop only. Source: io_uring_setup(2), io_uring_enter(2), io_uring_register(2): libc has no
wrapper. Needs Linux 5.6.
"""

import ctypes
import mmap
import os
import platform
import sys
from struct import Struct
from typing import Any, Final, Self

_SETUP: Final = 425
_ENTER: Final = 426
_REGISTER: Final = 427
_REGISTER_EVENTFD: Final = 4
_REGISTER_PROBE: Final = 8
_MOST_UNDER_WAY: Final = 256
_FSYNC: Final = 3
_DATASYNC: Final = 1
_SQES_AT: Final = 0x10000000
# struct io_uring_params: entries of both queues, then features, then where the fields of both lie.
_PARAMS: Final = Struct("<2I12xI16x7I12x6I16x")
# struct io_uring_sqe: opcode, flags, priority, fd, offset, address, length, flags of the call, user data.
_REQUEST: Final = Struct("<BBHiQQIIQ24x")
# struct io_uring_cqe: user data, result (0 or minus an errno), flags.
_ANSWER: Final = Struct("<QiI")
_COUNTER: Final = 1 << 32


class SyncQueue:
    """Made by `open`; `fileno` becomes readable when something is finished."""

    def __init__(self, syscall: Any, fd: int, eventfd: int, params: tuple[int, ...]) -> None:
        requests, answers, _, *offsets = params
        self._syscall = syscall
        self._fd = fd
        self._eventfd = eventfd
        _, sq_tail, sq_mask, _, _, _, array, cq_head, cq_tail, cq_mask, _, _, cqes = offsets
        size = max(array + requests * 4, cqes + answers * _ANSWER.size)
        self._ring = mmap.mmap(fd, size)
        self._requests = mmap.mmap(fd, requests * _REQUEST.size, offset=_SQES_AT)
        fields = self._fields = memoryview(self._ring).cast("I")
        for number in range(requests):
            fields[array // 4 + number] = number
        self._request_tail = sq_tail // 4
        self._request_mask = fields[sq_mask // 4]
        self._answer_head, self._answer_tail = cq_head // 4, cq_tail // 4
        self._answer_mask, self._answers_at = fields[cq_mask // 4], cqes
        self._most_under_way = requests
        self._tickets = 0
        self._under_way = 0

    @classmethod
    def open(cls) -> Self | None:
        """A queue, or None if the kernel gives none."""
        # The order in which a queue's fields are read here needs a processor that keeps it.
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return None
        # PyDLL keeps the interpreter: these calls never wait.
        syscall = ctypes.PyDLL(None).syscall
        params = ctypes.create_string_buffer(_PARAMS.size)
        fd = syscall(_SETUP, _MOST_UNDER_WAY, params)
        if fd < 0:
            return None
        eventfd = -1
        try:
            eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            if _is_served(syscall, fd, eventfd):
                return cls(syscall, fd, eventfd, _PARAMS.unpack(params))
        except (OSError, ValueError):
            pass
        os.close(fd)
        if eventfd >= 0:
            os.close(eventfd)
        return None

    def fileno(self) -> int:
        return self._eventfd

    def submit(self, fd: int) -> int | None:
        """Begin an fdatasync of an open file; the ticket of its answer, or None when that is not possible."""
        if self._under_way >= self._most_under_way:
            return None
        fields = self._fields
        tail = fields[self._request_tail]
        self._tickets += 1
        place = (tail & self._request_mask) * _REQUEST.size
        _REQUEST.pack_into(self._requests, place, _FSYNC, 0, 0, fd, 0, 0, 0, _DATASYNC, self._tickets)
        fields[self._request_tail] = (tail + 1) % _COUNTER
        if self._syscall(_ENTER, self._fd, 1, 0, 0, None, 0) != 1:
            fields[self._request_tail] = tail
            return None
        self._under_way += 1
        return self._tickets

    def finished(self) -> list[tuple[int, OSError | None]]:
        """Ticket and error, or None if it went well, of each that finished since it was last asked."""
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return []
        fields = self._fields
        head, tail = fields[self._answer_head], fields[self._answer_tail]
        answers: list[tuple[int, OSError | None]] = []
        while head != tail:
            place = self._answers_at + (head & self._answer_mask) * _ANSWER.size
            ticket, result, _ = _ANSWER.unpack_from(self._ring, place)
            answers.append((ticket, OSError(-result, os.strerror(-result)) if result < 0 else None))
            head = (head + 1) % _COUNTER
        fields[self._answer_head] = head
        self._under_way -= len(answers)
        return answers

    def close(self) -> None:
        """Give it back. Nothing should be under way: its answer would be lost."""
        self._fields.release()
        self._ring.close()
        self._requests.close()
        os.close(self._fd)
        os.close(self._eventfd)


def _is_served(syscall: Any, fd: int, eventfd: int) -> bool:
    """Whether the kernel syncs files in this way, and is allowed to."""
    # struct io_uring_probe: last operation and count, then 8 bytes of each operation, with its flags at 2.
    probe = ctypes.create_string_buffer(16 + 8 * (_FSYNC + 1))
    if syscall(_REGISTER, fd, _REGISTER_PROBE, probe, _FSYNC + 1):
        return False
    is_supported = probe.raw[16 + 8 * _FSYNC + 2] & 1
    notified = ctypes.c_int(eventfd)
    return bool(is_supported) and not syscall(_REGISTER, fd, _REGISTER_EVENTFD, ctypes.byref(notified), 1)
