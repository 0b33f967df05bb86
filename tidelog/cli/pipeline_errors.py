"""Why a job failed, in one line: the useful part of Spark's error, with the flags of the job's command.

Pure. Owns the patterns of Spark's errors, and which flag replaces which option.
"""

import re

# Errors of a Spark task that are Tidelog's, or the machine's.
_OURS = re.compile(
    r"(?:^|: )(?:tidelog\.[\w.]+|(?:OS|Permission|FileNotFound|NotADirectory)Error): (.+)$", re.MULTILINE
)
_OF_JAVA = re.compile(r"^(?::|Caused by:) [\w.$]+: (.+)$", re.MULTILINE)
_CLASS_OF_JAVA = re.compile(r"^(?::|Caused by:) ([\w.$]+)$", re.MULTILINE)
# The last frame of a Python traceback, and the exception below it.
_OF_PYTHON = re.compile(
    r'^  File "(?:[^"]*/)?([^/"]+)", (line \d+), in .*\n(?:    .*\n)*([A-Za-z_][\w.]*)(?:: (.*))?$',
    re.MULTILINE,
)
_OF_BOTH = "Py4JJavaError"
"""An error of Java in Python, which names it below."""
# What Spark writes around a stream's error, and about a Python process that ended.
_OF_STREAM = re.compile(
    r"^\[STREAM_FAILED\] .*? terminated with exception: (?:null(?= SQLSTATE))?(.*?)(?: SQLSTATE: \w+)?$"
)
# Also what Spark says of its connection to such a process, which plans or commits.
_PYTHON_ENDED = re.compile(
    r"Python worker exited|: (?:java\.io\.IOException: )?(?:Broken pipe|Connection reset|Stream closed)"
)
_CONNECTION_ENDED = "java.io.EOFException"
_UNKNOWN = "an exception"
_NOT_STARTED = "Python worker failed to connect back"
_TWO_DRIVERS = "[CONCURRENT_STREAM_LOG_UPDATE]"
_SQL_STATE = re.compile(r"SQLSTATE: (\w+)")
_STOPPED = "Cannot call methods on a stopped SparkContext"
_GOES_ON = {"set failOnDataLoss=false": "give --no-fail-on-data-loss"}
_AGAIN = {"set failOnDataLoss=false to skip lost records, with a warning in the log": "run it again"}
_BY_A_BROKER = {"give bootstrap.servers, or explicit endingOffsets in a batch": "give --bootstrap-servers"}
_FLAGS = {
    "archive": _GOES_ON | _BY_A_BROKER | {"read.path:": "--read-path:"},
    "audit": _AGAIN,
    "stats": _AGAIN | _BY_A_BROKER | {"read.path:": "--path:"},
    "mirror": _GOES_ON | {"a new checkpointLocation": "a new --checkpoint"},
    "replay": {
        "option mirror.gaps=allow": "--allow-gaps",
        "with allow_gaps": "with --allow-gaps",
        "a new checkpointLocation or session.path": "a new --session",
        "a new checkpointLocation": "a new --session",
        "another checkpointLocation or session.path": "another --session",
    },
}


def as_flags(job: str, text: str) -> str:
    """An error of the source or the sink, with the command's flags for the names of options."""
    for option, flag in _FLAGS.get(job, {}).items():
        text = text.replace(option, flag)
    return text


def reason(text: str, stack: str = "") -> str:
    """The text of our error within Spark's. Without one: another exception of Python, the cause that Java
    names, or the first line. `stack` is Java's stack trace where the text is without it."""
    if _STOPPED in text:
        return (
            "Spark's master did not answer, or ended the application. Check that it runs, and that "
            "--master names the address in its log. Spark's log has details"
        )
    if found := _OURS.findall(text):
        return str(found[-1])
    if _TWO_DRIVERS in text:
        return (
            "another driver runs this query: it uses the same checkpoint. Let one driver run: stop the"
            " others, then start the query again"
        )
    if _NOT_STARTED in text:
        return (
            "a Python process of Spark did not start within 10 seconds, because the machine is "
            "overloaded. Spark has no setting for this limit. Run the job again when the load is "
            "lower, or with fewer tasks at a time (--master 'local[1]'): stored records are kept"
        )
    classes = _CLASS_OF_JAVA.findall(text)
    cause = (classes or _CLASS_OF_JAVA.findall(stack) or [_UNKNOWN])[-1]
    first = _OF_STREAM.sub(r"\1", text.strip().partition("\n")[0]).strip()
    has_no_text = bool(classes) or not first
    if _PYTHON_ENDED.search(text) or (has_no_text and cause in (_CONNECTION_ENDED, _UNKNOWN)):
        return (
            "a Python process of Spark ended before its work was done. It may have been killed, or there was"
            " not enough memory. Run the job again; Spark's log has details"
        )
    found = _OF_PYTHON.findall(text)
    if found and not found[-1][2].endswith(_OF_BOTH):
        file, line, name, message = found[-1]
        return f"{name}: {message}" if message else f"{name} without a text, in {file}, {line}"
    if found := _OF_JAVA.findall(text):
        return str(found[-1])
    if not has_no_text:
        return first
    state = _SQL_STATE.search(text)
    return f"Spark failed with {cause} without a text" + (f" (SQLSTATE {state[1]})" if state else "")
