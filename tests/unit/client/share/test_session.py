"""The share session with one broker: the requests that keep it (`session.txt`)."""

from pathlib import Path
from uuid import UUID

from tests.scripts import Case, cases
from tidelog.client.share.session import Batch, SharePartition, ShareSession
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey, decode_request, encode_request

TOPIC = UUID(int=7)


class Script:
    """The commands. `0` is a partition that is wanted, `0:5..9` one of which offsets are accepted."""

    def __init__(self) -> None:
        self.session = ShareSession()

    def fetch(self, *words: str) -> str:
        wanted = {SharePartition(TOPIC, int(word.split(":")[0])) for word in words}
        return _text(self.session.fetch(wanted, _batches(words)))

    def acknowledge(self, *words: str) -> str:
        """Alone; the word `final` ends the session."""
        is_final = "final" in words
        return _text(self.session.acknowledge(_batches(words), is_final=is_final))

    def answer(self, code: str = "NONE") -> None:
        self.session.answered(ErrorCode[code])

    def fail(self) -> None:
        self.session.failed()

    def is_open(self) -> str:
        return str(self.session.is_open)

    def set_epoch(self, epoch: str) -> None:
        self.session.epoch = int(epoch)


def _batches(words: tuple[str, ...]) -> dict[SharePartition, list[Batch]]:
    parts = (word.split(":") for word in words if ":" in word)
    return {
        SharePartition(TOPIC, int(index)): [Batch(*map(int, offsets.split("..")), [1])]
        for index, offsets in parts
    }


def _text(values: object) -> str:
    """By way of its bytes."""
    key = ApiKey.SHARE_FETCH
    request = decode_request(key, 2, encode_request(key, 2, {**values, "member_id": "m"}))  # type: ignore[dict-item]
    named = [
        f"{each.partition_index}"
        + "".join(f":{one.first_offset}..{one.last_offset}" for one in each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
    ]
    forgotten = [str(index) for each in request.forgotten_topics_data for index in each.partitions]
    forgets = f", forget {' '.join(forgotten)}" * bool(forgotten)
    return f"epoch {request.share_session_epoch}: {' '.join(sorted(named)) or 'nothing'}{forgets}"


@cases(Path(__file__).parent / "session.txt")
async def test_session(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)
