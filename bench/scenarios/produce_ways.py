"""What each way into Produce saves (`tidelog.broker.handlers.produce`): brokers that do without it."""

from bench.comparison import Case, Comparison, speed
from bench.results import Requirement
from bench.targets.tidelog import Tidelog

_NO_STREAM = "from tidelog.broker.net.dispatch import Dispatcher as d; d._look_for_stream = lambda *_: None"
_NO_ONE = "from tidelog.broker.handlers.produce import ProduceHandler as h; h._append_one = h._append_many"
_NO_RUN = "from tidelog.broker.net.produce_stream import ProduceStream as s; s._add_later = lambda *_: None"


class _Without(Tidelog):
    """Runs these statements before it starts."""

    statements: tuple[str, ...]

    def command(self) -> list[str]:
        python, _, module, *arguments = super().command()
        start = f"from {module}.command import main; raise SystemExit(main())"
        return [python, "-c", "; ".join((*self.statements, start)), *arguments]


class _NoStream(_Without):
    name = "no stream"
    statements = (_NO_STREAM,)


class _OnlyMany(_Without):
    name = "only many"
    statements = (_NO_STREAM, _NO_ONE)


class _NoRun(_Without):
    name = "no run"
    statements = (_NO_RUN,)


def _saves(name: str, without: str) -> Requirement:
    """A twentieth of the CPU at least: less is not worth a way of its own."""
    return Requirement(0.95, without, at_least=False, of=name)


PRODUCE_WAYS = Comparison(
    "Produce with fewer ways in, acks=all: connections × in flight",
    (Tidelog, _NoStream, _OnlyMany, _NoRun),
    (
        *(
            Case(
                f"one-record requests {connections}×{in_flight}",
                "raw_load",
                {"connections": connections, "in_flight": in_flight},
                speed(
                    "request",
                    cpu=(
                        _saves(Tidelog.name, _NoStream.name),
                        _saves(_NoStream.name, _OnlyMany.name),
                        *((_saves(Tidelog.name, _NoRun.name),) if in_flight > 1 else ()),
                    ),
                ),
            )
            for connections, in_flight in ((1, 1), (1, 5), (16, 5))
        ),
        Case("librdkafka, 100 B", "librdkafka_producer", {"value_bytes": 100}, speed()),
    ),
)
