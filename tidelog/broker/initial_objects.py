"""Makes the topics and users that the settings `topics` and `users` name, and that do not exist yet.

Owns when: users before clients are accepted, topics once this broker is live. Invariants: what exists is not
changed; a topic for which too few brokers are live is tried again until it exists. Several brokers may have
the same settings: one of them makes each object.

Event loop only.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import structlog

from tidelog.broker.cluster.catalog import Catalog, NothingToChange, UserChanged
from tidelog.broker.configuration.initial_objects import InitialTopic, initial_topics, initial_users
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.security.users import check_name, new_credentials
from tidelog.broker.services import Services
from tidelog.broker.tasks import Tasks, kept
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.scram import ScramCredential, ScramMechanism
from tidelog.protocol.settings import ConfigError

logger = structlog.get_logger(__name__)
_RETRY_SECONDS: Final = 1.0


async def make_users(services: Services) -> None:
    """Raises ConfigError for a name that no user may have, StoreError, OSError."""
    for name, password in initial_users(services.config.users).items():
        try:
            check_name(name)
        except ApiError as error:
            raise ConfigError(f"users: {error.message}") from None
        if name in services.catalog.users:
            continue
        made = await asyncio.to_thread(new_credentials, password)
        try:
            await services.cluster.change(partial(_new_user, name=name, made=made))
        except NothingToChange:
            continue
        logger.info("initial_user_made", user=name)


def _new_user(catalog: Catalog, name: str, made: Mapping[ScramMechanism, ScramCredential]) -> UserChanged:
    """Raises NothingToChange if another broker made the user meanwhile."""
    if name in catalog.users:
        raise NothingToChange
    return UserChanged(name, made)


class TopicMaking:
    """Of one broker, from when it is live until all topics exist."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks = Tasks()

    async def begin(self) -> None:
        """Return when each topic was tried once."""
        left = await self._try(initial_topics(self._services.config.topics))
        if left:
            self._tasks.begin(kept(self._go_on, left))

    async def stop(self) -> None:
        await self._tasks.cancel()

    async def _go_on(self, left: dict[InitialTopic, str]) -> None:
        for topic, error in left.items():
            advice = "tried again each second; it needs as many live brokers as replicas"
            logger.warning("initial_topic_not_made", topic=topic.name, error=error, advice=advice)
        while left:
            await asyncio.sleep(_RETRY_SECONDS)
            left = await self._try(list(left))

    async def _try(self, topics: list[InitialTopic]) -> dict[InitialTopic, str]:
        """Those that do not exist now, each with the reason."""
        left = {}
        for each in topics:
            if self._services.catalog.topic(each.name) is not None:
                continue
            try:
                wanted = NewTopic(each.partitions, each.replication_factor)
                await self._services.topics.create(each.name, wanted)
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    left[each] = error.message
            else:
                logger.info("initial_topic_made", topic=each.name)
        return left
