"""The features of Kafka that this broker has finalized, and in which versions.

Owns the one table of them. A feature's version changes what clients do, beside the versions of the APIs: from
`group.version` 1 on, there are groups of the consumer protocol (KIP-848); from `transaction.version` 2 on,
each transaction has an epoch of its own (KIP-890); from `share.version` 1 on, there are share groups
(KIP-932), from 2 on with dead letters (KIP-1191). Pure.

Source: KIP-584, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf

FINALIZED_FEATURES: Final[Mapping[str, int]] = {
    "group.version": 1,
    "transaction.version": 2,
    "share.version": 2,
}
"""Feature -> the version in force, the only one that is supported."""


def api_versions_features() -> DictOf[types.ApiVersionsResponse]:
    return {
        "supported_features": [
            {"name": name, "min_version": version, "max_version": version}
            for name, version in FINALIZED_FEATURES.items()
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": version, "min_version_level": version}
            for name, version in FINALIZED_FEATURES.items()
        ],
    }
