"""What asks a route of the console without HTTP, of whole services or of stand-ins for parts of them."""

from types import SimpleNamespace
from typing import Any

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ApiRoute, Console
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.steps import finish


def console_of(asker: Asker) -> Console:
    return Console(asker.services, SimpleNamespace(), None)  # type: ignore[arg-type]


def caller_of(asker: Asker, *, hidden: tuple[str, ...] = ()) -> Caller:
    """May do everything, with what is not `hidden`."""
    services = asker.services
    caller = Caller("ANONYMOUS", "127.0.0.1", AccessControl(services), asker.handlers, services.turns)
    caller.may = lambda right, name=CLUSTER_NAME: name not in hidden  # type: ignore[method-assign]
    return caller


def stand_in(services: Any, **more: Any) -> Any:
    """A console with these parts of its services only."""

    async def run(steps: Any) -> Any:
        return finish(steps)

    return SimpleNamespace(services=SimpleNamespace(turns=SimpleNamespace(run=run), **services), **more)


async def answer(route: ApiRoute, console: Console, caller: Any = None, **asked: Any) -> Any:
    """What a route answers to these parameters."""
    return await route.handle(console, caller, route.parameters(**asked))
