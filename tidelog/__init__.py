"""Tidelog: a Kafka-compatible broker, an asyncio client and a data pipeline on Spark.

- `broker/`: the broker: one process that serves Kafka's protocol from one data folder
- `cli/`: the command `tidelog`: one file per command. Slow imports are inside the commands
- `client/`: the asyncio client; neither broker nor client imports the other
- `pipeline/`: the pipeline on Spark: the source and the sink `tidelog`, and the jobs
- `protocol/`: Kafka's protocol: bytes to values and back. No I/O, no clock, no event loop
- `remote_log/`: closed segments in an object store: what the objects are, for the broker and for who reads
  them without it
- `schemas/`: schema registries, and values that name a schema there
- `serializers/`: keys and values as text, JSON, Avro and Protobuf
- `testcontainers`: a broker in a container for tests: `TidelogContainer`, for testcontainers
- `tracing`: spans of OpenTelemetry for records that are sent and processed
- `version`: the version, which hatch and the images take from here
- `wire/`: a client's side of the wire: connections to brokers, their security and settings, the view of a
  cluster

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
