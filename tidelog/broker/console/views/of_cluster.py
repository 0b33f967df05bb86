"""What answers of several brokers have, and what lists have."""

from typing import TypedDict


class OfCluster(TypedDict, total=False):
    """What an answer has that several brokers give together."""

    unanswered: list[int]
    """Ids of the brokers that did not answer: their data is missing."""


class Listed(TypedDict):
    """A part of a list: its `rows` from number `offset` on, at most `limit` of all `total`."""

    total: int
    offset: int
    limit: int
