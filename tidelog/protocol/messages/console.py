"""AskConsole, an API of Tidelog's own: a broker asks another one for its part of what the console shows.

Declarations only.
"""

from tidelog.protocol.messages.declaration import Int16, Int32, Int64, Struct, field


class AskConsoleRequest(Struct, flexible="0+"):
    user: str  # The visitor, whose rights hold.
    host: str  # The address of the visitor.
    method: str  # GET or another method of HTTP, as the route declares it.
    path: str  # As the route declares it, with the names of its parameters.
    parameters: bytes  # The route's parameters as JSON.
    limit: Int32 = field(default=-1)  # At most so many rows, from the first one; -1: as the parameters say.
    stream_id: Int64 = field(default=-1)  # Of the stream to go on with; -1: none.


class AskConsoleResponse(Struct, flexible="0+"):
    error_code: Int16
    error_message: str | None
    stream_id: Int64 = field(default=-1)  # By which the next value of a stream comes; -1: no more.
    answer: bytes  # JSON, or lines of a stream; empty: it has no value yet, or no more.
