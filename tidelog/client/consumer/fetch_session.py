"""An incremental fetch session with one broker (KIP-227): requests name only changed partitions.

Owns: the session's id and epoch, and the partitions that the broker holds for the session. Pure.
Invariants:
- `partitions` is exactly what the broker reads for the session: the partitions of the first request, then
  each change that was answered without an error;
- after any error the next request is a full one: it names all partitions, closes the old session and opens a
  new one. If a broker opens none (session id 0, or a version before 7), every request is a full one;
- one request at a time: `ask`, then `answered` or `failed`;
- a topic has one id in a session: a request with another one opens a new session.
Source: KIP-227, KIP-516, Kafka's FetchSessionHandler.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FIRST_BY_ID, FetchPartition, FetchPartitionResult, FetchResponse, TopicKey
from tidelog.protocol.types import TopicPartition

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
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]


class FetchSession:
    """The session with one broker. It is not open at first."""

    __slots__ = ("_asked", "_ids", "epoch", "partitions", "session_id")

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _INITIAL_EPOCH
        self.partitions: dict[TopicPartition, FetchPartition] = {}
        self._asked: Mapping[TopicPartition, FetchPartition] = {}
        # Of the topics in the session; None where it names them by name.
        self._ids: Mapping[str, UUID] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the broker holds a session, as far as the client knows."""
        return self.session_id != _NO_SESSION

    @property
    def is_incremental(self) -> bool:
        """Whether the next request names only changes."""
        return self.epoch != _INITIAL_EPOCH

    def ask(
        self, wanted: Mapping[TopicPartition, FetchPartition], version: int, ids: Mapping[str, UUID]
    ) -> Ask:
        """The request of `version` that fetches exactly `wanted`, from `FIRST_BY_ID` on of topics of these
        ids."""
        self._asked = wanted
        if version < FIRST_VERSION:
            return Ask(_NO_SESSION, FINAL_EPOCH, _by_topic(wanted, None), [])
        own = ids if version >= FIRST_BY_ID else None
        if not _is_same(self._ids, own):
            self.failed()
        held, held_ids, self._ids = self.partitions, self._ids or {}, own
        if not self.is_incremental:
            return Ask(self.session_id, self.epoch, _by_topic(wanted, own), [])
        changed = {key: each for key, each in wanted.items() if held.get(key) != each}
        forgotten: dict[TopicKey, list[int]] = {}
        for topic, partition in [key for key in held if key not in wanted]:
            forgotten.setdefault(held_ids.get(topic, topic), []).append(partition)
        return Ask(self.session_id, self.epoch, _by_topic(changed, own), list(forgotten.items()))

    def by_name(self, response: FetchResponse) -> FetchResponse:
        """An answer with topics by id, with their names instead."""
        names: dict[TopicKey, str] = {topic_id: name for name, topic_id in (self._ids or {}).items()}
        topics: list[tuple[TopicKey, Sequence[FetchPartitionResult]]] = [
            (names[topic], results) for topic, results in response.topics if topic in names
        ]
        return response._replace(topics=topics)

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


def _is_same(held: Mapping[str, UUID] | None, asked: Mapping[str, UUID] | None) -> bool:
    """Whether a session with topics of the ids `held` may continue with those `asked`."""
    if held is None or asked is None:
        return held is asked
    return all(held.get(name, topic_id) == topic_id for name, topic_id in asked.items())


def _by_topic(
    partitions: Mapping[TopicPartition, FetchPartition], ids: Mapping[str, UUID] | None
) -> list[tuple[TopicKey, list[FetchPartition]]]:
    topics: dict[str, list[FetchPartition]] = {}
    for key, each in partitions.items():
        topics.setdefault(key.topic, []).append(each)
    return [(name if ids is None else ids[name], each) for name, each in topics.items()]
