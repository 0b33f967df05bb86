"""Brokers that lack one rule of the replication each: as `mutants`, with three replicas of each partition.

`python -m tests.simulation.replica_mutants NAME` looks for seeds that find the lack.
"""

import asyncio
import sys
from typing import Any, Final

from tests.simulation.mutants import Mutant, main
from tests.simulation.world import Shape
from tidelog.broker.cluster import membership
from tidelog.broker.handlers import fetch
from tidelog.broker.replicas.fetcher import Fetcher
from tidelog.broker.replicas.leadership import Leadership
from tidelog.broker.replicas.progress import Progress
from tidelog.broker.replicas.replica import Replica
from tidelog.protocol.hot import FetchPartition

_LACKS: Final = "was committed"
"""What the checker says of a member that lacks what is committed, or has another batch there."""
HUNT: Final = Shape(replicas=3, settle_s=60, stops_at_finding=True)


def _from_written_end(_: Any) -> Any:
    def ask(self: Fetcher, replica: Replica) -> None:
        log, most = replica.log, self._partition_max_bytes
        wanted = replica.partition, replica.leader_epoch, log.end_offset, log.leader_epoch
        key = replica.topic_id, replica.partition
        self._fetching.want(key, FetchPartition(*wanted, log.start_offset, most))

    return ask


def _not_awaited(_: Any) -> Any:
    def flushed(self: Replica) -> asyncio.Future[None]:
        self._group_commit.request(self)
        done = self._loop.create_future()
        done.set_result(None)
        return done

    return flushed


def _with_any_number(_: Any) -> Any:
    def tell(self: Leadership, progress: Progress, least: int) -> None:
        progress.set_in_sync(self._others, self._joining, 1)

    return tell


def _without_joining(_: Any) -> Any:
    def tell(self: Leadership, progress: Progress, least: int) -> None:
        progress.set_in_sync(self._others, (), 1 << 31 if self.assigned.elr else least)

    return tell


def _left_at_once(late: Any) -> Any:
    def changed(self: Leadership, *arguments: Any) -> Any:
        leaving = late(self, *arguments)
        isr = tuple(each for each in self.assigned.isr if each not in leaving)
        self.assigned = self.assigned._replace(isr=isr)
        return leaving

    return changed


def _by_written_end(advance: Any) -> Any:
    def changed(self: Progress) -> None:
        flushed = self.flushed.offset
        if self._members:
            self.flushed.offset = max(flushed, self._limit)
        advance(self)
        self.flushed.offset = flushed

    return changed


def _nothing(_: Any) -> Any:
    return lambda *_: None


def _never(_: Any) -> Any:
    return lambda *_: False


MUTANTS: Final = {
    "written": Mutant(
        "a follower asks from what it has on disk",
        ((Fetcher, "_ask_from_end", _from_written_end), (Replica, "flushed_as_follower", _not_awaited)),
        _LACKS,
        is_rare=True,
    ),
    "least": Mutant(
        "with fewer than min.insync.replicas nothing is committed",
        ((Leadership, "tell", _with_any_number),),
        _LACKS,
    ),
    "joining": Mutant(
        "who is being added to the in-sync set counts",
        ((Leadership, "tell", _without_joining),),
        _LACKS,
        is_rare=True,
    ),
    "leaving": Mutant(
        "who leaves the in-sync set counts until that is stored",
        ((Leadership, "late", _left_at_once),),
        _LACKS,
        is_rare=True,
    ),
    "diverging": Mutant(
        "a follower cuts back what its leader does not have",
        ((fetch, "_diverging", _nothing),),
        _LACKS,
        seed=3,
        is_rare=True,
    ),
    "lost disk": Mutant(
        "a broker with another disk leaves the in-sync sets",
        ((membership, "is_other_folder", _never),),
        "starts with another disk, or an older one",
    ),
    "leader's disk": Mutant(
        "what is committed is on the leader's disk too",
        ((Progress, "_advance", _by_written_end),),
        _LACKS,
        is_rare=True,
    ),
}


if __name__ == "__main__":
    main(sys.argv[1:], MUTANTS, HUNT)
