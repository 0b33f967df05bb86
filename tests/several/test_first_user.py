"""The first user of a cluster over etcd is made while no broker runs, as docs/authentication.md says."""

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs
from typer.testing import CliRunner

from faults.etcd import running_etcd
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.cli.cluster import app
from tidelog.client import Admin, ClientError, NewTopic


def client(broker: Broker, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "admin",
        "sasl_plain_password": password,
    }


async def problems_of(broker: Broker) -> set[str]:
    """As `tidelog cluster status` and the console show them."""
    url = f"http://127.0.0.1:{broker.http_port}/api/v1/overview"
    login = {"Authorization": "Basic " + b64encode(b"admin:secret").decode()}
    async with ClientSession(headers=login) as session, session.get(url) as answer:
        return {each["name"] for each in (await answer.json())["problems"]}


async def add_user(file: Path, password: str, *more: str) -> tuple[int, str]:
    """The exit code and the output of the command."""
    arguments = ["add-user", "admin", "--config", str(file), *more]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments, input=f"{password}\n")
    return done.exit_code, done.output + str(done.exception or "")


@pytest.mark.needs_etcd
async def test_the_first_user_is_made_in_etcd_before_a_broker_runs(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as members:
        settings = {
            "data.dir": str(tmp_path / "data"),
            "cluster.store": f"etcd:{members.endpoints[0]}",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "http.port": 0,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:admin",
            "broker.session.timeout.ms": 1_000,
        }
        file = tmp_path / "broker.toml"
        file.write_text("".join(f"{name!r} = {value!r}\n" for name, value in settings.items()))
        config = BrokerConfig.load({}, environ={}, file=file)
        assert await add_user(file, "secret") == (0, "made admin\n")
        with capture_logs() as events:
            broker = await Broker.start(config)
        # The password would protect nothing.
        assert "store_without_security" in {each["event"] for each in events}
        async with broker:
            assert "store_without_security" in await problems_of(broker)
            async with Admin(**client(broker, "secret")) as admin:
                await admin.create_topics([NewTopic("t", 1, 1, {})])
            with pytest.raises(ClientError, match="credentials"):
                await Admin(**client(broker, "other")).start()
            code, output = await add_user(file, "other")
            assert (code, "these run: 1. Stop them" in output) == (1, True)
        assert await add_user(file, "other") == (0, "changed admin\n")
        async with await Broker.start(config) as broker, Admin(**client(broker, "other")) as admin:
            assert "t" in await admin.list_topics()
        # An etcd without the catalog of this broker's cluster is the wrong one, and gets no other.
        code, output = await add_user(file, "secret", "--set", "cluster.store.prefix=elsewhere")
        assert (code, "elsewhere" in output) == (1, True), output
    code, output = await add_user(file, "secret", "--set", "cluster.store=")
    assert (code, "expected etcd:URL" in output) == (1, True)
