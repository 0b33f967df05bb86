"""A broker in a container, with its addresses on this machine.

Owns one container and, unless one is given, one volume: both are gone when the block ends.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from os import getpid
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.container.engine import docker
from tests.ports import free_port
from tests.several.processes import hold_ports_apart
from tests.waiting import DEADLINE_SECONDS, wait_for

_HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
_numbers = count(1)


def new_name() -> str:
    """Of a container, a volume or a network."""
    return f"tidelog-test-{getpid()}-{next(_numbers)}"


class Container:
    """A container of `image`. Its broker advertises localhost and the port that is published.

    In the environment, `{port}` is that port. Beside it, those of `processes` are published.
    """

    def __init__(self, image: str, volume: str, processes: int = 0) -> None:
        self.name = new_name()
        self._image = image
        self._volume = volume
        held = hold_ports_apart(processes + 1)
        self._ports = [each.getsockname()[1] for each in held]
        for each in held:
            each.close()
        self.port = self._ports[0]
        self.http_port = free_port()

    @property
    def bootstrap_servers(self) -> str:
        return f"localhost:{self.port}"

    def start(self, *options: str, arguments: tuple[str, ...] = (), environment: dict[str, str]) -> None:
        settings = {"TIDELOG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:{port}", **environment}
        docker(
            *("run", "--detach", "--name", self.name, "--volume", f"{self._volume}:/var/lib/tidelog"),
            *("--publish", f"127.0.0.1:{self.http_port}:9644"),
            *(
                part
                for port in self._ports
                for part in ("--publish", f"127.0.0.1:{port}:{9092 + port - self.port}")
            ),
            *(
                part
                for name, value in settings.items()
                for part in ("--env", f"{name}={value.format(port=self.port)}")
            ),
            *(*_HARDENED, *options, self._image, *arguments),
        )

    def replace_image(self, image: str) -> None:
        """Start another image after the container was removed."""
        self._image = image
        self.start(environment={})

    def inspect(self, path: str) -> str:
        """A value of `docker inspect`, by its path in Go's template language."""
        return docker("inspect", "--format", f"{{{{{path}}}}}", self.name).stdout.strip()

    def exec(self, *command: str) -> str:
        return docker("exec", self.name, *command).stdout

    def logs(self) -> str:
        return docker("logs", self.name).stdout

    def events(self) -> list[dict[str, Any]]:
        """Its log; each line must be JSON."""
        return [json.loads(line) for line in self.logs().splitlines()]

    def pid_of(self, process: str) -> int:
        """Of a process of several, in the container, as it was started first."""
        started = next(each for each in self.events() if each["event"] == "broker_started")
        return next(int(each["pid"]) for each in started["processes"] if str(each["process"]) == process)

    def health(self) -> str:
        return self.inspect(".State.Health.Status")

    def answers(self, path: str) -> int | None:
        """The status of the HTTP port; None while nobody listens."""
        try:
            with urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
                return int(answer.status)
        except URLError as error:
            return getattr(error, "code", None)
        except OSError:
            return None

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.inspect(".State.Status") in ("running", "restarting"), self.logs()
            return self.answers("/readyz") == 200

        wait_for(ready, f"a broker that is ready in {self.name}", DEADLINE_SECONDS)

    def wait_for_health(self, status: str) -> None:
        wait_for(lambda: self.health() == status, f"{self.name} to be {status}", DEADLINE_SECONDS)

    def wait_for_end(self) -> int:
        """Its exit code."""
        return int(docker("wait", self.name).stdout)


@contextmanager
def new_volume(*options: str) -> Iterator[str]:
    name = new_name()
    docker("volume", "create", *options, name)
    try:
        yield name
    finally:
        docker("volume", "rm", name)


@contextmanager
def container(
    image: str,
    *options: str,
    arguments: tuple[str, ...] = (),
    volume: str | None = None,
    environment: dict[str, str] | None = None,
    processes: int = 0,
    wait: bool = True,
) -> Iterator[Container]:
    """A container that runs; by default its broker is ready."""
    if volume is None:
        with (
            new_volume() as volume,
            container(
                image,
                *options,
                arguments=arguments,
                volume=volume,
                environment=environment,
                processes=processes,
                wait=wait,
            ) as one,
        ):
            yield one
        return
    one = Container(image, volume, processes)
    try:
        one.start(*options, arguments=arguments, environment=environment or {})
        if wait:
            one.wait_until_ready()
        yield one
    finally:
        docker("rm", "--force", "--volumes", one.name)
