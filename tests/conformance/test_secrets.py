"""What a broker that runs and commands show of passwords: nothing, wherever a user may look."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Certificates
from tests.conformance.commands import typist
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.cli.command_config import read_command_config
from tidelog.client import Admin, ClusterConfig, ConfigResource

SECRET = "hunter2"
PASSWORD, WRONG, OF_KEY = f"right-{SECRET}", f"wrong-{SECRET}", f"key-{SECRET}"
BROKER = 4


def configure(folder: Path) -> None:
    """The broker's settings. Its key has a password."""
    certificates = Certificates(folder)
    chain = Path(certificates.keystore).read_text().partition("-----BEGIN CERTIFICATE")
    encrypt = ["openssl", "pkcs8", "-topk8", "-in", certificates.keystore, "-passout", "stdin"]
    key = subprocess.run(encrypt, input=OF_KEY, check=True, capture_output=True, text=True).stdout
    (folder / "encrypted.pem").write_text(f"{key}{''.join(chain[1:])}")
    settings = {
        "data.dir": folder / "data",
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": folder / "encrypted.pem",
        "ssl.key.password": OF_KEY,
    }
    text = "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
    (folder / "broker.toml").write_text(f'{text}"http.port" = 0\n')


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(process id, what it says about its start) of a broker."""

    def started() -> dict[str, Any]:
        events = map(json.loads, log.read_text().splitlines())
        return next((each for each in events if each["event"] == "broker_started"), {})

    command, log = [sys.executable, "-m", "tidelog", "serve", "--config", "broker.toml"], folder / "log"
    with log.open("wb") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:
        try:
            yield process.pid, wait_for(started, "the broker", DEADLINE_SECONDS)
        finally:
            process.terminate()


def write_client(file: Path, password: str, port: int) -> str:
    """A client's properties; the file's name."""
    file.write_text(
        f"bootstrap.servers=127.0.0.1:{port}\nsecurity.protocol=SASL_SSL\n"
        f"ssl.truststore.location={file.parent / 'authority.pem'}\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="alice" password="{password}";\n'
    )
    return str(file)


def metrics(port: int) -> str:
    known = {"Authorization": f"Basic {b64encode(f'alice:{PASSWORD}'.encode()).decode()}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=known)
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        return str(answer.read().decode())


async def described(file: str) -> str:
    async with Admin(cluster=ClusterConfig(**read_command_config(Path(file)))) as admin:
        return str(await admin.describe_configs([ConfigResource(BROKER, "1")]))


def test_a_broker_that_runs_and_commands_show_no_password(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tidelog, shown = typist(capfd), {}
    configure(tmp_path)
    (tmp_path / "password").write_text(PASSWORD)
    file = str(tmp_path / "password")
    add = ("storage", "add-user", str(tmp_path / "data"), "alice", "--password-file", file)
    assert tidelog(*add)[0] == 0
    (tmp_path / "records").write_text("v\n")
    with serving(tmp_path) as (pid, started):
        right = write_client(tmp_path / "right", PASSWORD, started["port"])
        wrong = write_client(tmp_path / "wrong", WRONG, started["port"])
        produce = (
            "produce",
            "t",
            "--create-topic",
            "--file",
            str(tmp_path / "records"),
            "--command-config",
            right,
        )
        assert (answer := tidelog(*produce))[0] == 0, answer
        for what in ("cmdline", "environ"):
            shown[what] = Path(f"/proc/{pid}/{what}").read_bytes().decode()
        shown["the environment that commands leave to other programs"] = str(os.environ)
        shown["tidelog config"] = str(tidelog("config", "--config", str(tmp_path / "broker.toml")))
        shown["a wrong password"] = str(tidelog("topic", "list", "--command-config", wrong))
        shown["metrics"] = metrics(started["http_port"])
        shown["DescribeConfigs"] = asyncio.run(described(right))
    for path in (tmp_path / "log", *(tmp_path / "data").rglob("*")):
        if path.is_file():
            shown[str(path)] = path.read_bytes().decode(errors="replace")
    assert [place for place, text in shown.items() if SECRET in text] == []
    for place, word in {
        "cmdline": "broker.toml",
        "tidelog config": "ssl.key.password",
        "a wrong password": "refuses the authentication",
        "metrics": "failed_authentication",
        "DescribeConfigs": "ssl.key.password",
        str(tmp_path / "log"): "authentication_failed",
        str(tmp_path / "data" / "cluster.copy"): "alice",
    }.items():
        assert word in shown[place], place
