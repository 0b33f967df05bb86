"""The report of a run names each anomaly, and draws one of each name."""

from pathlib import Path
from xml.etree import ElementTree

from faults.checker import Kind
from faults.histories.report import findings_of, write_report
from faults.histories.rw_register import check
from tests.unit.faults.histories.notation import registers


def test_each_name_has_a_text_and_a_picture_with_every_step(tmp_path: Path) -> None:
    anomalies = check(registers("rx0wy1", "ry1wx0"))
    write_report(tmp_path, ["3 transactions"], anomalies)
    text = (tmp_path / "history.txt").read_text()
    assert text.startswith("3 transactions\n\n1 × G1c\n")
    assert anomalies[0].text in text
    picture = ElementTree.parse(tmp_path / "history-G1c.svg").getroot()
    drawn = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"G1c", "T1", "T2", "1 wr: it read x = 0", "2 wr: it read y = 1"} <= set(drawn)
    assert [each.kind for each in findings_of(anomalies)] == [Kind.ANOMALY]


def test_a_run_without_an_anomaly_says_so(tmp_path: Path) -> None:
    write_report(tmp_path, ["3 transactions"], [])
    assert (tmp_path / "history.txt").read_text() == "3 transactions\n\nno anomaly\n"
