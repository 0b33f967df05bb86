"""The requests of share groups: what serves them is imported with the first one.

Owns that import, so that a broker without share groups starts as fast as before. Source: KIP-932.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext

if TYPE_CHECKING:
    from tidelog.broker.handlers.share_fetch import ShareFetchHandler
    from tidelog.broker.handlers.share_groups import ShareGroupsHandler
    from tidelog.broker.handlers.share_states import ShareStatesHandler
    from tidelog.protocol import message_types as types


class ShareHandler(GuardedHandler):
    """Serves the APIs 76 to 79, 83 to 87 and 90 to 92."""

    @cached_property
    def _groups(self) -> ShareGroupsHandler:
        from tidelog.broker.handlers.share_groups import ShareGroupsHandler

        return ShareGroupsHandler(self._services)

    @cached_property
    def _fetches(self) -> ShareFetchHandler:
        from tidelog.broker.handlers.share_fetch import ShareFetchHandler

        return ShareFetchHandler(self._services)

    @cached_property
    def _states(self) -> ShareStatesHandler:
        from tidelog.broker.handlers.share_states import ShareStatesHandler

        return ShareStatesHandler(self._services)

    def heartbeat(self, context: RequestContext, request: types.ShareGroupHeartbeatRequest) -> Any:
        return self._groups.heartbeat(context, request)

    def describe(self, context: RequestContext, request: types.ShareGroupDescribeRequest) -> Any:
        return self._groups.describe(context, request)

    def fetch(self, context: RequestContext, request: types.ShareFetchRequest) -> Any:
        return self._fetches.fetch(context, request)

    def acknowledge(self, context: RequestContext, request: types.ShareAcknowledgeRequest) -> Any:
        return self._fetches.acknowledge(context, request)

    def initialize(self, context: RequestContext, request: types.InitializeShareGroupStateRequest) -> Any:
        return self._states.initialize(request)

    def read(self, context: RequestContext, request: types.ReadShareGroupStateRequest) -> Any:
        return self._states.read(request)

    def write(self, context: RequestContext, request: types.WriteShareGroupStateRequest) -> Any:
        return self._states.write(request)

    def delete(self, context: RequestContext, request: types.DeleteShareGroupStateRequest) -> Any:
        return self._states.delete(request)

    def summary(self, context: RequestContext, request: types.ReadShareGroupStateSummaryRequest) -> Any:
        return self._states.summary(request)

    def describe_offsets(
        self, context: RequestContext, request: types.DescribeShareGroupOffsetsRequest
    ) -> Any:
        return self._groups.describe_offsets(context, request)

    def alter_offsets(self, context: RequestContext, request: types.AlterShareGroupOffsetsRequest) -> Any:
        return self._groups.alter_offsets(context, request)

    def delete_offsets(self, context: RequestContext, request: types.DeleteShareGroupOffsetsRequest) -> Any:
        return self._groups.delete_offsets(context, request)
