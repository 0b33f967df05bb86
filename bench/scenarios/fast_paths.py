"""What each fast path saves: brokers that lack one, in turns."""

from collections.abc import Mapping

from bench.comparison import Case, Comparison, speed
from bench.results import SUBJECT, Requirement
from bench.targets.tidelog import Tidelog

_INSPECTION = "from tidelog.broker.storage import batch_inspection as b; b."
_SINGLY = "from tidelog.broker.storage import single_record_batches as b; b."


class _Without(Tidelog):
    """Runs these statements before it starts."""

    statements: tuple[str, ...]

    def command(self) -> list[str]:
        python, _, module, *arguments = super().command()
        start = f"from {module}.command import main; raise SystemExit(main())"
        return [python, "-c", "; ".join((*self.statements, start)), *arguments]


class _NoStream(_Without):
    name = "no stream"
    statements = (
        "from tidelog.broker.net.produce_stream import ProduceStream as s; s.after = lambda *_: None",
    )


class _OnlyMany(_Without):
    name = "only many"
    statements = (
        *_NoStream.statements,
        "from tidelog.broker.handlers.produce import ProduceHandler as h; h._append_one = h._append_many",
    )


class _NoRun(_Without):
    name = "no run"
    statements = (
        "from tidelog.broker.net.produce_stream import ProduceStream as s; s._add_later = lambda *_: None",
    )


class _NoSingle(_Without):
    name = "no single"
    statements = (f"{_INSPECTION}inspect_single_record = lambda *_: None",)


class _NoUniform(_Without):
    name = "no uniform"
    statements = (f"{_INSPECTION}inspect_uniform = lambda *_: None",)


class _NoLanes(_Without):
    name = "no lanes"
    statements = (f"{_INSPECTION}inspect_in_lanes = lambda *_: None",)


class _NoSyncQueue(_Without):
    name = "no sync queue"
    statements = ("from tidelog.broker.storage.disk import Disk as d; d.sync_queue = lambda _: None",)


def _saves(without: str, of: str = SUBJECT) -> Requirement:
    """A twentieth of the CPU at least: less is not worth a path of its own."""
    return Requirement(0.95, without, at_least=False, of=of)


def _case(title: str, options: Mapping[str, object], *saved: Requirement) -> Case:
    return Case(title, "raw_load", options, speed("request", cpu=saved))


_STREAM = _saves(_NoStream.name)
_ONE = _saves(_OnlyMany.name, of=_NoStream.name)
_BATCHES = {"connections": 1, "in_flight": 5, "records_per_batch": 200}

FAST_PATHS = Comparison(
    "Without one fast path each",
    (Tidelog, _NoStream, _OnlyMany, _NoRun, _NoSingle, _NoUniform, _NoLanes, _NoSyncQueue),
    (
        *(
            _case(
                f"one-record requests {connections}×{in_flight}",
                {"connections": connections, "in_flight": in_flight},
                *(_STREAM, _ONE, _saves(_NoSingle.name)),
                *((_saves(_NoRun.name),) if in_flight > 1 else ()),
                *((_saves(_NoSyncQueue.name),) if connections > 1 else ()),
            )
            for connections, in_flight in ((1, 1), (1, 5), (16, 5))
        ),
        _case("200 records of 100 B", _BATCHES, _saves(_NoUniform.name)),
        _case("200 records of 68 to 100 B", {**_BATCHES, "uneven_bytes": 32}, _saves(_NoLanes.name)),
    ),
)
