"""counting_server.py PORT_FILE: serves the working directory by HTTP with ranges on a free port of the loopback, which it
writes to PORT_FILE. Each request takes 20 ms. /__counts returns requests and bytes since its last call."""
import http.server
import json
import os
import sys
import threading
import time

DELAY_SECONDS = 0.02
counts = {"requests": 0, "bytes": 0}
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(has_body=False)

    def do_GET(self):
        if self.path != "/__counts":
            return self.answer(has_body=True)
        with lock:
            body = json.dumps(counts).encode()
            counts.update(requests=0, bytes=0)
        self.head(200, len(body))
        self.wfile.write(body)

    def head(self, status, length, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def answer(self, has_body):
        time.sleep(DELAY_SECONDS)
        with lock:
            counts["requests"] += 1
        path = os.path.basename(self.path)
        if not os.path.isfile(path):
            return self.head(404, 0)
        size = os.path.getsize(path)
        start, end, status = 0, size, 200
        headers = [("ETag", f'"{os.stat(path).st_mtime_ns}"'), ("Accept-Ranges", "bytes")]
        if self.headers.get("Range"):
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, size - int(last))
            end = min(int(last) + 1, size) if first and last else size
            headers.append(("Content-Range", f"bytes {start}-{end - 1}/{size}"))
            status = 206
        self.head(status, end - start, headers)
        if has_body:
            with open(path, "rb") as file:
                file.seek(start)
                self.wfile.write(file.read(end - start))
            with lock:
                counts["bytes"] += end - start


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512


server = Server(("127.0.0.1", 0), Handler)
with open(sys.argv[1], "w") as port:
    port.write(str(server.server_address[1]))
server.serve_forever()
