"""Records through the command and back: JSON lines, headers, a pace."""

import json
import time
from pathlib import Path

from tests.conformance.commands import Type


def test_json_lines_carry_whole_records_from_topic_to_topic(tidelog: Type, tmp_path: Path) -> None:
    tidelog("topic", "create", "first", "-p", "2")
    tidelog("topic", "create", "second", "-p", "2")
    lines = [
        {"key": "k", "value": "v", "headers": [["a", "1"], ["b", None]], "partition": 1, "timestamp": 1_000},
        {"value": {"nested": [1]}, "partition": 1},
        {"key": "tombstone", "value": None, "partition": 1},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert tidelog("produce", "first", "--json", "-f", str(tmp_path / "lines"))[0] == 0
    read = ("--from-beginning", "--json", "--max-messages", "3")
    shown = tidelog("consume", "first", *read)[1]
    records = [json.loads(line) for line in shown.splitlines()]
    assert [(each["key"], each["value"]) for each in records] == [
        ("k", "v"),
        (None, '{"nested":[1]}'),
        ("tombstone", None),
    ]
    assert records[0]["headers"] == [["a", "1"], ["b", None]]
    assert (records[0]["timestamp"], {each["partition"] for each in records}) == (1_000, {1})
    (tmp_path / "again").write_text(shown)
    header = ("--header", "from=first")
    assert tidelog("produce", "second", "--json", "-f", str(tmp_path / "again"), *header)[0] == 0
    again = [json.loads(line) for line in tidelog("consume", "second", *read)[1].splitlines()]
    assert [{**each, "topic": "first", "headers": each["headers"][1:]} for each in again] == records
    assert again[0]["headers"][0] == ["from", "first"]
    assert tidelog("consume", "first", "--from-beginning", "--max-messages", "1", "--headers")[1] == (
        "a=1,b=null\tv\n"
    )


def test_a_line_of_json_that_is_no_record_ends_it(tidelog: Type, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"value": "a"}\nplain\n')
    code, _, error = tidelog("produce", "broken", "--json", "-f", str(tmp_path / "lines"))
    assert code == 1
    assert error.startswith("error: line 2 is not JSON")
    assert tidelog("produce", "broken", "--json", "--key-separator", ":")[0] == 2


def test_no_more_records_a_second_are_sent_and_read_than_asked_for(tidelog: Type, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n" * 11)
    began = time.monotonic()
    assert tidelog("produce", "slow", "-f", str(tmp_path / "lines"), "--rate", "40")[0] == 0
    assert time.monotonic() - began >= 0.25
    began = time.monotonic()
    read = tidelog("consume", "slow", "--from-beginning", "--max-messages", "11", "--rate", "40")
    assert read == (0, "x\n" * 11, "")
    assert time.monotonic() - began >= 0.25
