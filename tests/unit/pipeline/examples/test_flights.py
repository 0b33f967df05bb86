"""What is wrong with how the example is started is one line, before Spark starts."""

from pathlib import Path

import pytest

from tidelog.pipeline.examples import flights


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--csv", __file__, "-b", "nonsense:port"], "expected host:port"),
        (["--csv", "absent.csv"], "there is no absent.csv"),
        (["--folder", __file__], "Not a directory"),
    ],
)
def test_a_wrong_start_is_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flights.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


def test_a_broker_that_is_not_there_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flights, "PATIENCE_MS", 200)
    assert flights.main(["--csv", __file__, "--folder", str(tmp_path), "-b", "127.0.0.1:1"]) == 2
    assert "no broker of 127.0.0.1:1 answered within 200 ms" in capsys.readouterr().err
