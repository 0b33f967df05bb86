"""A declared setting: what it takes, what it refuses with which words, and that a secret is never shown."""

import pickle
from dataclasses import MISSING, FrozenInstanceError, dataclass
from pathlib import PurePath
from typing import Any

import pytest

from tidelog.protocol.settings import ConfigError, Setting, as_text, hold_checked, setting, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    count: int = setting(5, "How many.", low=1, high=9)
    share: float | None = setting(None, "Which part.", low=0.5)
    is_on: bool = setting(False, "Whether it works.")
    kind: str = setting("a", "Which one.", choices=("a", "b", "c"))
    folder: PurePath | None = setting(None, "Where.")
    names: tuple[str, ...] = setting((), "For whom.")
    user_password: str = setting("", "Who asks.", secret=True, hint="only here")
    title: str = setting(MISSING, "What it is called.")
    plain: int = 3

    def __post_init__(self) -> None:
        hold_checked(self)


TABLE = {each.attribute: each for each in settings_of(Table)}


def test_a_field_is_a_setting_with_all_that_was_declared() -> None:
    assert list(TABLE) == [
        *("count", "share", "is_on", "kind", "folder", "names", "user_password", "title"),
    ]
    assert TABLE["count"] == Setting("count", int, 5, "How many.", low=1, high=9)
    assert (TABLE["share"].is_optional, TABLE["names"].is_many, TABLE["title"].is_required) == (True,) * 3
    assert TABLE["user_password"].name == "user.password"
    assert TABLE["user_password"].extras == {"hint": "only here"}


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("count", 9, 9),
        ("share", 1, 1.0),
        ("share", None, None),
        ("kind", "b", "b"),
        ("folder", "x", PurePath("x")),
        ("names", "one", ("one",)),
        ("names", ["one", "two"], ("one", "two")),
    ],
)
def test_a_value_of_its_own_type_is_held(name: str, value: Any, held: Any) -> None:
    assert getattr(Table(**{"title": "t", name: value}), name) == held


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("count", 0, "count: expected a whole number from 1 to 9, got 0"),
        ("count", "5", "count: expected a whole number from 1 to 9, got '5'"),
        ("count", True, "got True"),
        ("count", None, "got None"),
        ("share", 0.1, "share: expected a number of at least 0.5, got 0.1"),
        ("share", float("nan"), "got nan"),
        ("share", float("inf"), "got inf"),
        ("is_on", 1, "is_on: expected true or false, got 1"),
        ("kind", "A", "kind: expected a, b or c, got 'A'"),
        ("folder", "", "folder: expected a path, got ''"),
        ("names", [1], r"names: expected a list, each item text, got [1]"),
        ("title", 3, "title: expected text, got 3"),
    ],
)
def test_a_value_that_it_cannot_hold_is_refused_with_what_was_expected(
    name: str, value: Any, complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Table(**{"title": "t", name: value})
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "held"),
    [("count", " 0_7 ", 7), ("share", "0.75", 0.75), ("is_on", "Yes", True), ("is_on", "off", False)],
)
def test_text_becomes_the_value_it_says(name: str, text: str, held: Any) -> None:
    assert TABLE[name].parse(text) == held


def test_text_that_says_no_value_is_refused_by_the_outward_name() -> None:
    with pytest.raises(ConfigError, match=r"^user\.count: expected .*, got 'many' \(from here\)$"):
        TABLE["count"].parse("many", name="user.count", origin=" (from here)")


def test_a_secret_is_in_no_repr_and_no_message_and_is_kept() -> None:
    held = Table(title="t", user_password="hunter2")
    assert "hunter2" not in repr(held)
    assert "title='t'" in repr(held)
    assert pickle.loads(pickle.dumps(held)) == held
    assert pickle.loads(pickle.dumps(held)).user_password == "hunter2"
    with pytest.raises(ConfigError) as caught:
        Table(title="t", user_password=["hunter2"])  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


def test_a_table_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        Table(title="t").count = 6  # type: ignore[misc]


def test_values_are_written_as_a_person_would_type_them() -> None:
    assert [as_text(value) for value in (True, False, 5, "x", ("a", "b"), ())] == [
        "true",
        "false",
        "5",
        "x",
        "a,b",
        "",
    ]
