"""A proxy of HTTP/1.1 before a server of object storage: adds a delay to each request, and counts requests and bytes.

    delay_proxy.py PORT SERVER_PORT SECONDS

GET /__counts answers what was counted since it was asked last, as JSON; a Host header goes on as it came, for signatures
hold it. Bodies pass by splice and never through this program: on the machine that is measured it must take little of the
processor. Needs Linux.
"""

import collections
import fcntl
import json
import os
import socket
import sys
import threading
import time

PIPE_BYTES = 1 << 20
counts = collections.Counter()
lock = threading.Lock()


def count(**added):
    with lock:
        counts.update(added)


class Side:
    """One end of a connection, with a buffer for bytes after a header."""

    def __init__(self, end):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end, self.rest = end, b""

    def until(self, mark):
        """Returns the bytes up to and including a mark."""
        while (at := self.rest.find(mark)) < 0:
            more = self.end.recv(65536)
            if not more:
                raise ConnectionError
            self.rest += more
        head, self.rest = self.rest[: at + len(mark)], self.rest[at + len(mark) :]
        return head

    def pass_to(self, other, length, pipe):
        """Forwards this number of bytes to the other end, or all bytes without a length."""
        passed = len(self.rest) if length is None else min(len(self.rest), length)
        if passed:
            other.end.sendall(self.rest[:passed])
            self.rest = self.rest[passed:]
        while length is None or passed < length:
            wanted = PIPE_BYTES if length is None else min(PIPE_BYTES, length - passed)
            moved = os.splice(self.end.fileno(), pipe[1], wanted)
            if not moved:
                if length is None:
                    return passed
                raise ConnectionError
            passed += moved
            while moved:
                moved -= os.splice(pipe[0], other.end.fileno(), moved)
        return passed


def value_of(head, name):
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


def pass_body(head, side, other, may_end, pipe):
    """The body after a head; one without a length goes on to the end of the connection, if it may. How many bytes."""
    if (value_of(head, b"transfer-encoding") or b"").lower() == b"chunked":
        passed = 0
        while True:
            line = side.until(b"\r\n")
            other.end.sendall(line)
            length = int(line.split(b";")[0], 16)
            passed += side.pass_to(other, length + 2, pipe) - 2
            if not length:
                return passed
    length = value_of(head, b"content-length")
    if length is None and not may_end:
        return 0
    return side.pass_to(other, None if length is None else int(length), pipe)


def answer_counts(client):
    with lock:
        body = json.dumps(counts).encode()
        counts.clear()
    client.end.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def one_request(client, server, pipe):
    head = client.until(b"\r\n\r\n")
    method, path = head.split(b" ")[:2]
    if path == b"/__counts":
        answer_counts(client)
        return
    kind = "LIST" if method == b"GET" and b"list-type" in path else method.decode()
    count(**{kind: 1})
    time.sleep(delay)
    if (value_of(head, b"expect") or b"").lower() == b"100-continue":
        client.end.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    server.end.sendall(head)
    count(bytes_sent=pass_body(head, client, server, False, pipe))
    answer = server.until(b"\r\n\r\n")
    while answer.split(b" ")[1] == b"100":
        answer = server.until(b"\r\n\r\n")
    client.end.sendall(answer)
    if method != b"HEAD" and answer.split(b" ")[1] not in (b"204", b"304"):
        count(bytes_received=pass_body(answer, server, client, True, pipe))


def serve(end):
    client, pipe = Side(end), os.pipe()
    fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        with end, socket.create_connection(("127.0.0.1", server_port)) as server_end:
            server = Side(server_end)
            while True:
                one_request(client, server, pipe)
    except (ConnectionError, OSError):
        pass
    finally:
        for part in pipe:
            os.close(part)


if __name__ == "__main__":
    port, server_port, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listening:
        while True:
            threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
