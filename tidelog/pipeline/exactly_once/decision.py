"""Which transactions hold the rows of a batch: names, the record of the decision, and the rules for it. Pure.

The offset is the number of the next batch. The metadata holds the decision as JSON, in as many pieces as it
needs, one per partition number.

Refused, because it cannot be known whether the rows are stored:
- a batch before the last decision, or the same one planned otherwise (`plan` is a digest of what Spark
  planned): two drivers run on copies of a checkpoint, or it was restored from a backup. The driver whose plan
  was decided continues. In a batch job, whose caller numbers the batches, the number is too low;
- another query under the name of this one: its checkpoint was deleted. Without a name, the sink has the
  query's id, and a new checkpoint is a new sink;
- the same batch twice in one run: two writes of a function have one name, and would hide each other;
- offsets that the sink did not write. `settling` also refuses a batch without a decision that is so old that
  the broker may have forgotten one, and a topic that was created again while rows were written to it.

Invariants: a batch is decided once; what was decided never changes. No transactional id is used twice: it
names the sink, the batch, one planning of its write, and one attempt of one task.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.client import CommittedOffset, OffsetAndMetadata, TopicPartition

ANCHOR: Final = "__transaction_state"
"""The topic under which the offsets are committed. A broker has it if it has transactions."""
NO_BATCH: Final = -1
PREFIX: Final = "tidelog-sink."
_FORMAT: Final = 1
# Below the default of the broker's offset.metadata.max.bytes, 4096.
_PIECE_CHARACTERS: Final = 4000


class ExactlyOnceError(RuntimeError):
    """Rows cannot be stored exactly once. The message says why and what to do."""


class TransactionName(NamedTuple):
    """What a transactional id of the sink names. `attempt` is Spark's id of one attempt of one task."""

    sink: str
    batch: int
    write: str
    attempt: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.sink}.{self.batch}.{self.write}.{self.attempt}"

    @classmethod
    def parse(cls, transactional_id: str) -> "TransactionName | None":
        """None for the transactional id of another program, and for that of the decisions."""
        parts = transactional_id.removeprefix(PREFIX).rsplit(".", 3)
        is_ours = transactional_id.startswith(PREFIX) and len(parts) == 4
        if not is_ours or not (parts[1].isdecimal() and parts[3].isdecimal()):
            return None
        return cls(parts[0], int(parts[1]), parts[2], int(parts[3]))


@dataclass(frozen=True, slots=True)
class Decision:
    """The last batch of a sink whose transactions are to be committed, and which those are.

    `query` and `run` are Spark's, "" outside of a stream. `plan` identifies what Spark planned for the batch,
    "" if that is not known. `write` and `attempts` name the transactions.
    """

    batch: int = NO_BATCH
    query: str = ""
    run: str = ""
    plan: str = ""
    write: str = ""
    attempts: tuple[int, ...] = ()

    def transactions(self, sink: str) -> tuple[TransactionName, ...]:
        return tuple(TransactionName(sink, self.batch, self.write, each) for each in self.attempts)


def another_driver(sink: str) -> ExactlyOnceError:
    """The error of a driver whose transactions another one has taken over."""
    return ExactlyOnceError(
        f"another driver runs this query: it has taken over the transactions of sink {sink!r}. Every row is"
        " stored once or not at all. Let one driver run: stop the others, then start the query again"
    )


def run_of(query: str, job_group: str) -> str:
    """The run of a stream's query, "" outside of a stream. Spark uses its id as the job group.

    Raises ExactlyOnceError for another job group: a repeated batch would look like a second write.
    """
    if not query:
        return ""
    try:
        return str(UUID(job_group))
    except ValueError:
        raise ExactlyOnceError(
            f"foreachBatch has set the job group to {job_group!r}, and the sink knows a query's run by it:"
            " leave out setJobGroup. To label a job, use setJobDescription"
        ) from None


def group_of(sink: str) -> str:
    """The group whose committed offsets hold the sink's decisions. It is also the transactional id by which
    they are committed."""
    return PREFIX + sink


def to_offsets(decision: Decision) -> dict[TopicPartition, OffsetAndMetadata]:
    """What to commit for the decision."""
    content = {
        "format": _FORMAT,
        "batch": decision.batch,
        "query": decision.query,
        "run": decision.run,
        "plan": decision.plan,
        "write": decision.write,
        "attempts": decision.attempts,
    }
    text = json.dumps(content, separators=(",", ":"))
    pieces = [text[start : start + _PIECE_CHARACTERS] for start in range(0, len(text), _PIECE_CHARACTERS)]
    return {
        TopicPartition(ANCHOR, number): OffsetAndMetadata(decision.batch + 1, f"{len(pieces)} {piece}")
        for number, piece in enumerate(pieces)
    }


def from_offsets(sink: str, committed: Mapping[TopicPartition, CommittedOffset]) -> Decision | None:
    """The decision that these offsets hold, None if there is none. Raises ExactlyOnceError if another program
    has changed them."""
    first = committed.get(TopicPartition(ANCHOR, 0))
    if first is None:
        return None
    try:
        count = int(first.metadata.partition(" ")[0])
        pieces = [committed[TopicPartition(ANCHOR, number)] for number in range(count)]
        content: dict[str, Any] = json.loads("".join(each.metadata.partition(" ")[2] for each in pieces))
        if content.pop("format") != _FORMAT or {each.offset for each in pieces} != {content["batch"] + 1}:
            raise ValueError(f"its offsets are {[each.offset for each in pieces]}")
        return Decision(**{**content, "attempts": tuple(content["attempts"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ExactlyOnceError(
            f"the committed offsets of group {group_of(sink)} are not what the sink wrote: {error!r}. Another"
            " program has committed offsets for this group, or a newer version of the sink has. Start with a"
            " new checkpointLocation, from where the topics end"
        ) from None


def following(sink: str, last: Decision | None, wanted: Decision) -> Decision:
    """What holds from now on: `wanted`, or `last` if it decided the same batch before.

    Raises ExactlyOnceError if one of the two cannot be a part of the same run of batches.
    """
    if last is None or last.batch == NO_BATCH:
        return wanted
    if last.query != wanted.query:
        raise ExactlyOnceError(
            f"the sink {sink!r} belongs to query {last.query or 'of a batch job'}, this is"
            f" {wanted.query or 'a batch job'}. A query with a new checkpoint would store rows again that are"
            " stored already. Restore the checkpoint, or choose another exactly_once.name"
        )
    if wanted.batch > last.batch:
        return wanted
    if (wanted.batch, wanted.write) == (last.batch, last.write):
        return last
    if wanted.batch < last.batch and not wanted.query:
        raise ExactlyOnceError(
            f"exactly_once.batch={wanted.batch} is lower than {last.batch}, the last batch of sink {sink!r}."
            " The broker knows only of the last one that it is stored. Nothing of this execution is stored:"
            f" give each new batch a larger number, from {last.batch + 1} on"
        )
    if wanted.batch < last.batch or wanted.plan != last.plan:
        raise ExactlyOnceError(
            f"batch {wanted.batch} of sink {sink!r} was written before, with other rows"
            + (f", and batch {last.batch} since" if wanted.batch < last.batch else "")
            + ". Either another driver runs this query: stop all others, then start one again. Or another"
            " run has continued from a newer copy of the checkpoint: continue with the newest one, or start"
            " with a new one, from where the topics end"
        )
    if wanted.run and wanted.run == last.run:
        raise ExactlyOnceError(
            f"batch {wanted.batch} of sink {sink!r} was already written in this run. If the function of"
            " foreachBatch writes several times, give each write its own exactly_once.name. If it repeated a"
            " write after an error: let the query fail, and start it again"
        )
    return last
