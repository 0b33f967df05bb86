"""A broker that is not there is said at once, in one line."""

import pytest

from tests.ports import free_address
from tidelog.cli.main import main


@pytest.mark.parametrize(
    "command",
    [["topic", "list"], ["topic", "describe", "t"], ["producers", "t"], ["consume", "t"]],
    ids=" ".join,
)
def test_no_broker_is_one_line_and_exit_code_1(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    address = free_address()
    assert main([*command, "-b", address]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: no broker can be reached ({address}: ")
    assert "tidelog serve" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("address", ["host:port", ":9092", "a:1,b:x", "a:99999", ""])
def test_an_address_that_is_none_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-b", address]) == 2
    assert "expected HOST:PORT" in " ".join(capsys.readouterr().err.split())


def test_the_environment_names_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = free_address()
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", address)
    assert main(["topic", "list"]) == 1
    assert address in capsys.readouterr().err
