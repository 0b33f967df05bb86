"""The answer of a route for the whole cluster: of this broker, of another one, or of all of them.

Owns which brokers are asked, according to the route's `Spread`. Invariants: a single broker asks no other; an
asked broker asks no other, so there are no cycles.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from msgspec.structs import replace

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ApiRoute, Console, Parameters
from tidelog.broker.console.spread import MOST_JOINED_ROWS
from tidelog.protocol.errors import ApiError, ErrorCode


async def answer_of_cluster(console: Console, route: ApiRoute, caller: Caller, parameters: Parameters) -> Any:
    """Raises ApiError."""
    spread, services = route.spread, console.services
    if spread is None or console.others.is_alone:
        return await route.handle(console, caller, parameters)
    if spread.join is None:
        node_id = spread.broker(services, parameters)
        if node_id == services.node_id:
            return await route.handle(console, caller, parameters)
        return await console.others.ask(node_id, caller, route, parameters)
    limit = spread.rows(parameters)
    if limit > MOST_JOINED_ROWS:
        message = f"of several brokers the first {MOST_JOINED_ROWS} rows can be shown: search for others"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    wide: Any = parameters if limit < 0 else replace(parameters, offset=0, limit=limit)
    own = await route.handle(console, caller, wide)
    answers, unanswered = await console.others.ask_all(caller, route, parameters, limit)
    joined = spread.join(services, {services.node_id: own, **answers}, parameters)
    return {**joined, "unanswered": unanswered}


async def values_of_cluster(
    console: Console, route: ApiRoute, caller: Caller, parameters: Parameters
) -> AsyncGenerator[Any, None]:
    """The values of a stream. Raises ApiError."""
    if route.spread is not None and not console.others.is_alone:
        node_id = route.spread.broker(console.services, parameters)
        if node_id != console.services.node_id:
            return await console.others.stream(node_id, caller, route, parameters)
    values: Any = route.handle(console, caller, parameters)
    return await values if asyncio.iscoroutine(values) else values  # type: ignore[no-any-return]
