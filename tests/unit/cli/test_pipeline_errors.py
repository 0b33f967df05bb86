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
    plain = "[PYTHON_DATA_SOURCE_ERROR] Failed: tidelog.pipeline.offsets.OptionError: name it\n SQLSTATE: 3"
    assert reason(plain) == "name it"
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
    for killed in ("Python worker exited unexpectedly (crashed)", "null", "", "Broken pipe"):
        told = reason(stream.format(killed))
        assert told.startswith("a Python process of Spark ended")
        assert "\n" not in told
    both = (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 0."
    )
    assert reason(stream.format(both)).startswith("another driver runs this query")
    late = reason(stream.format("Python worker failed to connect back."))
    assert "did not start within 10 seconds" in late
    assert "--master 'local[1]'" in late


def test_an_exception_without_a_text_is_named_by_its_class() -> None:
    stream = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST\n=== Q\n"
    )
    stack = "org.a.StreamingQueryException\n\tat A\nCaused by: java.lang.IllegalStateException\n\tat B\n"
    told = reason(stream.format(""), stack)
    assert told == "Spark failed with java.lang.IllegalStateException without a text (SQLSTATE XXKST)"
    assert reason(stream.format("null"), stack) == told
    for text in ("", "null"):
        ended = reason(stream.format(text), "Caused by: java.io.EOFException\n\tat A\n")
        assert ended.startswith("a Python process of Spark ended")
    assert reason(stream.format("no such table"), stack) == "no such table"
    for planner in ("java.io.EOFException", "java.io.IOException: Stream closed"):
        ended = reason(f"An error occurred while calling o1.load.\n: {planner}\n\tat A\n")
        assert ended.startswith("a Python process of Spark ended")
    java = "An error occurred while calling o1.pop.\n: java.util.NoSuchElementException\n\tat A\n"
    assert reason(java) == "Spark failed with java.util.NoSuchElementException without a text"
    python = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "/opt/etl/orders.py", line 34, in price\n    raise problem\n    ^^^^^^\n{}\n'
        " SQLSTATE: 38000\n"
    )
    assert reason(python.format("ValueError: bad price")) == "ValueError: bad price"
    both = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n: java.io.IOException: full"
    )
    assert reason(python.format(both)) == "full"
    assert reason(python.format("RuntimeError")) == "RuntimeError without a text, in orders.py, line 34"


def test_a_master_that_does_not_answer_is_named_as_the_reason() -> None:
    text = (
        "An error.\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat A"
    )
    assert "--master names the address" in reason(text)
