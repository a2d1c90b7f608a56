"""A chat server on loopback that plays a script, in the wire protocols of OpenAI, Gemini and Anthropic alike.

with ChatServer([Scripted(status=429, retry_after=1), Scripted("hello")]) as server:
    ...  # point a client at server.url (Gemini, Anthropic) or server.openai_url (OpenAI and compatible ones)
assert server.requests[0].body["messages"]
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Scripted:
    """One response, in no particular protocol.

    A `status` other than 200 makes it an error: `error` is its message, `code` says what kind where the status does not
    ("insufficient_quota", "invalid_api_key"), `parameter` names the parameter it rejects. `finish` is "stop", "length",
    "content_filter", or "none" for a response without any choice. Token counts may be None: then no usage is reported.
    `reasoning` goes where the protocol puts it; `retry_after` sets the header of that name. `body` replaces the whole
    response body, a string as it is.
    """

    text: str = ""
    status: int = 200
    error: str = ""
    code: str = ""
    parameter: str = ""
    finish: str = "stop"
    reasoning: str = ""
    tokens_in: int | None = 2000
    tokens_out: int | None = 100
    retry_after: float | None = None
    body: object = None


@dataclass(frozen=True)
class Received:
    """One request: `headers` with lower-case names, `body` the decoded JSON (None for a GET)."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class ChatServer:
    """Answers chat requests with `script`, in order, and keeps what it was asked in `requests`.

    GET requests about models are answered from `models` (name -> what is reported of it) and use up no script;
    `listing`, if given, is the whole answer to a request for their list. Beyond the script every answer is a 400.
    """

    def __init__(
        self,
        script: Iterable[Scripted | str] = (),
        models: Mapping[str, Mapping[str, Any]] | None = None,
        listing: object = None,
    ) -> None:
        self.listing = listing
        self.script = [Scripted(one) if isinstance(one, str) else one for one in script]
        self.models = models if models is not None else {"scripted-model": {}}
        self.requests: list[Received] = []
        self._lock = threading.Lock()
        self._played = 0
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The address as OpenAI's protocol writes it."""
        return f"{self.url}/v1"

    @property
    def chats(self) -> list[Received]:
        """The requests that used up script, or asked for more of it."""
        return [one for one in self.requests if one.method == "POST"]

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self) -> Scripted:
        with self._lock:
            self._played += 1
            if self._played > len(self.script):
                over = f"the script of {len(self.script)} responses is over, this is request {self._played}"
                return Scripted(status=400, error=over)
            return self.script[self._played - 1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        chat = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # header and body in one packet, or Nagle's algorithm delays every answer

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                body = json.loads(raw) if raw else None
                self._note(body)
                path = self.path.partition("?")[0]
                if path == "/v1/chat/completions":
                    scripted = chat._next()
                    self._send(scripted, _openai(scripted, body["model"]))
                elif path == "/v1/messages":
                    scripted = chat._next()
                    self._send(scripted, _anthropic(scripted, body["model"]))
                elif path.startswith(("/v1beta/models/", "/v1/models/")) and path.endswith(":generateContent"):
                    scripted = chat._next()
                    self._send(scripted, _gemini(scripted, path.rpartition("/")[2].partition(":")[0]))
                else:
                    self._missing()

            def do_GET(self) -> None:
                self._note(None)
                path = self.path.partition("?")[0]
                name = path.rpartition("/")[2]
                if path == "/v1/models" and chat.listing is not None:
                    self._send(Scripted(), chat.listing)
                elif path == "/v1/models":
                    data = [{"id": one, "object": "model", **more} for one, more in chat.models.items()]
                    self._send(Scripted(), {"object": "list", "data": data})
                elif path == "/api/ps":  # Ollama's own list of loaded models
                    data = [{"name": one, **more} for one, more in chat.models.items()]
                    self._send(Scripted(), {"models": data})
                elif path.startswith("/v1beta/models/") and name in chat.models:
                    self._send(Scripted(), {"name": f"models/{name}", **chat.models[name]})
                elif path.startswith("/v1/models/") and name in chat.models:
                    about = {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
                    self._send(Scripted(), {**about, **chat.models[name]})
                else:
                    self._missing()

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

            def _note(self, body: object) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                with chat._lock:
                    chat.requests.append(Received(self.command, self.path, headers, body))

            def _missing(self) -> None:
                error = {"message": f"nothing is served at {self.path}", "code": 404, "status": "NOT_FOUND"}
                self._send(Scripted(status=404), {"error": error})

            def _send(self, scripted: Scripted, body: object) -> None:
                if scripted.body is not None:
                    body = scripted.body
                verbatim = isinstance(body, str)
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(scripted.status)
                self.send_header("content-type", "text/html" if verbatim else "application/json")
                self.send_header("content-length", str(len(content)))
                self.send_header("connection", "close")  # a server that has exited must be gone for its clients too
                if scripted.retry_after is not None:
                    self.send_header("retry-after", f"{scripted.retry_after:g}")
                self.end_headers()
                self.wfile.write(content)

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # HTTPServer looks up the host's name here, which can take seconds without a network.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


def _said(scripted: Scripted) -> str:
    return scripted.error or scripted.code or f"scripted error {scripted.status}"


def _openai(scripted: Scripted, model: str) -> dict[str, Any]:
    if scripted.status != 200:
        return {
            "error": {
                "message": _said(scripted),
                "type": scripted.code or "invalid_request_error",
                "param": scripted.parameter or None,
                "code": scripted.code or None,
            }
        }
    message: dict[str, Any] = {"role": "assistant", "content": scripted.text or None}
    if scripted.reasoning:
        message["reasoning_content"] = scripted.reasoning
    choice = {"index": 0, "message": message, "finish_reason": scripted.finish}
    usage = None
    if scripted.tokens_in is not None and scripted.tokens_out is not None:
        total = scripted.tokens_in + scripted.tokens_out
        usage = {"prompt_tokens": scripted.tokens_in, "completion_tokens": scripted.tokens_out, "total_tokens": total}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [] if scripted.finish == "none" else [choice],
        "usage": usage,
    }


_GOOGLE_STATUS = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
_DAILY = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}


def _gemini(scripted: Scripted, model: str) -> dict[str, Any]:
    if scripted.status != 200:
        details: list[dict[str, Any]] = []
        if scripted.code == "insufficient_quota":
            details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [_DAILY]})
        if scripted.code == "invalid_api_key":
            details.append({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"})
        status = _GOOGLE_STATUS.get(scripted.status, "UNAVAILABLE")
        return {"error": {"code": scripted.status, "message": _said(scripted), "status": status, "details": details}}
    parts: list[dict[str, Any]] = [{"text": scripted.reasoning, "thought": True}] if scripted.reasoning else []
    if scripted.text:
        parts.append({"text": scripted.text})
    finish = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(scripted.finish, "OTHER")
    # As Gemini does where there is no text: a content without parts.
    content = {"role": "model", **({"parts": parts} if parts else {})}
    response: dict[str, Any] = {"modelVersion": model, "candidates": [{"content": content, "finishReason": finish}]}
    if scripted.finish == "none":
        response = {"modelVersion": model, "promptFeedback": {"blockReason": "SAFETY"}}
    if scripted.tokens_in is not None and scripted.tokens_out is not None:
        thoughts = scripted.tokens_out // 2 if scripted.reasoning else 0
        response["usageMetadata"] = {
            "promptTokenCount": scripted.tokens_in,
            "candidatesTokenCount": scripted.tokens_out - thoughts,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": scripted.tokens_in + scripted.tokens_out,
        }
    return response


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _anthropic(scripted: Scripted, model: str) -> dict[str, Any]:
    if scripted.status != 200:
        error: dict[str, Any] = {"type": _ANTHROPIC_TYPES.get(scripted.status, "api_error"), "message": _said(scripted)}
        if scripted.code == "insufficient_quota":
            error["details"] = {"error_code": "enforced_spend_limit_reached"}
        return {"type": "error", "error": error}
    content: list[dict[str, Any]] = []
    if scripted.reasoning:
        content.append({"type": "thinking", "thinking": scripted.reasoning, "signature": "c2ln"})
    if scripted.text:
        content.append({"type": "text", "text": scripted.text})
    stop = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}.get(scripted.finish, "end_turn")
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": None
        if scripted.tokens_in is None
        else {"input_tokens": scripted.tokens_in, "output_tokens": scripted.tokens_out},
    }
