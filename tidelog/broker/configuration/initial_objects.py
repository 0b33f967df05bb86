"""The settings `topics` and `users`: what exists from the start of a broker.

Owns their syntax. Invariant: no message shows a password. Pure.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.broker.cluster.catalog import check_topic_name
from tidelog.protocol.errors import ApiError
from tidelog.protocol.settings import ConfigError

_DEFAULT: Final = -1
_MOST: Final = 100_000


class InitialTopic(NamedTuple):
    """A topic to create; -1 stands for the broker's default."""

    name: str
    partitions: int = _DEFAULT
    replication_factor: int = _DEFAULT


def initial_topics(entries: Iterable[str]) -> list[InitialTopic]:
    """Raises ConfigError."""
    return [_topic(each) for each in entries]


def _topic(text: str) -> InitialTopic:
    name, *counts = text.split(":")
    if len(counts) > 2 or not all(each.isdecimal() and 0 < int(each) <= _MOST for each in counts):
        raise ConfigError(
            "topics: expected names, each with the number of its partitions and of its replicas if they are "
            f"not the defaults (orders:3 or orders:3:2), got {text!r}"
        )
    try:
        check_topic_name(name)
    except ApiError as error:
        raise ConfigError(f"topics: {error.message}") from None
    return InitialTopic(name, *map(int, counts))


def initial_users(entries: Iterable[str]) -> dict[str, str]:
    """User -> password. Raises ConfigError."""
    users = {}
    for number, text in enumerate(entries, start=1):
        name, _, password = text.partition(":")
        if not name or not password:
            raise ConfigError(
                f"users: expected names with passwords (alice:secret), and entry {number} has not both"
            )
        users[name] = password
    return users
