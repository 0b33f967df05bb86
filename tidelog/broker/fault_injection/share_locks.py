"""A test change to the locks of a share group: all of one partition end at once, as if their time had passed.

Invariant: what happens then is what happens when a lock ends. Source: KIP-932.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from tidelog.broker.fault_injection.rules import FaultError
from tidelog.broker.services import Services

EXPIRE_LOCKS = "expire_locks"
_KNOWN = ("fault", "group_id", "topic", "partition")
logger = structlog.get_logger(__name__)


def expire_locks(services: Services, values: Mapping[str, object]) -> dict[str, Any]:
    """From JSON: group_id, topic, partition (0). Returns how many records were locked. Raises FaultError."""
    if values.keys() - set(_KNOWN):
        raise FaultError(f"unknown field {min(values.keys() - set(_KNOWN))!r}; known are {', '.join(_KNOWN)}")
    group_id, topic, partition = values.get("group_id"), values.get("topic"), values.get("partition", 0)
    if not isinstance(group_id, str) or not isinstance(topic, str):
        raise FaultError("expected group_id and topic, the names of a share group and of a topic")
    for held in services.share.partitions.of_group(group_id):
        if (held.replica.topic, held.key.partition) == (topic, partition):
            ended = {"group_id": group_id, "topic": topic, "partition": partition}
            ended |= {"fault": EXPIRE_LOCKS, "records": held.expire_locks()}
            logger.warning("share_locks_expired", **ended)
            return ended
    raise FaultError(f"no member of share group {group_id!r} reads {topic}-{partition} at this broker")
