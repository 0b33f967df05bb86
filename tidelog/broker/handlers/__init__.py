"""Request values in, response values out: one handler for each API that this broker serves.

A handler is a plain function: everything that depends on the order of arrival happens before it returns, and
it returns the response or an awaitable of it. `broker.served_apis` names the handler of each API.

Invariants: a refusal is a code in the response, never an exception; views in a request are not used after the
handler returned; every API that has a row is answered completely.
"""
