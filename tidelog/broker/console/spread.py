"""Which brokers answer a route, and how their answers become one.

Owns the rules. Invariant: the first of the answers that are joined is that of the broker that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.console.others import coordinator, leader

if TYPE_CHECKING:
    from tidelog.broker.services import Services


MOST_JOINED_ROWS: Final = 2_000
"""Rows of each broker that are joined for one page."""


def joined_rows(
    answers: Mapping[int, Any], asked: Any, key: Callable[[Any], Any], *lists: str
) -> dict[str, Any]:
    """The listings of some brokers as one, in the order of `key`. `lists` are lists of them beside `rows`."""
    rows = sorted((row for answer in answers.values() for row in answer["rows"]), key=key)
    joined = {**next(iter(answers.values()))}
    joined |= {
        "total": sum(answer["total"] for answer in answers.values()),
        "offset": asked.offset,
        "limit": asked.limit,
        "rows": rows[asked.offset : asked.offset + asked.limit],
    }
    for name in lists:
        joined[name] = [each for answer in answers.values() for each in answer[name]]
    return joined


class Spread(NamedTuple):
    """How a route is answered where the cluster has several brokers: by `broker` alone, or by all of them.

    `join` makes one answer of those of the brokers that answered, by their ids. Of a listing each of them is
    asked for its first `rows`, because any of them may be on the page; -1: for the rows of the page.
    """

    broker: Callable[[Services, Any], int] = lambda services, _: services.node_id
    join: Callable[[Services, Mapping[int, Any], Any], Any] | None = None
    rows: Callable[[Any], int] = lambda _: -1


def rows_up_to(asked: Any) -> int:
    """How many rows there are up to the last one of the page."""
    return int(asked.offset + asked.limit)


def listing(key: Callable[[Any], Any], *lists: str) -> Spread:
    """All brokers, their rows in the order of `key`; `lists` of their answers are joined too."""
    return Spread(join=lambda _, answers, asked: joined_rows(answers, asked, key, *lists), rows=rows_up_to)


OF_LEADER: Final = Spread(lambda services, asked: leader(services, asked.topic, asked.partition))
OF_GROUP: Final = Spread(lambda services, asked: coordinator(services, OFFSETS_TOPIC, asked.group_id))
OF_TRANSACTION: Final = Spread(
    lambda services, asked: coordinator(services, TRANSACTIONS_TOPIC, asked.transactional_id)
)
