"""InitProducerId and DescribeProducers: producer ids handed out, and what each partition knows of them.

Owns the two answers; the rules are in `coordinator.producer_ids` and `storage.producer_state`.

Invariants: without a transactional id the answer is always a fresh id at epoch 0, whatever id and epoch
the request names (decision A.6); a request that finds no id left waits for the next block rather than being
sent away.

Called by dispatch on the event loop. Source: KIP-98, KIP-360, KIP-664.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import structlog

from broker.coordinator.producer_ids import check_init_producer_id
from broker.handlers.context import RequestContext
from broker.services import Services
from protocol.errors import ApiError, ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

logger = structlog.get_logger(__name__)


class ProducersHandler:
    """Serves InitProducerId 0-5 and DescribeProducers 0."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def init_producer_id(
        self, context: RequestContext, request: Any
    ) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        try:
            check_init_producer_id(request.transactional_id, request.producer_id, request.producer_epoch)
        except ApiError as error:
            # The response has no room for words, so they go where the operator can find them.
            logger.warning(
                "init_producer_id_refused",
                client_id=context.header.client_id,
                client_host=context.client_host,
                transactional_id=request.transactional_id,
                error=error.code.name,
                reason=error.message,
            )
            return _no_producer_id(error.code)
        producer_id = self._services.producer_ids.try_next()
        if producer_id is not None:
            return _fresh(producer_id)
        return self._wait_for_one()

    async def _wait_for_one(self) -> dict[str, Any]:
        try:
            return _fresh(await self._services.producer_ids.next())
        except ApiError as error:
            return _no_producer_id(error.code)

    def describe_producers(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Every live producer of the partitions asked for, as the partition's leader knows it."""
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [self._describe(topic.name, index) for index in topic.partition_indexes],
                }
                for topic in request.topics
            ]
        }

    def _describe(self, topic: str, index: int) -> dict[str, Any]:
        try:
            replica = self._services.replica(topic, index)
        except ApiError as error:
            return {"partition_index": index, "error_code": error.code, "error_message": error.message}
        return {
            "partition_index": index,
            "error_code": ErrorCode.NONE,
            "active_producers": [
                {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "last_sequence": producer.last_sequence,
                    "last_timestamp": producer.last_timestamp,
                    "coordinator_epoch": producer.coordinator_epoch,
                    "current_txn_start_offset": producer.current_txn_start_offset,
                }
                for producer in replica.log.describe_producers()
            ],
        }


def _fresh(producer_id: int) -> dict[str, Any]:
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _no_producer_id(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
