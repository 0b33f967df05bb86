"""What each fast path saves: brokers that lack one, in turns."""

from collections.abc import Mapping

from bench.comparison import Case, Comparison, speed
from bench.results import SUBJECT, Requirement
from bench.targets.tidelog import Tidelog

_STREAMS = "from tidelog.broker.net.produce_stream import ProduceStream as s; s."
_INSPECTION = "from tidelog.broker.storage import batch_inspection as b; b."


class _Without(Tidelog):
    """Runs these statements before it starts."""

    statements: tuple[str, ...]

    def command(self) -> list[str]:
        python, _, module, *arguments = super().command()
        start = f"from {module}.command import main; raise SystemExit(main())"
        return [python, "-c", "; ".join((*self.statements, start)), *arguments]


def _without(name: str, *statements: str) -> type[_Without]:
    return type(name, (_Without,), {"name": name, "statements": statements})


_NO_STREAM = _without("no stream", f"{_STREAMS}after = lambda *_: None")
_ONLY_MANY = _without(
    "only many",
    *_NO_STREAM.statements,
    "from tidelog.broker.handlers.produce import ProduceHandler as h; h._append_one = h._append_many",
)
_NO_RUN = _without("no run", f"{_STREAMS}_add_later = lambda *_: None")
_NO_SINGLE = _without("no single", f"{_INSPECTION}inspect_single_record = lambda *_: None")
_NO_UNIFORM = _without("no uniform", f"{_INSPECTION}inspect_uniform = lambda *_: None")
_NO_LANES = _without("no lanes", f"{_INSPECTION}inspect_in_lanes = lambda *_: None")
_NO_SYNC_QUEUE = _without(
    "no sync queue", "from tidelog.broker.storage.disk import Disk as d; d.sync_queue = lambda _: None"
)


def _saves(without: str, of: str = SUBJECT) -> Requirement:
    """A twentieth of the CPU at least: less is not worth a path of its own."""
    return Requirement(0.95, without, at_least=False, of=of)


def _case(title: str, options: Mapping[str, object], *saved: Requirement) -> Case:
    return Case(title, "raw_load", options, speed("request", cpu=saved))


_STREAM = _saves(_NO_STREAM.name)
_ONE = _saves(_ONLY_MANY.name, of=_NO_STREAM.name)
_BATCHES = {"connections": 1, "in_flight": 5, "records_per_batch": 200}

FAST_PATHS = Comparison(
    "Without one fast path each",
    (Tidelog, _NO_STREAM, _ONLY_MANY, _NO_RUN, _NO_SINGLE, _NO_UNIFORM, _NO_LANES, _NO_SYNC_QUEUE),
    (
        *(
            _case(
                f"one-record requests {connections}×{in_flight}",
                {"connections": connections, "in_flight": in_flight},
                *(_STREAM, _ONE, _saves(_NO_SINGLE.name)),
                *((_saves(_NO_RUN.name),) if in_flight > 1 else ()),
                *((_saves(_NO_SYNC_QUEUE.name),) if connections > 1 else ()),
            )
            for connections, in_flight in ((1, 1), (1, 5), (16, 5))
        ),
        _case("200 records of 100 B", _BATCHES, _saves(_NO_UNIFORM.name)),
        _case("200 records of 68 to 100 B", {**_BATCHES, "uneven_bytes": 32}, _saves(_NO_LANES.name)),
    ),
)
