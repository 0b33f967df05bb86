"""What the README says of speed is what was measured."""

import json

from bench.publish import BEGIN, END, PUBLISHED, README, table


def test_the_table_of_the_readme_is_made_from_the_published_results() -> None:
    shown = README.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table(json.loads(PUBLISHED.read_text())).strip()
