"""A broker in a container for tests: `TidelogContainer`, for testcontainers (`pip install testcontainers`).

Owns how the broker learns its address: the engine chooses the port, and the broker starts once that is known.
So several containers run side by side, and other programs keep port 9092.
"""

from typing import Any, Final, Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

_KAFKA_PORT: Final = 9092
_INSIDE_PORT: Final = 29092
_HTTP_PORT: Final = 9644
_SCRIPT: Final = "/tmp/start.sh"
_AWAIT: Final = f"until [ -s {_SCRIPT} ]; do sleep 0.05; done; exec sh {_SCRIPT}"


class TidelogContainer(DockerContainer):  # type: ignore[misc]
    """A broker with the address `get_bootstrap_server`. Containers of its network find it at port 29092 of
    its host name. A setting is a variable: `with_env("TIDELOG_TOPICS", "orders:3")`.
    """

    def __init__(self, image: str = "tidelog:0.1.0", **more: Any) -> None:
        super().__init__(image, **more)
        self.with_exposed_ports(_KAFKA_PORT, _HTTP_PORT)
        self.with_kwargs(entrypoint=["sh", "-c", _AWAIT])
        self.with_env("TIDELOG_LISTENERS", f"OUTSIDE://0.0.0.0:{_KAFKA_PORT},INSIDE://0.0.0.0:{_INSIDE_PORT}")
        self.with_env("TIDELOG_LISTENER_SECURITY_PROTOCOL_MAP", "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT")
        self.with_env("TIDELOG_INTER_BROKER_LISTENER_NAME", "INSIDE")

    def with_faults(self) -> Self:
        """Let `get_http_url` take faults: `tidelog fault cut orders --http URL`."""
        self.with_env("TIDELOG_FAULTS_ENABLE", "true")
        return self

    def start(self) -> Self:
        """Return when the broker is ready."""
        super().start()
        outside = f"OUTSIDE://{self.get_bootstrap_server()}"
        advertised = f"{outside},INSIDE://$(hostname):{_INSIDE_PORT}"
        script = f'export TIDELOG_ADVERTISED_LISTENERS="{advertised}"\nexec tidelog serve\n'
        self.copy_into_container(script.encode(), _SCRIPT)
        HttpWaitStrategy(_HTTP_PORT, "/readyz").for_status_code(200).wait_until_ready(self)
        return self

    def get_bootstrap_server(self) -> str:
        """The address for clients outside of containers, such as localhost:32768."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(_KAFKA_PORT)}"

    def get_http_url(self) -> str:
        """Of the console, the metrics and the faults."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(_HTTP_PORT)}"
