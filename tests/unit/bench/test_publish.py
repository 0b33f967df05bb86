"""What the documents say of speed is what was measured."""

import pytest

from bench.publish import END, PAGES, Page, published_table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.published.stem} in {page.document.stem}")
def test_the_table_of_a_document_is_made_from_its_published_results(page: Page) -> None:
    _, begin, rest = page.document.read_text().partition(page.begin)
    shown, end, _ = rest.partition(END)
    assert (begin, shown.strip(), end) == (page.begin, published_table(page).strip(), END)
