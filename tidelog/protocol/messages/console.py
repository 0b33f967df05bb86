"""AskConsole, an API of Tidelog's own: a broker asks another one for its part of what the console shows.

Declarations only.
"""

from tidelog.protocol.messages.declaration import Int16, Int32, Int64, Struct, field


class AskConsoleRequest(Struct, flexible="0+"):
    user: str
    host: str
    method: str
    path: str
    parameters: bytes
    limit: Int32 = field(default=-1)
    stream_id: Int64 = field(default=-1)  # Of the stream to go on with; -1: none.


class AskConsoleResponse(Struct, flexible="0+"):
    error_code: Int16
    error_message: str | None
    stream_id: Int64 = field(default=-1)
    answer: bytes
