"""A broker in a container for tests: `TidelogContainer`, for testcontainers (`pip install testcontainers`).

Owns how the broker learns its address: the engine chooses the port, and the broker starts once that is known.
So several containers run side by side, and other programs keep port 9092.
"""

import hashlib
import os
from typing import Any, Final, Self

from docker.errors import APIError
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.wait_strategies import HttpWaitStrategy

_KAFKA_PORT: Final = 9092
_INSIDE_PORT: Final = 29092
_HTTP_PORT: Final = 9644
_SCRIPT: Final = "/tmp/start.sh"
_AWAIT: Final = f"until [ -s {_SCRIPT} ]; do sleep 0.05; done; exec sh {_SCRIPT}"
_CONFLICT: Final = 409
_REUSE_VARIABLE: Final = "TESTCONTAINERS_REUSE_ENABLE"
_REUSE_PROPERTY: Final = "testcontainers.reuse.enable"


class _KeptContainers(DockerClient):  # type: ignore[misc]
    """Creates containers without the label of a session, so that Ryuk leaves them."""

    def create(self, image: str, **more: Any) -> Any:
        """The container of this name, or a new one."""
        for found in self.client.containers.list(all=True, filters={"name": f"^/{more['name']}$"}):
            if found.status == "running":
                return found
            # Started again it would have another port than it advertises.
            found.remove(force=True)
        try:
            return self.client.containers.run(image, detach=True, **more)
        except APIError as error:
            if error.status_code != _CONFLICT:
                raise
            return self.client.containers.get(more["name"])  # Another process was first.


class TidelogContainer(DockerContainer):  # type: ignore[misc]
    """A broker with the address `get_bootstrap_server`. Containers of its network find it at port 29092 of
    its host name. A setting is a variable: `with_env("TIDELOG_TOPICS", "orders:3")`."""

    def __init__(self, image: str = "tidelog:0.1.0", **more: Any) -> None:
        super().__init__(image, **more)
        self._docker_settings = more.get("docker_client_kw") or {}
        self._is_reused = False
        self.with_exposed_ports(_KAFKA_PORT, _HTTP_PORT)
        self.with_kwargs(entrypoint=["sh", "-c", _AWAIT])
        self.with_env("TIDELOG_LISTENERS", f"OUTSIDE://0.0.0.0:{_KAFKA_PORT},INSIDE://0.0.0.0:{_INSIDE_PORT}")
        self.with_env("TIDELOG_LISTENER_SECURITY_PROTOCOL_MAP", "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT")
        self.with_env("TIDELOG_INTER_BROKER_LISTENER_NAME", "INSIDE")

    def with_faults(self) -> Self:
        """Let `get_http_url` take faults: `tidelog fault cut orders --http URL`."""
        self.with_env("TIDELOG_FAULTS_ENABLE", "true")
        return self

    def with_reuse(self) -> Self:
        """Keep the container at the end, with its records, for the next run of the same image and settings.

        As in Testcontainers for other languages, the machine must permit it: the variable is
        TESTCONTAINERS_REUSE_ENABLE, the property of ~/.testcontainers.properties
        `testcontainers.reuse.enable`. Otherwise the container is an ordinary one. `docker rm -f` removes it.
        """
        permitted = testcontainers_config.tc_properties.get(_REUSE_PROPERTY, "false")
        self._is_reused = os.environ.get(_REUSE_VARIABLE, permitted).lower() == "true"
        return self

    def start(self) -> Self:
        """Return when the broker is ready."""
        if self._is_reused:
            network = self._network and self._network.name
            parts = (self.image, self.env, self.ports, self.volumes, self.tmpfs, network, self._kwargs)
            digest = hashlib.sha256(repr((*parts, self._command)).encode()).hexdigest()
            self.with_name(f"tidelog-{digest[:16]}")
            self._docker = _KeptContainers(**self._docker_settings)
        super().start()
        outside = f"OUTSIDE://{self.get_bootstrap_server()}"
        advertised = f"{outside},INSIDE://$(hostname):{_INSIDE_PORT}"
        script = f'export TIDELOG_ADVERTISED_LISTENERS="{advertised}"\nexec tidelog serve\n'
        self.copy_into_container(script.encode(), _SCRIPT)
        HttpWaitStrategy(_HTTP_PORT, "/readyz").for_status_code(200).wait_until_ready(self)
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove the container, unless it is reused."""
        if self._is_reused:
            self._container = None
        super().stop(force, delete_volume)

    def get_bootstrap_server(self) -> str:
        """The address for clients outside of containers, such as localhost:32768."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(_KAFKA_PORT)}"

    def get_http_url(self) -> str:
        """Of the console, the metrics and the faults."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(_HTTP_PORT)}"
