"""A proxy of HTTP/1.1 before a server of object storage: adds a delay to each request, and counts requests and bytes.

    delay_proxy.py PORT SERVER_PORT SECONDS

GET /__counts answers what was counted since it was asked last, as JSON; a Host header goes on as it came, for signatures
hold it.
"""

import asyncio
import collections
import json
import sys

port, server_port, delay = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
counts = collections.Counter()


def value_of(head, name):
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


async def body_of(head, reader, may_end):
    """The body after a head; one without a length goes on to the end of the connection, if it may."""
    if (value_of(head, b"transfer-encoding") or b"").lower() == b"chunked":
        body = b""
        while True:
            line = await reader.readline()
            rest = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
            body += line + rest
            if rest == b"\r\n":
                return body
    length = value_of(head, b"content-length")
    if length is not None:
        return await reader.readexactly(int(length))
    return await reader.read() if may_end else b""


async def one_request(reader, writer, server_reader, server_writer):
    head = await reader.readuntil(b"\r\n\r\n")
    method, path = head.split(b" ")[:2]
    if path == b"/__counts":
        body = json.dumps(counts).encode()
        counts.clear()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return
    if (value_of(head, b"expect") or b"").lower() == b"100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await body_of(head, reader, False)
    kind = "LIST" if method == b"GET" and b"list-type" in path else method.decode()
    counts[kind] += 1
    counts["bytes_sent"] += len(body)
    await asyncio.sleep(delay)
    server_writer.write(head + body)
    answer = await server_reader.readuntil(b"\r\n\r\n")
    while answer.split(b" ")[1] == b"100":
        answer = await server_reader.readuntil(b"\r\n\r\n")
    has_body = method != b"HEAD" and answer.split(b" ")[1] not in (b"204", b"304")
    answer_body = await body_of(answer, server_reader, True) if has_body else b""
    counts["bytes_received"] += len(answer_body)
    writer.write(answer + answer_body)
    await writer.drain()


async def serve(reader, writer):
    server_reader, server_writer = await asyncio.open_connection("127.0.0.1", server_port, limit=1 << 20)
    try:
        while True:
            await one_request(reader, writer, server_reader, server_writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
        server_writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20)
    async with server:
        await server.serve_forever()


asyncio.run(main())
