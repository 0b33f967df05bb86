"""Errors of Spark become one line that says what to do."""

from tidelog.cli.pipeline_errors import as_flags, reason


def test_advice_names_the_commands_own_flags() -> None:
    lost = "t-0 starts at offset 9; set failOnDataLoss=false to skip lost records"
    assert "give --no-fail-on-data-loss to skip" in as_flags("mirror", lost)
    assert as_flags("stats", lost) == lost
    gaps = "rows are missing; say so with option mirror.gaps=allow"
    assert as_flags("replay", gaps).endswith("say so with --allow-gaps")


def test_of_a_tasks_traceback_only_the_reason_is_shown() -> None:
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown:\nTraceback (most recent call last):\n"
        '  File "mirror_task.py", line 1, in write\n    raise MirrorError(\n'
        "tidelog.pipeline.mirror.session_folder.MirrorError: two tasks have rows of t-0\n\n"
        "\tat org.apache.spark.Task\n"
    )
    assert reason(text) == "two tasks have rows of t-0"
    full = "Traceback (most recent call last):\n  raise\nOSError: [Errno 28] No space left on device\n"
    assert reason(full) == "[Errno 28] No space left on device"
    assert reason(" Job aborted \n") == "Job aborted"
    assert reason("no column x\n'Filter\n") == "no column x"
    java = "An error.\n: org.a.SparkException: Job aborted\n\tat A\nCaused by: java.io.IOException: full\n"
    assert reason(java) == "full"


def test_the_error_of_a_stream_is_one_line() -> None:
    stream = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: [id = 1, runId = 2]\nThread State: RUNNABLE\n"
    )
    assert reason(stream.format("no such table")) == "no such table"
    connecting, working = (
        "Python worker failed to connect back.",
        "Python worker exited unexpectedly (crashed)",
    )
    for killed in (connecting, working, "null"):
        told = reason(stream.format(killed))
        assert told.startswith("a Python process of Spark ended")
        assert "\n" not in told


def test_a_master_that_does_not_answer_is_named_as_the_reason() -> None:
    text = (
        "An error.\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat A"
    )
    assert "does --master name the address" in reason(text)
