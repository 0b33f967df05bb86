"""A client as a processor uses it: read inputs, and write outputs and offsets in a transaction.

Owns the interface and the meaning of errors: `Abortable`, or anything else, after which the process ends.
Each module `client_…` owns how one client is used. A process imports only its own.

Invariants: the producer takes over its transactional id before positions are read, so that no earlier
transaction of the id is open then; a commit that may succeed later is repeated until its outcome is known.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from faults.transactions.history import Place, Source

CLIENTS: Final = ("tidelog", "confluent", "aiokafka", "kafka_python")
POLL_S: Final = 0.2


class Abortable(Exception):
    """The transaction failed. After an abort the next may begin."""


@dataclass(frozen=True)
class Job:
    """What a processor is to work on: its input, its group and its transactional id."""

    address: str
    input_topic: str
    partitions: Sequence[int]
    group: str
    transactional_id: str
    timeout_ms: int
    """Of transactions."""
    group_protocol: str | None = None
    """How it is a member of the group, which then assigns partitions. None: it reads exactly `partitions`."""


class Client(ABC):
    """Reads and writes for a processor, with one producer and one consumer. `open` comes first."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @property
    def is_member(self) -> bool:
        return self.job.group_protocol is not None

    @abstractmethod
    async def open(self) -> None:
        """Take over the transactional id, and read from the committed offsets on."""

    @abstractmethod
    async def rewind(self) -> None:
        """Read from the committed offsets on."""

    @abstractmethod
    async def read(self, most: int) -> list[Source]:
        """Up to `most` inputs; none if none come soon."""

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def send(self, place: Place, key: bytes, value: bytes) -> None:
        """Raises Abortable, as do the next two."""

    @abstractmethod
    async def send_offsets(self, positions: Mapping[int, int]) -> None: ...

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def abort(self) -> None: ...


def client_of(name: str, job: Job) -> Client:
    """One of `CLIENTS`."""
    module = import_module(f"faults.transactions.client_{name}")
    return cast(Client, module.make(job))
