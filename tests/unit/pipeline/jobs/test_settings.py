"""Settings of jobs come from flags and a file, and a cluster in them is one value."""

from dataclasses import MISSING, dataclass

import pytest

from tests.unit.wire.cluster_settings import another, with_another
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.settings import (
    JOBS,
    CommonSettings,
    choose,
    cluster_setting,
    make_settings,
    names_of,
    table_of,
)
from tidelog.pipeline.offsets import OptionError
from tidelog.protocol.settings import hold_checked, setting, settings_of


@dataclass(frozen=True, slots=True)
class Settings:
    path: str = setting(MISSING, "Where.")
    topics: tuple[str, ...] = setting((), "Which.")
    partitions: tuple[int, ...] = setting((), "Of them.", low=0)
    max_rows: int | None = setting(None, "How many.", low=1)
    interval_seconds: float | None = setting(None, "How often.")
    follow: bool = setting(False, "Whether.")
    to_cluster: ClusterConfig | None = cluster_setting(None, "Into which.", prefix="to_")

    def __post_init__(self) -> None:
        hold_checked(self)


TABLES = (Settings, CommonSettings)


def test_flags_override_the_jobs_section_which_overrides_the_settings_above() -> None:
    file = {
        "path": "above",
        "max_rows": 1,
        "follow": True,
        "archive": {"path": "section", "max_rows": 2},
        "audit": {"output": "not ours"},
    }
    flags: dict[str, object] = {"path": "flag", "topics": [], "max_rows": None, "follow": None}
    assert choose("archive", file, flags, *TABLES) == {"path": "flag", "max_rows": 2, "follow": True}


def test_a_flag_that_says_no_goes_before_a_file_that_says_yes() -> None:
    assert choose("archive", {"follow": True}, {"follow": False}, *TABLES) == {"follow": False}


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ({"topic": "t"}, "unknown setting 'topic'; archive knows conf, follow, interval_seconds, master"),
        ({"archive": {"topic": "t"}}, "unknown setting 'topic'"),
        ({"cluster": "a:1"}, "unknown setting 'cluster'"),
        ({"archives": {}}, r"\[archives\] is no job; tables are \[archive\], \[audit\]"),
    ],
)
def test_names_that_mean_nothing_are_refused(file: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        choose("archive", file, {}, *TABLES)


def test_values_get_the_type_of_their_field() -> None:
    values = {"path": "p", "topics": "one", "partitions": [0, 2], "interval_seconds": 5}
    assert make_settings(Settings, values) == Settings("p", ("one",), (0, 2), None, 5.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"path": 3}, "path: expected text, got 3"),
        ({"path": "p", "topics": [1]}, r"topics: expected a list, each item text, got \[1\]"),
        ({"path": "p", "partitions": [True]}, "each item a whole number of at least 0"),
        ({"path": "p", "max_rows": "many"}, "max_rows: expected a whole number of at least 1, got 'many'"),
        ({"path": "p", "interval_seconds": float("nan")}, "interval_seconds: expected a number, got nan"),
        ({"path": "p", "follow": 1}, "follow: expected true or false, got 1"),
        (
            {"path": "p", "to_bootstrap_servers": "a:b"},
            "got 'a:b'",
        ),
        ({"path": "p", "to_client_id": "c"}, "missing: to_bootstrap_servers"),
        ({}, "missing: path"),
    ],
)
def test_values_that_a_setting_cannot_hold_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make_settings(Settings, values)


def test_every_setting_of_a_cluster_is_a_setting_of_each_cluster_of_a_job() -> None:
    """A setting that is added to the way to a cluster needs no change in a job."""
    for each in settings_of(ClusterConfig):
        given = {"path": "p", "to_bootstrap_servers": "a:1"}
        given |= {f"to_{name}": value for name, value in with_another(each).items()}
        assert choose("archive", given, {}, Settings) == given
        held = make_settings(Settings, given).to_cluster
        assert getattr(held, each.attribute) == another(each), each
        for job in JOBS:
            assert each.attribute in names_of(table_of(job))


@pytest.mark.parametrize("job", JOBS)
def test_every_setting_of_a_job_says_what_it_means(job: str) -> None:
    for each in settings_of(table_of(job)):
        assert each.description.endswith(".")


def test_a_cluster_is_never_text() -> None:
    with pytest.raises(ValueError, match="to_cluster: expected a ClusterConfig, got str"):
        Settings("p", to_cluster="a:1")  # type: ignore[arg-type]


def test_settings_of_spark_come_from_conf_and_packages() -> None:
    common = CommonSettings(
        conf=("spark.executor.memory=1g", "spark.a=b=c", "spark.jars.packages=g:old:1"),
        packages=("g:a:1,g:b:2", "g:c:3"),
    )
    assert common.spark_settings == {
        "spark.executor.memory": "1g",
        "spark.a": "b=c",
        "spark.jars.packages": "g:old:1,g:a:1,g:b:2,g:c:3",
    }
    assert CommonSettings().spark_settings == {}
