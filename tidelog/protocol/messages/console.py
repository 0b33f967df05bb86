"""AskConsole, an API of Tidelog's own: a broker asks another one for its part of what the console shows.

Declarations only.
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message

ASK_CONSOLE_REQUEST = message(
    "AskConsoleRequest",
    "0+",
    Field("user", "string"),
    Field("host", "string"),
    Field("method", "string"),
    Field("path", "string"),
    Field("parameters", "bytes"),
    Field("limit", "int32", default=-1),
    Field("stream_id", "int64", default=-1),
)

ASK_CONSOLE_RESPONSE = message(
    "AskConsoleResponse", "0+", *ERROR, Field("stream_id", "int64", default=-1), Field("answer", "bytes")
)
