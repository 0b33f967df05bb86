"""Administration of quotas: of users, client ids and addresses.

Owns: the requests of `Admin.quotas`. Invariant: entities are those of `tidelog.protocol.quotas`, where the
name None means all without a quota of their own. Source: KIP-546, KIP-612.
"""

from collections.abc import Mapping
from operator import itemgetter

from tidelog.client.admin.requests import Requests, itself
from tidelog.protocol import message_types as types
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.quotas import QuotaEntity, Quotas
from tidelog.protocol.schema import ApiKey


class QuotaAdmin:
    """The quotas of a cluster. Every call raises ClientError."""

    def __init__(self, requests: Requests) -> None:
        self._ask = requests.to_controller

    async def list(self) -> Quotas:
        """All quotas: entity -> name of the quota -> value."""
        values: DictOf[types.DescribeClientQuotasRequest] = {"components": [], "strict": False}
        answer: types.DescribeClientQuotasResponse = await self._ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, values, itself, lambda _: "the list of quotas"
        )
        return {
            tuple(sorted(((one.entity_type, one.entity_name) for one in entry.entity), key=itemgetter(0))): {
                value.key: value.value for value in entry.quotas
            }
            for entry in answer.entries or ()
        }

    async def alter(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set these quotas of an entity and no others. None removes a quota."""
        entry: DictOf[types.AlterClientQuotasRequestEntry] = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [
                {"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()
            ],
        }
        await self._ask(
            ApiKey.ALTER_CLIENT_QUOTAS,
            {"entries": [entry], "validate_only": False},
            lambda answer: answer.entries,
            lambda _: "the quotas",
        )
