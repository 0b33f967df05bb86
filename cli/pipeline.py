"""`tidelog pipeline`: the jobs on Spark, a command each.

Owns their flags, which are the names of the job's settings; a TOML file (`--settings`) takes the same names,
above all tables or in a table of the job's name, and flags go before it. A flag that is left out is None, so
that the file and then the job's own default decide. What is done with them is in `cli.pipeline_run`.
Spark is imported when a job runs: it takes seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tidelog.cli.pipeline_run import run_job

app = typer.Typer(no_args_is_help=True, help="Jobs on Spark over topics.")

BootstrapServers: TypeAlias = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "-b", metavar="HOST:PORT", help="Broker to ask.", show_default=False),
]
SettingsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="Settings as TOML; flags go first.", show_default=False),
]
Master: TypeAlias = Annotated[str | None, typer.Option(help="Spark master.", show_default="local[*]")]
MetricsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep the job's numbers there for Prometheus.", show_default=False),
]
Topics: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics.", show_default=False)
]


def _option(text: str, metavar: str | None = None, default: str | bool = False) -> typer.models.OptionInfo:
    """A flag that is None where it is left out; `default` is what the job takes then."""
    found: typer.models.OptionInfo = typer.Option(help=text, metavar=metavar, show_default=default)
    return found


@app.callback()
def _pipeline() -> None:
    """Jobs on Spark over topics."""


@app.command()
def audit(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Topics; all below --path if none.", show_default=False),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    path: Annotated[
        Path | None,
        _option("Read segment files below it; up to the high watermark if a broker is named too.", "DIR"),
    ] = None,
    output: Annotated[Path | None, _option("Folder for the findings as Parquet; replaced.", "DIR")] = None,
    settings: SettingsFile = None,
    master: Master = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Look for duplicates, gaps, reordering and epoch regressions; exits with 1 when there is any."""
    run_job("audit", locals())


@app.command()
def archive(
    topics: Topics = None,
    bootstrap_servers: BootstrapServers = None,
    path: Annotated[Path | None, _option("Folder of the archive, the same for each run.", "DIR")] = None,
    format: Annotated[str | None, _option("parquet or delta.", default="parquet")] = None,
    read_path: Annotated[
        Path | None, _option("Read segment files in this data folder instead of fetching.", "DIR")
    ] = None,
    max_rows: Annotated[
        int | None, _option("About so many records are committed together.", default="5000000")
    ] = None,
    rows_per_file: Annotated[int | None, _option("At most so many in a file.", default="1000000")] = None,
    interval_seconds: Annotated[
        float | None, _option("Go on, and look for new records so often; else end at what is there.")
    ] = None,
    compression: Annotated[str | None, _option("zstd, snappy, gzip, lz4 or none.", default="zstd")] = None,
    min_partitions: Annotated[int | None, _option("Read with at least so many tasks.")] = None,
    isolation_level: Annotated[
        str | None, _option("read_uncommitted or read_committed.", default="read_uncommitted")
    ] = None,
    fail_on_data_loss: Annotated[
        bool | None, _option("End where offsets are gone from the log; else count them.", default="fail")
    ] = None,
    settings: SettingsFile = None,
    master: Master = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Keep topics as Parquet files by date, or as a Delta table, each record once, run after run."""
    run_job("archive", locals())


@app.command()
def mirror(
    topics: Topics = None,
    bootstrap_servers: BootstrapServers = None,
    topic_pattern: Annotated[
        str | None, _option("All topics that fit this regular expression, instead of TOPIC.", "REGEX")
    ] = None,
    to_bootstrap_servers: Annotated[
        str | None, _option("Broker to write to; the same if there is none.", "HOST:PORT")
    ] = None,
    checkpoint: Annotated[
        Path | None, _option("The mirror's own folder, the same for each run.", "DIR")
    ] = None,
    rename: Annotated[list[str] | None, _option("New name of a topic; may be repeated.", "FROM=TO")] = None,
    prefix: Annotated[str | None, _option("What comes before the names of all other topics.", "TEXT")] = None,
    select: Annotated[str | None, _option("What becomes of a record.", "SQL")] = None,
    where: Annotated[str | None, _option("Which records are taken.", "SQL")] = None,
    max_offsets_per_trigger: Annotated[int | None, _option("At most so many records in a batch.")] = None,
    trigger_seconds: Annotated[
        float | None, _option("Go on, a batch every so often; else end at what is there.")
    ] = None,
    compression_type: Annotated[
        str | None, _option("none, gzip, snappy, lz4 or zstd.", default="none")
    ] = None,
    fail_on_data_loss: Annotated[
        bool | None, _option("End where offsets are gone from the source; else count them.", default="fail")
    ] = None,
    settings: SettingsFile = None,
    master: Master = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Copy topics to others, each record once and in order, though anything is killed on the way."""
    run_job("mirror", locals())


@app.command()
def replay(
    topics: Topics = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", metavar="HOST:PORT", help="Broker to write to.")
    ] = None,
    archive: Annotated[Path | None, _option("Replay the archive in this folder.", "DIR")] = None,
    from_bootstrap_servers: Annotated[
        str | None, _option("Replay topics of this broker; of --bootstrap-servers if none.", "HOST:PORT")
    ] = None,
    to_topic: Annotated[
        str | None, _option("Topic to write to; else each record goes to the one it came from.", "TOPIC")
    ] = None,
    partitions: Annotated[list[int] | None, _option("Only this one; may be repeated.")] = None,
    start_offset: Annotated[int | None, _option("From this offset on, in every partition.")] = None,
    end_offset: Annotated[int | None, _option("Up to before this offset, in every partition.")] = None,
    start_time: Annotated[str | None, _option("Records of this time and later, as ISO 8601.", "TIME")] = None,
    end_time: Annotated[str | None, _option("Records before this time.", "TIME")] = None,
    where: Annotated[str | None, _option("Which records are taken.", "SQL")] = None,
    select: Annotated[str | None, _option("What becomes of a record.", "SQL")] = None,
    session: Annotated[
        Path | None, _option("The replay's own folder, the same for each run; an archive has one.", "DIR")
    ] = None,
    max_rows: Annotated[
        int | None, _option("About so many records are replayed together.", default="2000000")
    ] = None,
    compression_type: Annotated[
        str | None, _option("none, gzip, snappy, lz4 or zstd.", default="none")
    ] = None,
    allow_gaps: Annotated[bool | None, _option("Offsets may be missing in it.", default="no-allow")] = None,
    settings: SettingsFile = None,
    master: Master = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Bring an archive, or offsets of topics, back into a topic, each record once, and go on after a kill."""
    run_job("replay", locals())


@app.command()
def stats(
    topics: Topics = None,
    bootstrap_servers: BootstrapServers = None,
    path: Annotated[
        Path | None, _option("Read segment files in this data folder instead of fetching.", "DIR")
    ] = None,
    window: Annotated[
        str | None, _option('Length of a window, such as "10 seconds" or "2 hours".', default="1 minute")
    ] = None,
    follow_seconds: Annotated[
        int | None, _option("Watch what arrives in that time instead of reading what is there.")
    ] = None,
    output: Annotated[Path | None, _option("Folder for the windows as Parquet; replaced.", "DIR")] = None,
    plot: Annotated[Path | None, _option("Draw throughput, sizes and lag into this PNG.", "FILE")] = None,
    settings: SettingsFile = None,
    master: Master = None,
    metrics_file: MetricsFile = None,
) -> None:
    """Tell how many records and bytes a second, how large, and how late, by partition and window."""
    run_job("stats", locals())
