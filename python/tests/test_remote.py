"""Images at URLs and in buckets, read through chained URLs of fsspec."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest
from conftest import need_modules

import diskwright

# Number of blocks of fsspec's cache that are read to find a small file in an image.
SHARE_MAX = 0.25


class Ranges(BaseHTTPRequestHandler):
    """Serves one file with range requests, and counts the sent bytes."""

    contents: bytes
    sent: int

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        data, status, cls = self.contents, 200, type(self)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            first, last = int(asked[1]), int(asked[2] or len(data) - 1)
            data, status = data[first : last + 1], 206
        self.send_response(status)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{first + len(data) - 1}/{len(self.contents)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            cls.sent += len(data)
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(path: Path) -> Iterator[tuple[str, type[Ranges]]]:
    handler = type("Handler", (Ranges,), {"contents": path.read_bytes(), "sent": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/far.img", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fill(path: Path) -> None:
    with diskwright.open(path, writable=True) as image:
        (image / "etc").mkdir()
        (image / "etc" / "motd").write_bytes(b"welcome\n")
        (image / "large").write_bytes(os.urandom(16 << 20))


def test_behind_an_address(path: Path, fs: str) -> None:
    need_modules("aiohttp")
    fill(path)
    with served(path) as (url, handler):
        with fsspec.open(f"{fs}://etc/motd::{url}", http={"block_size": 64 << 10}) as file:
            assert file.read() == b"welcome\n"
        assert handler.sent < SHARE_MAX * len(handler.contents), handler.sent
        with fsspec.open(f"{fs}://etc/motd::blockcache::{url}") as file:
            assert file.read() == b"welcome\n"
        # A read-only image reports an error.
        with pytest.raises((OSError, NotImplementedError, ValueError)):
            with fsspec.open(f"{fs}://etc/new::{url}", "wb") as file:
                file.write(b"x")


def test_in_a_bucket(path: Path, fs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_modules("s3fs", "moto.server")
    from moto.server import ThreadedMotoServer

    fill(path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-test")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}"}
        bucket = fsspec.filesystem("s3", **options)
        # All servers of a process share the same buckets.
        images = f"images-{fs}"
        bucket.mkdir(images)
        bucket.put_file(str(path), f"{images}/far.img")
        with fsspec.open(f"{fs}://etc/motd::s3://{images}/far.img", s3=options) as file:
            assert file.read() == b"welcome\n"
        found, inside = fsspec.core.url_to_fs(f"{fs}://etc::s3://{images}/far.img", s3=options)
        assert found.ls(inside, detail=False) == ["etc/motd"]
        found.close()
    finally:
        server.stop()
