"""What a broker that remembers is asked, and what becomes of a session when anything goes wrong:
`fetch_session.txt`."""

from pathlib import Path
from uuid import UUID

from tests.scripts import Case, cases
from tidelog.client import TopicPartition
from tidelog.client.consumer.fetch_session import FetchSession
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult, FetchResponse


class Script:
    """The commands, of partitions of topic t."""

    def __init__(self) -> None:
        self.session = FetchSession()
        self.topic_id: UUID | None = None

    def ask(self, *words: str) -> str:
        """`0=5` is partition 0 from offset 5; words: `version=`, and `id=` of the topic."""
        options = {name: int(value) for name, value in (word.split("=") for word in words)}
        version, number = options.pop("version", 12), options.pop("id", None)
        self.topic_id = None if number is None else UUID(int=number)
        wanted = {
            TopicPartition("t", int(index)): FetchPartition(int(index), -1, offset, -1, -1, 1000)
            for index, offset in options.items()
        }
        asked = self.session.ask(wanted, version, {} if self.topic_id is None else {"t": self.topic_id})
        named = [
            f"{_short(topic)}-{each.partition} from {each.fetch_offset}"
            for topic, some in asked.topics
            for each in some
        ]
        forgotten = [f"{_short(topic)}-{index}" for topic, some in asked.forgotten for index in some]
        forgets = f", forget {' '.join(forgotten)}" * bool(forgotten)
        return f"session {asked.session_id} epoch {asked.epoch}: {', '.join(named) or 'nothing new'}{forgets}"

    def answer(self, *words: str) -> str:
        """Partitions, `session=`, `error=`, `id=` of another topic; whether it counts, and its topics."""
        options = dict(word.split("=") for word in words if "=" in word)
        results = [FetchPartitionResult(int(word), 0) for word in words if "=" not in word]
        topic = UUID(int=int(options["id"])) if "id" in options else self.topic_id or "t"
        code, session_id = ErrorCode[options.get("error", "NONE")], int(options.get("session", 7))
        response = FetchResponse(0, code, session_id, [(topic, results)] if results else [])
        if isinstance(topic, UUID):
            response = self.session.by_name(response)
        names = " ".join(str(name) for name, _ in response.topics)
        return f"{'counts' if self.session.answered(response) else 'is lost'}, topics {names or 'none'}"

    def fail(self) -> None:
        """No answer comes."""
        self.session.failed()

    def set_epoch(self, epoch: str) -> None:
        self.session.epoch = int(epoch)


def _short(topic: object) -> str:
    return f"<{topic.int}>" if isinstance(topic, UUID) else str(topic)


@cases(Path(__file__).parent / "fetch_session.txt")
async def test_fetch_session(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
