"""A file fits into a head, and a function onto a screen."""

from tests.tidy.house import functions, lines, modules, name, show

MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 70


def test_no_file_is_longer_than_600_lines() -> None:
    offences = [
        f"{name(path)}: {len(lines(path))} lines"
        for path in modules()
        if len(lines(path)) > MOST_LINES_OF_A_FILE
    ]
    assert not offences, show(offences)


def test_no_function_is_longer_than_70_lines() -> None:
    offences = [
        f"{name(path)}:{function.lineno} {function.name}: {length} lines"
        for path in modules()
        if len(lines(path)) > MOST_LINES_OF_A_FUNCTION
        for function in functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    ]
    assert not offences, show(offences)
