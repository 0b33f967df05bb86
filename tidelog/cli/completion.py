"""Names of topics and groups, for the completion of a shell.

A completion never prints an error and takes at most `_TIMEOUT_MS`: without a broker there are no names.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from tidelog.client import Admin

_TIMEOUT_MS = 1_000


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with `incomplete`."""
    return _names(context, incomplete, lambda admin: admin.list_topics())


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """The groups that begin with `incomplete`."""

    async def listed(admin: "Admin") -> list[str]:
        return [each.group_id for each in await admin.groups.list()]

    return _names(context, incomplete, listed)


def _names(
    context: typer.Context, incomplete: str, ask: Callable[["Admin"], Awaitable[Iterable[Any]]]
) -> list[str]:
    import asyncio

    from tidelog.client import Admin, ClientError, ClusterConfig

    async def names() -> list[str]:
        cluster = context.params.get("cluster") or ClusterConfig()
        async with asyncio.timeout(_TIMEOUT_MS / 1000), Admin(cluster=cluster) as admin:
            return [str(each) for each in await ask(admin)]

    # The client logs that no broker answers. A shell would show it in the line that is being typed.
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            known = asyncio.run(names())
        except (ClientError, OSError, TimeoutError):
            return []
    return sorted(each for each in known if each.startswith(incomplete))
