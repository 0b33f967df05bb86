"""What this client asks for: each API that it uses, in the versions that it speaks.

Owns the one table of that. It may be narrower than `protocol.schema.APIS`, which says what has codecs: a
version that is not listed here is not asked for, whatever a broker offers.

Invariant: pure; every API listed has codecs for its versions (a test holds it).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.protocol.schema import ApiKey


class Versions(NamedTuple):
    """The versions `first` to `last`."""

    first: int
    last: int


ASKED_APIS: Final[Mapping[ApiKey, Versions]] = {
    ApiKey.PRODUCE: Versions(3, 11),
    ApiKey.FETCH: Versions(4, 12),  # From 13 on, topics have ids and no names.
    ApiKey.LIST_OFFSETS: Versions(1, 7),
    ApiKey.METADATA: Versions(0, 12),
    ApiKey.API_VERSIONS: Versions(0, 4),
    ApiKey.CREATE_TOPICS: Versions(2, 7),
    ApiKey.DELETE_TOPICS: Versions(1, 6),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0),
}
