"""Cycles in a graph of dependencies, and their names.

Owns the search: strongly connected components, and in each the shortest cycle of each name. Pure.

Edges of the kinds ww, wr and rw decide the name. Others are orders in time: a cycle that needs one of a
session has "-process" behind its name, as in Elle.
"""

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from faults.histories.history import G0, G1C, G2_ITEM, G_SINGLE, Anomaly, Edge

WW: Final = "ww"
WR: Final = "wr"
RW: Final = "rw"
SESSION: Final = "session"
WITHIN: Final = "within"
"""The order of the steps of one transaction."""
_Graph = Mapping[Any, Sequence[Edge]]


def cycles_of(edges: Iterable[Edge]) -> list[Anomaly]:
    """The shortest cycle of each name in each component, G2-item only where there is no G-single."""
    graph: dict[Any, list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.source != edge.target:
            graph[edge.source].append(edge)
    without_reads = {WW, SESSION, WITHIN}
    found = [*_shortest(graph, G0, WW, without_reads), *_shortest(graph, G1C, WR, {*without_reads, WR})]
    for component in _components(graph, {*without_reads, WR, RW}):
        single = _through(graph, component, RW, {*without_reads, WR})
        double = None if single else _through(graph, component, RW, {*without_reads, WR, RW})
        if single or double:
            found.append(_anomaly(G_SINGLE if single else G2_ITEM, single or double or ()))
    return found


def _shortest(graph: _Graph, name: str, needed: str, kinds: Container[str]) -> Iterator[Anomaly]:
    for component in _components(graph, kinds):
        if cycle := _through(graph, component, needed, kinds):
            yield _anomaly(name, cycle)


def _anomaly(name: str, cycle: Sequence[Edge]) -> Anomaly:
    suffix = "-process" if any(edge.kind == SESSION for edge in cycle) else ""
    text = "; ".join(f"{edge.source} before {edge.target}: {edge.why}" for edge in cycle)
    return Anomaly(name + suffix, text, tuple(cycle))


def _through(
    graph: _Graph, component: Container[Any], needed: str, kinds: Container[str]
) -> tuple[Edge, ...] | None:
    """The shortest cycle within `component` that has an edge of the kind `needed`, the others of `kinds`."""
    best: tuple[Edge, ...] | None = None
    for node, edges in graph.items():
        if node not in component:
            continue
        for edge in edges:
            if edge.kind != needed or edge.target not in component:
                continue
            way = _way(graph, component, edge.target, node, kinds)
            if way is not None and (best is None or 1 + len(way) < len(best)):
                best = (edge, *way)
    return best


def _way(
    graph: _Graph, component: Container[Any], start: Any, end: Any, kinds: Container[str]
) -> tuple[Edge, ...] | None:
    arrived: dict[Any, Edge | None] = {start: None}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            way: list[Edge] = []
            while (edge := arrived[node]) is not None:
                way.append(edge)
                node = edge.source
            return tuple(reversed(way))
        for edge in graph.get(node, ()):
            if edge.kind in kinds and edge.target in component and edge.target not in arrived:
                arrived[edge.target] = edge
                waiting.append(edge.target)
    return None


def _components(graph: _Graph, kinds: Container[str]) -> list[set[Any]]:
    """Tarjan's strongly connected components with more than one node, without recursion."""
    numbers: dict[Any, int] = {}
    lowest: dict[Any, int] = {}
    open_nodes: list[Any] = []
    is_open: set[Any] = set()
    found: list[set[Any]] = []
    for root in graph:
        if root in numbers:
            continue
        path: list[tuple[Any, Iterator[Edge]]] = []
        entered: Any = root
        while True:
            if entered is not None:
                numbers[entered] = lowest[entered] = len(numbers)
                open_nodes.append(entered)
                is_open.add(entered)
                path.append((entered, iter(graph.get(entered, ()))))
                entered = None
            node, rest = path[-1]
            for edge in rest:
                if edge.kind not in kinds:
                    continue
                if edge.target not in numbers:
                    entered = edge.target
                    break
                if edge.target in is_open:
                    lowest[node] = min(lowest[node], numbers[edge.target])
            if entered is not None:
                continue
            path.pop()
            if lowest[node] == numbers[node]:
                component: set[Any] = set()
                while node not in component:
                    component.add(open_nodes.pop())
                is_open -= component
                if len(component) > 1:
                    found.append(component)
            if not path:
                break
            above = path[-1][0]
            lowest[above] = min(lowest[above], lowest[node])
    return found
