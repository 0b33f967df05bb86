"""Tidelog: a Kafka-compatible broker, an asyncio client and a data pipeline on Spark.

The public names of `tidelog.client` are here too; it is imported when the first of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # A type checker knows no name that `__getattr__` gives.
    from tidelog.client import *  # noqa: F403
    from tidelog.client import __all__ as __all__


def __getattr__(name: str) -> Any:
    if not name.startswith("_") or name == "__all__":
        client = import_module("tidelog.client")
        if name in ("__all__", *client.__all__):
            value = globals()[name] = getattr(client, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(import_module("tidelog.client").__all__))
