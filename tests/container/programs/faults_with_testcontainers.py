"""Two brokers in containers side by side: one takes faults, and containers of its network find it."""

import subprocess
import sys

from testcontainers.core.network import Network

from tidelog.testcontainers import TidelogContainer

_TIDELOG = (sys.executable, "-m", "tidelog")


def told(*command: str) -> str:
    return subprocess.run([*_TIDELOG, *command], check=True, capture_output=True, text=True).stdout


def test_one_of_two_brokers_takes_faults_and_is_found_inside() -> None:
    with (
        Network() as network,
        TidelogContainer("tidelog:0.1.0") as plain,
        TidelogContainer("tidelog:0.1.0").with_faults().with_network(network) as broken,
    ):
        assert plain.get_bootstrap_server() != broken.get_bootstrap_server()
        told("topic", "create", "orders", "-b", broken.get_bootstrap_server())
        assert told("topic", "list", "-b", plain.get_bootstrap_server()) == ""
        told(
            "fault", "cut", "orders", "--count", "1", "--http", broken.get_http_url().removeprefix("http://")
        )
        host = broken.exec(["hostname"]).output.decode().strip()
        with TidelogContainer("tidelog:0.1.0").with_network(network) as third:
            listed = third.exec(["tidelog", "topic", "list", "-b", f"{host}:29092"])
            assert listed.output.decode() == "orders\n"
