"""How a command finds the HTTP port of a broker, and sends requests to it.

Kafka's protocol has no field for some of what Tidelog can show. The broker's settings (DescribeConfigs) have
its HTTP port, so the user need not name it. Other brokers have no such setting: for them `find` returns None.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from ssl import create_default_context
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tidelog.cli.failures import Failure
from tidelog.cli.options import option
from tidelog.client import ClientError

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from tidelog.client import Admin
    from tidelog.wire.cluster_config import ClusterConfig

HttpAddress: TypeAlias = Annotated[
    str | None,
    option(
        "--http",
        metavar="HOST:PORT",
        help="The broker's HTTP port, with https:// before it for TLS. Needed only if it is not found.",
    ),
]
_PATIENCE_S = 10.0
_EVERYWHERE = ("", "0.0.0.0", "::")
_HTTPS = "https://"
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


def _connection(address: str, cluster: ClusterConfig) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    from tidelog.wire.security.tls import make_context

    if not address.startswith(_HTTPS):
        return HTTPConnection(address.removeprefix("http://"), timeout=_PATIENCE_S)
    context = make_context(cluster) or create_default_context()
    return HTTPSConnection(address.removeprefix(_HTTPS), timeout=_PATIENCE_S, context=context)


def _credentials(connection: HTTPConnection, cluster: ClusterConfig) -> dict[str, str]:
    from http.client import HTTPSConnection

    user, password = cluster.sasl_plain_username, cluster.sasl_plain_password
    may_be_sent = isinstance(connection, HTTPSConnection) or connection.host in _THIS_MACHINE
    if user is None or password is None or not may_be_sent:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def url(address: str) -> str:
    return address if "://" in address else f"http://{address}"


class NoAnswerError(Failure):
    """Nothing answers on the HTTP port, or something else than Tidelog."""


async def find(admin: Admin) -> str | None:
    """HOST:PORT of the HTTP port of the broker that `admin` reached first; None if it has none."""
    from tidelog.client import ConfigResource, ConfigResourceType

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
    scheme = _HTTPS if settings.get("http.security.protocol") == "SSL" else ""
    return f"{scheme}[{host}]:{port}" if ":" in host else f"{scheme}{host}:{port}"


def ask(
    address: str, cluster: ClusterConfig, method: str, path: str, body: Mapping[str, object] | None = None
) -> tuple[int, dict[str, Any]]:
    """(status, JSON object) of one request. Raises NoAnswerError, and TlsError for the files of `cluster`.

    The user and the password of `cluster` are sent by TLS only, or to this machine.
    """
    from http.client import HTTPException

    data = None if body is None else json.dumps(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    connection = _connection(address, cluster)
    try:
        try:
            headers |= _credentials(connection, cluster)
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            status, text = response.status, response.read()
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        raise NoAnswerError(
            f"{url(address)} does not answer: {error or type(error).__name__}."
            " Is it the HTTP port (http.port) of a broker?"
        ) from None
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswerError(
            f"{url(address)}{path.partition('?')[0]} does not answer as a Tidelog broker does"
        )
    return status, answer
