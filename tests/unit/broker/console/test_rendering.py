"""What a page shows is text, whatever it contains."""

from pathlib import Path

import pytest

from tidelog.broker.console import rendering
from tidelog.broker.console.rendering import Templates, count, duration, linked, moment, size, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("Größe 大きさ 🌊", "Größe 大きさ 🌊"),
        ("a\nb\tc", "a\nb\tc"),
        ("\x00\x1b[31m\x7f\x85", r"\x00\x1b[31m\x7f\x85"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("a\u200bb\ufeff\U000e0041", r"a\u200bb\ufeff\U000e0041"),
        ("\ud800", r"\ud800"),
    ],
)
def test_hidden_and_reordering_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Templates:
    (tmp_path / "base.html").write_text("{{ heading }}: {{ content }}")
    (tmp_path / "macros.html").write_text("")
    (tmp_path / "page.html").write_text('<a title="{{ name | exact }}">{{ name }}</a>{{ names.0 }}')
    monkeypatch.setattr(rendering, "_TEMPLATES", tmp_path)
    return Templates()


def test_each_value_of_a_page_is_escaped_and_an_exact_one_too(templates: Templates) -> None:
    name = "<script>alert('1')</script>\" onload=\"x&\u202e"
    page = templates.render("page.html", {"title": "A & B", "name": name, "names": [name]})
    escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34; onload=&#34;x&amp;"
    shown = escaped + r"\u202e"
    assert page == f'A &amp; B: <a title="{escaped}\u202e">{shown}</a>{shown}'


def test_a_name_that_is_not_given_is_an_error(templates: Templates) -> None:
    with pytest.raises(Exception, match="'name' is undefined"):
        templates.render("page.html", {"title": "", "names": [""]})


@pytest.mark.parametrize("page", sorted(Path(rendering.__file__).with_name("templates").glob("*.html")))
def test_no_template_has_a_script_or_a_style_of_its_own_or_takes_text_for_markup(page: Path) -> None:
    text = page.read_text()
    for forbidden in (
        "style=",
        "<style",
        " onclick=",
        "javascript:",
        "|safe",
        "| safe",
        "hx-on",
        "autoescape",
    ):
        assert forbidden not in text, forbidden
    for script in text.split("<script")[1:]:
        assert script.startswith(' src="/console/static/'), script
    assert "Markup(" not in text


@pytest.mark.parametrize("script", sorted(Path(rendering.__file__).with_name("static").glob("*.js")))
def test_no_script_reads_text_as_markup_or_as_code(script: Path) -> None:
    text = script.read_text()
    for forbidden in (
        "innerHTML",
        "outerHTML =",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ):
        assert forbidden not in text, forbidden


def test_numbers_are_for_people() -> None:
    assert [size(each) for each in (None, 0, 1023, 1024, 1536, 5 * 2**30, 2**62)] == [
        "unknown", "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "4096.0 PiB",
    ]  # fmt: skip
    assert count(1234567) == "1\u202f234\u202f567"
    assert [duration(each) for each in (None, 20, 1500, 65_000, 7_500_000, 100_000_000)] == [
        "none", "20 ms", "1.5 s", "1 min 5 s", "2 h 5 min", "1 d 3 h",
    ]  # fmt: skip
    assert moment(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert (moment(-1), moment(None), moment(2**62)) == ("none", "none", f"{2**62} ms")
    assert linked("/console/group", group="a/b&c d", offset=None) == "/console/group?group=a%2Fb%26c+d"
    assert linked("/console/group", path="p") == "/console/group?path=p"
