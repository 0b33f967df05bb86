"""Tidelog: a Kafka-compatible broker, an asyncio client and a data pipeline on Spark.

The client's public names are here: `from tidelog import Producer, Consumer, Admin, TopicPartition`. They are
the names of `tidelog.client`, which is imported when the first of them is used, so that a broker does not pay
for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # All of `__all__` there: a type checker knows no name that `__getattr__` gives.
    from tidelog.client import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        client = import_module("tidelog.client")
        if name in client.__all__:
            value = globals()[name] = getattr(client, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(import_module("tidelog.client").__all__))
