"""An incremental fetch session with one broker (KIP-227): requests name only changed partitions.

Owns: the session's id and epoch, and the partitions that the broker holds for the session. Pure.
Invariants:
- `partitions` is exactly what the broker reads for the session: the partitions of the first request, then
  each change that was answered without an error;
- after any error the next request is a full one: it names all partitions, closes the old session and opens a
  new one. If a broker opens none (session id 0, or a version before 7), every request is a full one;
- one request at a time: `ask`, then `answered` or `failed`.
Source: KIP-227, Kafka's FetchSessionHandler.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchResponse
from tidelog.wire.metadata import TopicPartition

FIRST_VERSION: Final = 7
FINAL_EPOCH: Final = -1
_NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Ask(NamedTuple):
    """The parts of a FetchRequest that a session decides."""

    session_id: int
    epoch: int
    topics: list[tuple[str, list[FetchPartition]]]
    forgotten: list[tuple[str, list[int]]]


class FetchSession:
    """The session with one broker. It is not open at first."""

    __slots__ = ("_asked", "epoch", "partitions", "session_id")

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _INITIAL_EPOCH
        self.partitions: dict[TopicPartition, FetchPartition] = {}
        self._asked: Mapping[TopicPartition, FetchPartition] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker holds a session, as far as the client knows."""
        return self.session_id != _NO_SESSION

    @property
    def is_incremental(self) -> bool:
        """Whether the next request names only changes."""
        return self.epoch != _INITIAL_EPOCH

    def ask(self, wanted: Mapping[TopicPartition, FetchPartition], version: int) -> Ask:
        """The request of `version` that fetches exactly `wanted`."""
        self._asked = wanted
        if version < FIRST_VERSION:
            return Ask(_NO_SESSION, FINAL_EPOCH, _by_topic(wanted), [])
        if not self.is_incremental:
            return Ask(self.session_id, self.epoch, _by_topic(wanted), [])
        held = self.partitions
        changed = {key: each for key, each in wanted.items() if held.get(key) != each}
        forgotten: dict[str, list[int]] = {}
        for topic, partition in [key for key in held if key not in wanted]:
            forgotten.setdefault(topic, []).append(partition)
        return Ask(self.session_id, self.epoch, _by_topic(changed), list(forgotten.items()))

    def answered(self, response: FetchResponse) -> bool:
        """Apply the answer. False if the session itself failed: send the request again."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = _NO_SESSION
            self.failed()
            return response.error_code not in SESSION_ERRORS
        if response.session_id == _NO_SESSION:
            self.session_id = _NO_SESSION
            self.failed()
        elif not self.is_incremental:
            self.session_id = response.session_id
            self.epoch = 1
            # The broker may not hold partitions that the answer leaves out. The next request names them
            # again.
            answered = {
                TopicPartition(str(topic), each.partition_index)
                for topic, results in response.topics
                for each in results
            }
            self.partitions = {key: each for key, each in self._asked.items() if key in answered}
        elif response.session_id != self.session_id:
            self.failed()
        else:
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
            self.partitions = dict(self._asked)
        return True

    def failed(self) -> None:
        """The answer was lost or invalid: the next request opens a new session."""
        self.epoch = _INITIAL_EPOCH
        self.partitions = {}


def _by_topic(partitions: Mapping[TopicPartition, FetchPartition]) -> list[tuple[str, list[FetchPartition]]]:
    topics: dict[str, list[FetchPartition]] = {}
    for key, each in partitions.items():
        topics.setdefault(key.topic, []).append(each)
    return list(topics.items())
