"""What the source and the sink do to the Python processes that Spark runs them in.

Owns what users hear of these processes: the cause of an error without a traceback, and nothing where Spark
has read enough. Owns also what their collector of garbage leaves out.

Invariants: other processes, such as the driver, are not changed. Errors of other modules keep their
tracebacks.
"""

import gc
import inspect
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import ContextDecorator
from functools import cache
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)
_Item = TypeVar("_Item")


def is_worker() -> bool:
    """Whether Spark has started this process."""
    return any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)


@cache
def freeze_imports() -> None:
    """Spark's worker collects all garbage after each task, which takes 30 ms for what it has imported: leave
    that out from now on."""
    if is_worker():
        gc.freeze()


class _Plainly(ContextDecorator):
    """Errors of Tidelog name cause and remedy, but Spark puts up to thirty lines of traceback before them."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and kind.__module__.startswith("tidelog.") and is_worker():
            # Spark reads this when it sends the error to the JVM. Then it ends the process.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def fails_plainly(cls: _Class) -> _Class:
    """A decorator of a class that Spark calls: its errors reach users without a traceback."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _Plainly()(method))
    return cls


def rows_for_spark(items: Iterable[_Item]) -> Iterator[_Item]:
    """The items. If Spark reads no more, because of a limit, the process ends without a traceback.

    Spark then closes its socket, at which its own code in Python fails and ends the process. While that code
    runs, which is between two items, the signal ends the process instead. Connections to brokers are used
    between these times only, and may break.
    """
    ends_quietly = is_worker() and threading.current_thread() is threading.main_thread()
    with _Plainly():
        for item in items:
            if not ends_quietly:
                yield item
                continue
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            try:
                yield item
            finally:
                signal.signal(signal.SIGPIPE, signal.SIG_IGN)
