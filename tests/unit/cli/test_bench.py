"""How a measurement is printed."""

import json

import pytest

from tidelog.cli.bench import Measured, _print, percentile
from tidelog.cli.main import main


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    ordered = [float(each) for each in range(1, 101)]
    assert [percentile(ordered, share) for share in (0.5, 0.99, 0.999, 0.0)] == [50, 99, 100, 1]
    assert percentile([7.0], 0.5) == 7


def test_it_is_printed_in_sentences_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(2_000, 200_000, 0.5, [1.0, 2.0, 30.0])
    _print("produced", measured, {}, False)
    assert capsys.readouterr().out == (
        "produced 2,000 records in 0.50 s: 4,000 records/s, 0.4 MB/s\n"
        "latency p50 2.00 ms, p95 30.00 ms, p99 30.00 ms, p999 30.00 ms, max 30.00 ms\n"
    )
    _print("produced", measured, {"work": "produce"}, True)
    told = json.loads(capsys.readouterr().out)
    assert (told["work"], told["records_per_second"], told["megabytes_per_second"]) == ("produce", 4_000, 0.4)
    assert told["latency_ms"] == {"p50": 2, "p95": 30, "p99": 30, "p999": 30, "max": 30}


@pytest.mark.parametrize("option", [("--acks", "2"), ("--compression", "brotli"), ("--records", "0")])
def test_what_cannot_be_is_refused_by_name(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "produce", "t", *option]) == 2
    assert option[0] in capsys.readouterr().err
