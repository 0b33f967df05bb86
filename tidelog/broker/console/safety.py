"""Which requests the console refuses because of where they come from.

Owns the check of changes. The name by which the port is reached is checked before (`net.http_origins`).

Invariant: a change is refused if a browser says that a page of another site asks for it, and unless its body
is `application/json`, which no form and no link of another site can send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.net.http_origins import is_of_other_site
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

JSON: Final = "application/json"


def check_change(request: web.Request) -> None:
    """Raise ApiError for a change that is of another site, or could be."""
    if is_of_other_site(request):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a page of another site may not change anything"
        )
    if request.content_type != JSON:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"send a JSON object with Content-Type: {JSON}, got {request.content_type}",
        )
