"""How a command finds the HTTP port of the broker that it asks, and asks there.

Kafka's protocol has no word for some of what Tidelog knows. The broker's own settings (DescribeConfigs) name
its HTTP port, so nobody has to; another make of broker has no such setting, and `find` says None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tidelog.cli.failures import Failure

if TYPE_CHECKING:
    from tidelog.client import Admin

HttpAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="The broker's HTTP port. Needed only if the broker does not name it.",
        show_default=False,
    ),
]
_PATIENCE_S = 10.0
_EVERYWHERE = ("", "0.0.0.0", "::")


class NoAnswerError(Failure):
    """Nobody, or something else than Tidelog, answers on the HTTP port."""


async def find(admin: Admin) -> str | None:
    """HOST:PORT of the HTTP port of the broker that `admin` reached first; None where it has none."""
    from tidelog.client import ConfigResource, ConfigResourceType
    from tidelog.client.errors import ClientError

    cluster = await admin.describe_cluster()
    by_id = {node.node_id: node for node in cluster.brokers}
    node = by_id.get(cluster.controller_id) or next(iter(by_id.values()), None)
    if node is None:
        return None
    resource = ConfigResource(ConfigResourceType.BROKER, str(node.node_id))
    try:
        entries = (await admin.describe_configs([resource]))[resource]
    except ClientError:
        return None
    settings = {entry.name: entry.value or "" for entry in entries}
    port = settings.get("http.port", "")
    if not port.isdigit() or port == "0":
        return None
    host = settings.get("http.host", "")
    if host in _EVERYWHERE:
        host = node.host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ask(
    address: str, method: str, path: str, body: Mapping[str, object] | None = None
) -> tuple[int, dict[str, Any]]:
    """(status, JSON object) of one request. Raises NoAnswerError."""
    from http.client import HTTPConnection, HTTPException

    data = None if body is None else json.dumps(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    try:
        connection = HTTPConnection(address, timeout=_PATIENCE_S)
        try:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            status, text = response.status, response.read()
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        raise NoAnswerError(f"http://{address} does not answer: {error or type(error).__name__}") from None
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswerError(
            f"http://{address}{path.partition('?')[0]} does not answer as a Tidelog broker does"
        )
    return status, answer
