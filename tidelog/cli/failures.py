"""The expected failures of a command, and the loop that commands run on.

Owns `Failure`. Its text is one line for a terminal: what happened, and what to do. `run` first checks that a
broker listens, so that a command reports at once that there is none.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.client import AuthenticationError, ClientError
from tidelog.protocol.errors import ApiError
from tidelog.protocol.settings import ConfigError, settings_of
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from tidelog.client import Admin

Result = TypeVar("Result")

_PATIENCE_S = 5.0


class Failure(Exception):
    """An expected failure; the message is shown as it is, without a traceback."""


@contextmanager
def broker_failures(place: object = "etcd") -> Iterator[None]:
    """Raise Failure for what may be wrong with a broker's settings, its folder or its store. `place` is named
    if an OSError names no file."""
    from tidelog.broker.cluster.store import StoreError
    from tidelog.broker.storage.checkpoints import CheckpointError
    from tidelog.broker.storage.manager import DataFolderError

    try:
        yield
    except ApiError as error:
        raise Failure(error.message) from None
    except (ConfigError, StoreError, DataFolderError, CheckpointError) as error:
        raise Failure(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"cannot use {error.filename or place}: {error.strerror or error}") from None


@contextmanager
def reading(file: object) -> Iterator[None]:
    """Raise Failure if the file cannot be read, or is no text."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Failure(f"cannot read {file}: expected text in UTF-8") from None


def run(work: Coroutine[Any, Any, Result], cluster: ClusterConfig) -> Result:
    """Run `work` on a loop of its own, once a broker listens.

    Raises Failure for what the client reports, and KeyboardInterrupt.
    """
    try:
        import uvloop

        from tidelog.broker.observability.log_events import import_structlog_without_rich

        import_structlog_without_rich()
        from tidelog.cli.client_events import shown_client_events
        from tidelog.client import ClientError

        try:
            with shown_client_events():
                result: Result = uvloop.run(_run_if_reached(work, cluster))
        except ClientError as error:
            raise Failure(_for_shell(error)) from None
    finally:
        work.close()
    return result


def run_with_admin(work: Callable[[Admin], Awaitable[Result]], cluster: ClusterConfig) -> Result:
    """`run` what `work` does with an Admin of the cluster."""
    return run(_with_admin(work, cluster), cluster)


async def _with_admin(work: Callable[[Admin], Awaitable[Result]], cluster: ClusterConfig) -> Result:
    from tidelog.client import Admin

    async with Admin(cluster=cluster) as admin:
        return await work(admin)


def _for_shell(error: object) -> str:
    """One line, with the names of settings that a file for --command-config has."""
    text = " ".join(str(error).split())
    dotted = re.sub(
        rf"\b({'|'.join(each.attribute for each in settings_of(ClusterConfig) if '_' in each.attribute)})\b",
        lambda found: found[0].replace("_", "."),
        text,
    )
    return text if dotted == text else f"{dotted}. Settings are in the file of --command-config"


async def _run_if_reached(work: Coroutine[Any, Any, Result], cluster: ClusterConfig) -> Result:
    await _reach(cluster)
    return await work


async def _reach(cluster: ClusterConfig) -> None:
    """Return when any of the servers answers as a broker does. Raises Failure when none does, and
    when one refuses the user."""
    import asyncio

    from tidelog.wire.asked_apis import OWN_APIS
    from tidelog.wire.opening import open_connection

    patience_ms = int(_PATIENCE_S * 1000)
    hurried = replace(cluster, request_timeout_ms=patience_ms, connect_timeout_ms=patience_ms)
    reasons = []
    for host, port in cluster.addresses:
        try:
            if not cluster.has_tls:
                async with asyncio.timeout(_PATIENCE_S):
                    _, writer = await asyncio.open_connection(host, port)
                    writer.close()
            connection = await open_connection(host, port, hurried, OWN_APIS, on_close=lambda *_: None)
        except TimeoutError:
            reasons.append(f"{host}:{port} does not answer")
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        except AuthenticationError as error:
            raise Failure(_for_shell(error)) from None
        except ClientError as error:
            reasons.append(error.message)
        else:
            connection.close()
            return
    raise Failure(
        f"no broker can be reached ({'; '.join(reasons)}): start one with `tidelog serve`,"
        " or name another with --bootstrap-servers"
    )
