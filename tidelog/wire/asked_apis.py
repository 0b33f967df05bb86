"""Which APIs are requested, in which versions.

Owns: those that a connection and the view of a cluster request themselves. Who uses them adds its own, in one
table, and passes it on. The table may be narrower than `protocol.schema.APIS`, the table of codecs: a
version that is not listed is never requested, even if a broker offers it.

Invariant: pure; every listed API has codecs for its versions (a test checks this).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from tidelog.protocol.schema import APIS, ApiKey


class Versions(NamedTuple):
    """The versions `first` to `last`."""

    first: int
    last: int


def every_version(key: ApiKey) -> Versions:
    """Each version that has codecs."""
    return Versions(APIS[key].min_version, APIS[key].max_version)


AskedApis: TypeAlias = Mapping[ApiKey, Versions]

OWN_APIS: Final[dict[ApiKey, Versions]] = {
    ApiKey.API_VERSIONS: Versions(0, 4),
    ApiKey.METADATA: Versions(0, 13),
    # In version 0, what follows has no header and no error code.
    ApiKey.SASL_HANDSHAKE: Versions(1, 1),
    ApiKey.SASL_AUTHENTICATE: every_version(ApiKey.SASL_AUTHENTICATE),
}
