"""Why a job failed, in one line: the useful part of Spark's error, with the flags of the job's command.

Pure. Owns the patterns of Spark's errors, and which flag replaces which option.
"""

from __future__ import annotations

import re

# Errors of a Spark task that are Tidelog's, or the machine's.
_OURS = re.compile(
    r"^(?:tidelog\.[\w.]+|(?:OS|Permission|FileNotFound|NotADirectory)Error): (.+)$",
    re.MULTILINE,
)
_OF_JAVA = re.compile(r"^(?::|Caused by:) [\w.$]+: (.+)$", re.MULTILINE)
# What Spark writes around a stream's error, and about a Python process that ended.
_OF_STREAM = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: (.*?)(?: SQLSTATE: \w+)?$")
_PYTHON_ENDED = re.compile(r"Python worker (?:exited|failed)|terminated with exception: null")
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


def reason(text: str) -> str:
    """The text of our error within Spark's; without one the cause that Java names, or else the first line."""
    if _STOPPED in text:
        return (
            "Spark's master did not answer, or ended the application. Does it run, and does --master name the"
            " address that it writes to its log? Spark's log says more"
        )
    if found := _OURS.findall(text):
        return str(found[-1])
    if _PYTHON_ENDED.search(text):
        return (
            "a Python process of Spark ended before its work was done. It may have been killed, or there was"
            " not enough memory. Run the job again; Spark's log says more"
        )
    found = _OF_JAVA.findall(text)
    return str(found[-1]) if found else _OF_STREAM.sub(r"\1", text.strip().partition("\n")[0])
