"""What is here is finished, and tells nothing of where it was made."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.house import CODE_PACKAGES, lines, modules, name, show, texts, tree

# Written in two parts, so that this file keeps the rules it holds.
_UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|NotImpl" r"ementedError")
_MACHINE = re.compile(r"(?<![\w.$}])/(wo" r"rk|ro" r"ot|ho" r"me|Us" r"ers)/")
_SKIPPED = re.compile(
    r"\b(pytest\.sk" r"ip|pytest\.xf" r"ail|mark\.sk" r"ip|mark\.xf" r"ail|importorsk" r"ip)"
)


def found(pattern: re.Pattern[str], paths: tuple[Path, ...]) -> list[str]:
    return [
        f"{name(path)}:{number} {line.strip()}"
        for path in paths
        for number, line in enumerate(lines(path), 1)
        if pattern.search(line)
    ]


def test_nothing_is_left_for_later() -> None:
    offences = found(_UNFINISHED, texts())
    assert not offences, show(offences)


def test_no_test_is_left_out() -> None:
    offences = found(_SKIPPED, modules("tests"))
    assert not offences, show(offences)


def test_no_file_names_a_place_on_the_machine_it_was_made_on() -> None:
    offences = found(_MACHINE, texts())
    assert not offences, show(offences)


def sleeps(node: ast.AST, in_loop: bool = False) -> Iterator[tuple[ast.Call, bool]]:
    """Every call of a sleep below `node`, and whether a while loop asks again after it."""
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and child.func.attr == "sleep"
        ):
            yield child, in_loop
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from sleeps(child, (in_loop or isinstance(child, ast.While)) and not is_function)


def test_no_test_relies_on_a_sleep() -> None:
    """sleep(0) lets others run; a sleep in a while loop polls a condition; any other one is a race."""
    offences = [
        f"{name(path)}:{call.lineno} {ast.unparse(call)}"
        for path in modules("tests")
        if ".sleep(" in path.read_text()
        for call, in_loop in sleeps(tree(path))
        if not in_loop and not (call.args and ast.unparse(call.args[0]) == "0")
    ]
    assert not offences, show(offences)


def test_no_rule_at_run_time_is_a_bare_assert() -> None:
    """`python -O` leaves them out."""
    offences = [
        f"{name(path)}:{node.lineno} {ast.unparse(node)}"
        for path in modules(*CODE_PACKAGES)
        if any(line.lstrip().startswith("assert") for line in lines(path))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Assert)
    ]
    assert not offences, show(offences)
