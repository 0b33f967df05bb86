"""A server of S3 with one bucket, in this process."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bucket_server() -> Iterator[str]:
    """Its URL. The bucket's name is `bucket`."""
    from moto.server import ThreadedMotoServer  # It takes a second of each process that collects tests.

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    connection = http.client.HTTPConnection(host, port)
    connection.request("PUT", "/bucket")
    assert connection.getresponse().status == 200
    connection.close()
    yield f"http://{host}:{port}"
    server.stop()
