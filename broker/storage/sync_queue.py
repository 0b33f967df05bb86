"""fdatasync without a thread: the kernel runs it and signals on a descriptor when it is done (Linux AIO).

Owns one AIO context and its eventfd. A flush in a thread makes the interpreter switch threads twice. That
costs a one-record request more processor time than all other work of the broker for it.

Invariants: it gives the guarantee of the call: the kernel runs the same fsync of the same open file in a
thread of its own, and returns its error; the caller keeps the descriptor open until the answer. When the
kernel does not accept a request (an old kernel, another system, too many requests), `open` and `submit`
return None, and the caller syncs itself. `open` also returns None where a sandbox refuses any of the calls,
because syncs would never be answered. `finished` answers each accepted request once. The kernel takes some
30 ms to destroy a context, so a few are kept for later brokers of this process; none in use is shared.

For the event loop only. Source: io_submit(2); IOCB_CMD_FDSYNC, in Linux since 4.18. The calls have no wrapper
in libc.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from struct import Struct
from typing import Final, NamedTuple, Self


class _Calls(NamedTuple):
    """Numbers of the system calls."""

    setup: int
    destroy: int
    get_events: int
    submit: int


_NUMBERS: Final = {
    "x86_64": _Calls(setup=206, destroy=207, get_events=208, submit=209),
    "aarch64": _Calls(setup=0, destroy=1, get_events=4, submit=2),
}
_MOST_UNDER_WAY: Final = 128
_FDSYNC: Final = 3
_MOST_SPARE: Final = 8
_ANSWER_BY_EVENTFD: Final = 1
# struct iocb: data, key, rw_flags, opcode, priority, fd, buffer, size, offset, reserved, flags, eventfd.
_REQUEST: Final = Struct("<QIiHhIQQqQII")
# struct io_event: data, the iocb's address, result (0 or minus an errno), a second result.
_EVENT: Final = Struct("<QQqq")


_spare_contexts: list[tuple[int, ctypes.c_ulong]] = []
"""Each with its process id: a forked process may use none of them."""


class SyncQueue:
    """Made by `open`; `fileno` becomes readable when something is finished."""

    def __init__(self, calls: _Calls, context: ctypes.c_ulong, eventfd: int) -> None:
        # PyDLL keeps the interpreter: these calls never wait.
        self._syscall = ctypes.PyDLL(None).syscall
        self._calls = calls
        self._context = context
        self._eventfd = eventfd
        self._process = os.getpid()
        self._tickets = 0
        self._unanswered = 0
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_EVENT.size * _MOST_UNDER_WAY)

    @classmethod
    def open(cls) -> Self | None:
        """A queue, or None where the kernel gives none."""
        calls = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
        if calls is None or sys.maxsize < 1 << 32:
            return None
        context = _new_context(calls)
        if context is None:
            return None
        try:
            queue = cls(calls, context, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        except OSError:
            _destroy(calls, context)
            return None
        if not queue._is_served():
            os.close(queue._eventfd)
            _destroy(calls, context)
            return None
        return queue

    def _is_served(self) -> bool:
        """Whether the calls that it needs are allowed: submitting and taking nothing must not fail."""
        return self._submit(0) == self._get_events() == 0

    def fileno(self) -> int:
        return self._eventfd

    def submit(self, fd: int) -> int | None:
        """Begin an fdatasync of an open file; the ticket of its answer, or None when that is not possible."""
        self._tickets += 1
        _REQUEST.pack_into(
            self._request,
            0,
            self._tickets,
            0,
            0,
            _FDSYNC,
            0,
            fd,
            0,
            0,
            0,
            0,
            _ANSWER_BY_EVENTFD,
            self._eventfd,
        )
        if self._submit(1) != 1:
            return None
        self._unanswered += 1
        return self._tickets

    def _submit(self, count: int) -> int:
        taken: int = self._syscall(self._calls.submit, self._context, ctypes.c_long(count), self._requests)
        return taken

    def _get_events(self) -> int:
        """How many were put into `_events`, or -1."""
        count: int = self._syscall(
            self._calls.get_events,
            self._context,
            ctypes.c_long(0),
            ctypes.c_long(_MOST_UNDER_WAY),
            self._events,
            None,
        )
        return count

    def finished(self) -> list[tuple[int, OSError | None]]:
        """Ticket and error, or None where it went well, of each that finished since it was last asked."""
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return []
        return self._answers()

    def _answers(self) -> list[tuple[int, OSError | None]]:
        answers: list[tuple[int, OSError | None]] = []
        count = _MOST_UNDER_WAY
        while count == _MOST_UNDER_WAY:
            count = self._get_events()
            for number in range(count):
                ticket, _, result, _ = _EVENT.unpack_from(self._events, number * _EVENT.size)
                error = OSError(-result, os.strerror(-result)) if result < 0 else None
                answers.append((ticket, error))
        self._unanswered -= len(answers)
        return answers

    def close(self) -> None:
        """Give it back. Nothing should be under way: its answer would be lost."""
        self._answers()
        os.close(self._eventfd)
        # With an answer under way it cannot be reused, and destroying it would wait for the disk.
        if not self._unanswered:
            _give_back(self._calls, self._context, self._process)


def _new_context(calls: _Calls) -> ctypes.c_ulong | None:
    process = 0
    while process != os.getpid():
        try:
            process, context = _spare_contexts.pop()
        except IndexError:  # Not asked before: brokers in other threads take from it too.
            return _made_context(calls)
    return context


def _made_context(calls: _Calls) -> ctypes.c_ulong | None:
    context = ctypes.c_ulong(0)
    failed = ctypes.PyDLL(None).syscall(calls.setup, ctypes.c_long(_MOST_UNDER_WAY), ctypes.byref(context))
    return None if failed else context


def _give_back(calls: _Calls, context: ctypes.c_ulong, process: int) -> None:
    if len(_spare_contexts) < _MOST_SPARE:
        _spare_contexts.append((process, context))
    else:
        _destroy(calls, context)


def _destroy(calls: _Calls, context: ctypes.c_ulong) -> None:
    ctypes.CDLL(None).syscall(calls.destroy, context)
