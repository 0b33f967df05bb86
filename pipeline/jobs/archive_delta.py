"""An archive as a Delta table, through `deltalake`.

Owns how a Delta table stores the archive's offsets: each partition has an application transaction
`tidelog:TOPIC-PARTITION`, whose version is the next offset. It is in the same entry of Delta's log as the
files, so both are committed or neither. delta-rs accepts a version that the table already has, so each commit
is first compared with the table.

Invariants: a run that dies leaves files that no log entry names. Readers of Delta do not see them, and the
next run reads the same offsets again. (`vacuum` removes such files.)
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.pipeline.arrow.columnar import ARROW_SCHEMA
from tidelog.pipeline.jobs.archive_files import DraftFile
from tidelog.pipeline.jobs.archive_folder import Archive, ArchiveError, publish
from tidelog.pipeline.source.offsets import OptionError, Place

PARTITIONED_BY = ["topic", "date"]
TABLE_SCHEMA = ARROW_SCHEMA.append(pa.field("date", pa.date32()))


class DeltaArchive(Archive):
    """A Delta table in a folder."""

    kind = "delta"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._table: Any = None

    def has_foreign_log(self) -> bool:
        return (self.root / "_delta_log").is_dir()

    def recover(self) -> None:
        self._table = delta_table_class().create(
            str(self.root), TABLE_SCHEMA, mode="ignore", partition_by=PARTITIONED_BY
        )
        names = [field.name for field in self._table.schema().fields]
        partitioned_by = self._table.metadata().partition_columns
        if sorted(names) != sorted(TABLE_SCHEMA.names) or partitioned_by != PARTITIONED_BY:
            raise OptionError(
                f"{self.root} holds a Delta table with columns {', '.join(names)}, partitioned by"
                f" {', '.join(partitioned_by)}; an archive has {', '.join(TABLE_SCHEMA.names)},"
                f" partitioned by {', '.join(PARTITIONED_BY)}: name another folder"
            )

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        self._table.update_incremental()
        known = {place: self._table.transaction_version(_application(place)) for place in places}
        return {place: end for place, end in known.items() if end is not None}

    def compact(self, rows_per_file: int, compression: str) -> int:
        """By Delta's own optimize, which has sizes of its own. Older versions keep their files until a
        `vacuum`."""
        return int(self._table.optimize.compact()["numFilesRemoved"])

    def missing(self) -> list[str]:
        return missing_files(self._table)

    def commit(self, ends: Mapping[Place, int], files: Sequence[DraftFile]) -> None:
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        first: dict[Place, int] = {}
        for each in files:
            place = Place(each.topic, each.partition)
            first[place] = min(first.get(place, each.first_offset), each.first_offset)
        for place, end in self.ends(ends).items():
            if end > first.get(place, end):
                raise ArchiveError(
                    f"the table in {self.root} has the records of {place} up to offset {end} already: another"
                    " run wrote it; start only one run"
                )
        publish((Path(each.draft), self.root / each.name) for each in files)
        now = int(time.time() * 1000)
        adds = [
            AddAction(
                each.name,
                each.bytes,
                {"topic": each.topic, "date": each.date},
                now,
                data_change=True,
                stats=_stats(each),
            )
            for each in files
        ]
        moved = [Transaction(_application(place), end, now) for place, end in sorted(ends.items())]
        self._table.create_write_transaction(
            adds,
            "append",
            self._table.schema(),
            PARTITIONED_BY,
            commit_properties=CommitProperties(app_transactions=moved),
        )


def delta_table_class() -> Any:
    """deltalake's DeltaTable. Raises OptionError if deltalake is not installed."""
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise OptionError(
            "format = 'delta' needs deltalake: install Tidelog with that extra, pip install 'tidelog[delta]'"
        ) from None
    return DeltaTable


def missing_files(table: Any) -> list[str]:
    """Files that the newest version of a Delta table names and that do not exist."""
    return sorted(path for path in table.file_uris() if not Path(path).exists())


def _application(place: Place) -> str:
    return f"tidelog:{place}"


def _stats(file: DraftFile) -> str:
    """The statistics by which readers of Delta skip files."""
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {"partition": file.partition, "offset": file.first_offset},
            "maxValues": {"partition": file.partition, "offset": file.last_offset},
            "nullCount": {"partition": 0, "offset": 0},
        }
    )
