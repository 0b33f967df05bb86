"""Quotas as Kafka names them: who they hold for, and which there are.

Invariants: an entity is sorted by its types, so equal ones compare as equal.

Pure. Source: KIP-546, KIP-599, KIP-612; Kafka's QuotaConfig.
"""

from collections.abc import Mapping
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
QUOTAS_OF_CLIENTS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""Of users and client ids. Addresses have CONNECTION_CREATION_RATE only."""
ALL_QUOTAS: Final = (*QUOTAS_OF_CLIENTS, CONNECTION_CREATION_RATE)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name), sorted by type. The name None is Kafka's <default>: all who have no quota of their
own."""
Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""Entity -> name of the quota -> value: bytes per second, percent of the broker's event loop, partitions
created or deleted per second, connections per second."""
