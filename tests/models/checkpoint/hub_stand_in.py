"""A hub to download from, over real HTTP on this machine: repositories in memory, with faults on demand."""

import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

# Larger files are known by the digest of their content, smaller ones by that which git gives them.
LARGE = 1000

# The model of the fixture `hub`, and its only file.
NAME = "owner/small-0.6b"
LONG = bytes(range(256)) * 40


@dataclass
class Repository:
    """Files by revision, and the faults of the repository.

    Attributes:
        revisions: the files of each branch or tag, by name.
        refusal: status and error code with which files are refused, if they are.
        hidden: whether the repository is invisible without a token.
        cuts: how many answers end in the middle of a large file.
        damage: whether files arrive with other bytes than announced.
        whole: whether files are sent whole where a piece is asked for.
    """

    revisions: dict[str, dict[str, bytes]]
    refusal: tuple[int, str] | None = None
    hidden: bool = False
    cuts: int = 0
    damage: bool = False
    whole: bool = False

    def commit(self, revision):
        files = self.revisions[revision]
        return hashlib.sha1(repr((revision, sorted(files))).encode()).hexdigest()

    def files(self, revision):
        """The commit and the files that a branch, a tag or a commit means, or None."""
        for name, files in self.revisions.items():
            if revision in (name, self.commit(name)):
                return self.commit(name), files
        return None


@dataclass
class Hub:
    """The stand-in: repositories by name, whether too many requests are refused, the requests, and bytes sent."""

    repositories: dict[str, Repository]
    is_busy: bool = False
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    sent: int = 0

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def downloads(self):
        """The names of the files that were asked for, and from which byte; pieces are not among them."""
        return [
            (path.rpartition("/")[2], start)
            for method, path, start in self.requests
            if method == "GET" and "/resolve/" in path and (start is None or start.endswith("-"))
        ]


def digest(content):
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def described(name, content):
    entry = {"rfilename": name, "size": len(content), "blobId": digest(content[: LARGE - 1])}
    if len(content) >= LARGE:
        entry["lfs"] = {"sha256": digest(content), "size": len(content), "pointerSize": 100}
    return entry


def in_tree(name, content):
    """A file as a page of a repository's tree describes it, which `snapshot_download` reads."""
    entry = described(name, content)
    lfs = {"lfs": entry["lfs"] | {"oid": entry["lfs"]["sha256"]}} if "lfs" in entry else {}
    return {"type": "file", "path": name, "size": entry["size"], "oid": entry["blobId"]} | lfs


def _handler(hub):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer()

        def do_GET(self):
            self.answer()

        def answer(self):
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path, self.headers.get("Range")))
            parts = path.removeprefix("/api/models").strip("/").split("/")
            repository = hub.repositories.get("/".join(parts[:2]))
            if hub.is_busy:
                self.reply(429, {"Retry-After": "1"})
            elif repository is None or repository.hidden:
                self.reply(401, {"X-Error-Code": "RepoNotFound"})
            elif (found := repository.files("/".join(parts[3:4]) or "main")) is None:
                self.reply(404, {"X-Error-Code": "RevisionNotFound"})
            elif parts[2:3] == ["tree"]:
                page = [in_tree(name, content) for name, content in found[1].items()]
                self.reply(200, {"Content-Type": "application/json"}, json.dumps(page).encode())
            elif path.startswith("/api/"):
                commit, files = found
                listing = [described(name, content) for name, content in files.items()]
                body = {"id": "/".join(parts[:2]), "sha": commit, "siblings": listing}
                self.reply(200, {"Content-Type": "application/json"}, json.dumps(body).encode())
            elif repository.refusal:
                self.reply(repository.refusal[0], {"X-Error-Code": repository.refusal[1]})
            else:
                self.send_file(repository, found[0], found[1][parts[4]])

        def send_file(self, repository, commit, content):
            headers = {"ETag": f'"{digest(content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
            sent = bytes(len(content)) if repository.damage else content
            first, _, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")
            start, is_piece = int(first), bool(last) and not repository.whole
            if start or is_piece:
                headers["Content-Range"] = f"bytes {start}-{last or len(content) - 1}/{len(content)}"
            if is_piece:
                self.reply(206, headers, sent[start : int(last) + 1])
                return
            cut = repository.cuts > 0 and self.command == "GET" and len(content) >= LARGE
            repository.cuts -= cut
            self.reply(206 if start else 200, headers, sent[start:], stop_at=len(sent[start:]) // 2 if cut else None)

        def reply(self, status, headers, body=b"", stop_at=None):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                hub.sent += len(body[:stop_at])
                self.wfile.write(body[:stop_at])

    return Handler
