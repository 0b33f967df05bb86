"""What an answer has that several brokers of a cluster give together."""

from typing import TypedDict


class OfCluster(TypedDict, total=False):
    """What an answer has that several brokers give together."""

    unanswered: list[int]
    """Ids of the brokers that did not answer: what is theirs is missing."""
