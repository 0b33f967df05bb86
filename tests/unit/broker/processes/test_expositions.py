"""Metrics of several processes become one text that Prometheus can read."""

from prometheus_client.parser import text_string_to_metric_families

from tidelog.broker.processes.expositions import merged

FIRST = """# HELP a_total Some "text" {x="y"}.
# TYPE a_total counter
a_total{topic="t x",b="} 1"} 4.0
a_total{} 1.0
# HELP only_here A gauge.
# TYPE only_here gauge
only_here 2.5e-05
# HELP none_yet No series.
# TYPE none_yet gauge
"""
SECOND = """# HELP a_total Some "text" {x="y"}.
# TYPE a_total counter
a_total{topic="t x",b="} 1"} 5.0
# HELP none_yet No series.
# TYPE none_yet gauge
none_yet{code="1"} 3.0
"""


def test_each_family_is_named_once_with_the_series_of_all_processes() -> None:
    text = merged({"0": FIRST, "1": SECOND})
    assert text.count("# TYPE a_total counter") == text.count("# TYPE none_yet gauge") == 1
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    labels = (("b", "} 1"), ("process", "0"), ("topic", "t x"))
    assert found == {
        ("a_total", labels): 4.0,
        ("a_total", (("b", "} 1"), ("process", "1"), ("topic", "t x"))): 5.0,
        ("a_total", (("process", "0"),)): 1.0,
        ("only_here", (("process", "0"),)): 2.5e-05,
        ("none_yet", (("code", "1"), ("process", "1"))): 3.0,
    }


def test_only_a_newline_ends_a_series_whatever_name_a_client_chose() -> None:
    series = 'kafka_client_x{client_id="a\u2028b\x85c\rd"} 1'
    text = merged({"1": f"# HELP kafka_client_x X.\n# TYPE kafka_client_x gauge\n{series}\n"})
    assert text.split("\n")[2] == series.replace("{", '{process="1",')
