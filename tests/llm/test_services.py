"""Every service on the network through its real SDK: replies, faults, retries, keys kept secret.

It tests `llm.anthropic` and `llm.gemini`.
"""

from __future__ import annotations

import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from chat_server import ChatServer, Scripted
from services import ANTHROPIC, COMPATIBLE, GEMINI, OPENAI, PROMPT, SERVICES, Asked, Service

from policygen.errors import ProviderError, TransientProviderError, UsageError
from policygen.llm import LLMOptions, connect
from policygen.llm.messages import Message


def test_a_reply_has_text_counts_price_and_time(service: Service, asked: Asked) -> None:
    counted = Scripted("| 0 | left |", tokens_in=1000, tokens_out=500)
    with ChatServer([counted, counted, Scripted("a" * 400, tokens_in=None, tokens_out=None)]) as server:
        provider = service.connect(server.url)
        reply = asked(provider)
        priced, uncounted = (asked(provider, prices=(1e6, 2e6)) for _ in range(2))
    assert reply.text == "| 0 | left |"
    assert reply.model == service.model
    assert (reply.tokens_in, reply.tokens_out) == (1000, 500)
    assert not reply.truncated
    assert reply.reasoning == ""
    assert reply.finish_reason in ("stop", "STOP", "end_turn")
    assert 0 < reply.seconds < 10
    assert reply.usd is None  # a hosted model's price is that of its own address
    assert priced.usd == pytest.approx(1000 + 2 * 500)  # the user's own prices win
    assert (uncounted.tokens_in, uncounted.tokens_out) == (None, None)
    assert uncounted.usd == PROMPT.estimated_tokens + 2 * 100


def test_what_a_reply_holds_beside_its_answer(service: Service, asked: Asked) -> None:
    cases = [
        (Scripted("the answer", reasoning="the thoughts"), ("the answer", "the thoughts", False)),
        (Scripted("<think>hm</think>\nthe answer"), ("the answer", "hm", False)),
        (Scripted("<think>first I would"), ("", "first I would", True)),  # cut off while thinking
        (Scripted("", finish="length", reasoning="let me see", tokens_out=40), ("", "let me see", True)),
        (Scripted("| 0 | le", finish="length"), ("| 0 | le", "", True)),
        (Scripted(""), ("", "", False)),
        (Scripted(finish="none"), ("", "", False)),
        (Scripted(body={}), ("", "", False)),
        (Scripted("", finish="content_filter"), ("", "", False)),
    ]
    with ChatServer([script for script, _ in cases]) as server:
        provider = service.connect(server.url)
        for _, expected in cases:
            reply = asked(provider)
            assert (reply.text, reply.reasoning, reply.truncated) == expected
    assert reply.finish_reason in ("content_filter", "SAFETY", "refusal")


@pytest.mark.filterwarnings("ignore:.*does not take:UserWarning")
def test_messages_limit_and_settings_are_sent_with_the_key(service: Service, asked: Asked) -> None:
    more = (Message("assistant", "my answer"), Message("user", "repair it"))
    prompt = replace(PROMPT, messages=PROMPT.messages + more, seed=9)
    settings = {"reasoning_effort": "low", "extra_body": {"top_k": 20}}
    with ChatServer(["ok"]) as server:
        asked(service.connect(server.url, **settings), prompt, max_output_tokens=177)
    (request,) = server.requests
    body = request.body
    assert "temperature" not in str(body)
    assert body["top_k"] == 20
    if service is GEMINI:
        assert request.headers["x-goog-api-key"] == service.key
        assert body["systemInstruction"]["parts"] == [{"text": "You improve policies."}]
        turns = [(turn["role"], turn["parts"][0]["text"]) for turn in body["contents"]]
        thinking = {"thinking_level": "LOW"}  # as the SDK writes it
        assert body["generationConfig"] == {"maxOutputTokens": 177, "seed": 9, "thinkingConfig": thinking}
        answered = "model"
    else:
        assert request.headers["authorization"] == f"Bearer {service.key}"
        turns = [(turn["role"], turn["content"]) for turn in body["messages"]]
        answered = "assistant"
        if service is ANTHROPIC:  # which takes no seed
            assert body["system"] == "You improve policies."
            assert (body["output_config"], body.get("seed")) == ({"effort": "low"}, None)
        else:
            assert turns.pop(0) == ("system", "You improve policies.")
            assert (body["reasoning_effort"], body["seed"]) == ("low", 9)
        assert body["max_completion_tokens" if service is OPENAI else "max_tokens"] == 177
    assert turns == [("user", "Here is one. Improve it."), (answered, "my answer"), ("user", "repair it")]


def test_a_rate_limit_is_waited_out_as_asked_and_an_overloaded_server_asked_again(
    service: Service, asked: Asked
) -> None:
    overloaded = [Scripted(status=status) for status in (408, 500, 503)]
    with ChatServer([Scripted(status=429, retry_after=7), *overloaded, Scripted("ok")]) as server:
        assert asked(service.connect(server.url)).text == "ok"
    assert asked.waits[0] == 7.0
    assert all(wait > 0 for wait in asked.waits)
    assert asked.charges == len(server.requests) == 5


def test_spent_credit_is_final(service: Service, asked: Asked) -> None:
    script = [Scripted(status=429, code="insufficient_quota", error="You exceeded your quota"), Scripted("never")]
    with ChatServer(script) as server, pytest.raises(ProviderError, match="You exceeded your quota") as caught:
        asked(service.connect(server.url))
    assert not isinstance(caught.value, TransientProviderError)
    assert "gave up" not in str(caught.value)
    assert (asked.charges, asked.waits, len(server.requests)) == (1, [], 1)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        ({"message": "the server behind is busy", "code": 429}, True),
        ({"message": "Provider returned error", "code": "502"}, True),
        ({"message": "The model is overloaded, please try again later"}, True),
        ({"message": "no such model", "code": 404}, False),
        ({"message": "wrong key", "code": 401}, False),
        ("Unexpected endpoint or method. (POST /chat/completions)", False),
    ],
)
def test_an_error_inside_a_200_is_an_error_of_its_kind(
    service: Service, asked: Asked, error: object, passing: bool
) -> None:
    words = str(error["message"] if isinstance(error, dict) else error)
    with ChatServer([*[Scripted(body={"error": error})] * 2, Scripted("ok")]) as server:
        provider = service.connect(server.url)
        with pytest.raises(TransientProviderError if passing else ProviderError) as caught:
            provider.complete(PROMPT, 100)
        assert words[:20] in str(caught.value)
        if passing:
            assert asked(provider).text == "ok"
        else:
            with pytest.raises(ProviderError):
                asked(provider)
    assert asked.charges == len(asked.waits) + 1 == 1 + passing


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("socks5://127.0.0.1:7890", "ALL_PROXY names a SOCKS proxy.*pip install socksio"),
        ("socks4://127.0.0.1:7890", "ALL_PROXY is not the address of a proxy"),
        ("gopher://nowhere", "ALL_PROXY is not the address of a proxy"),
        ("http://[::1", "ALL_PROXY is not the address of a proxy"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, proxy: str, said: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(UsageError, match=said):
        COMPATIBLE.connect("http://models.example")
    with ChatServer(["ok"]) as server:  # a server on this machine needs no proxy
        assert asked(COMPATIBLE.connect(server.url)).text == "ok"


def test_a_proxy_that_is_down_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, unused_url: str
) -> None:
    address = unused_url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://me:secret-of-mine@{address}")
    with pytest.raises(ProviderError, match=f"through the proxy {address}; .*unset http_proxy") as caught:
        asked(COMPATIBLE.connect("http://models.example"), max_retries=0)
    assert "secret-of-mine" not in str(caught.value)
    monkeypatch.setenv("no_proxy", "models.example")
    with pytest.raises(ProviderError) as caught:
        asked(COMPATIBLE.connect("http://models.example"), max_retries=0)
    assert "proxy" not in str(caught.value)


@pytest.mark.parametrize("damaged", [True, False])
def test_certificates_that_cannot_be_read_are_named_by_their_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damaged: bool
) -> None:
    path = tmp_path / "certificates.pem"
    if damaged:
        path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(UsageError, match=f"SSL_CERT_FILE={path} cannot be read .*unset SSL_CERT_FILE"):
        COMPATIBLE.connect("https://models.example")


def test_a_refused_key_is_final_and_never_shown(service: Service, asked: Asked) -> None:
    # OpenAI echoes the key's ends, others all of it.
    masked = f"{service.key[:8]}{'*' * 20}{service.key[-4:]}"
    echo = f"Incorrect API key provided: {masked}. The key {service.key} is wrong; so is '{service.key[:14]}...'"
    status = 400 if service is GEMINI else 401
    script = [Scripted(status=status, code="invalid_api_key", error=echo), Scripted("never")]
    with ChatServer(script) as server, pytest.raises(ProviderError) as caught:
        asked(service.connect(server.url))
    shown = "".join(traceback.format_exception(caught.value))
    assert service.variable in str(caught.value)
    assert service.key not in shown
    assert service.key[:10] not in shown
    assert service.key[-4:] not in shown
    assert (asked.charges, asked.waits) == (1, [])
    assert service.key not in repr(service.connect("http://127.0.0.1:9"))


def test_a_bad_request_is_final_and_quoted(service: Service, asked: Asked) -> None:
    with ChatServer([Scripted(status=400, error="the context is full"), Scripted("never")]) as server:
        with pytest.raises(ProviderError, match="400: the context is full"):
            asked(service.connect(server.url))
        assert asked.charges == len(server.requests) == 1


@pytest.mark.parametrize("one", [OPENAI, COMPATIBLE, GEMINI], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0.2 with this model."),
        ("seed", "Unsupported parameter: 'seed'"),
    ],
)
def test_a_rejected_setting_is_dropped_with_a_warning_and_stays_dropped(
    one: Service, name: str, said: str, keys: None, asked: Asked
) -> None:
    rejected = Scripted(status=400, error=said, parameter=name * (name == "temperature"))
    with ChatServer([rejected, Scripted("first"), Scripted("second")]) as server:
        provider = one.connect(server.url, temperature=0.2)
        with pytest.warns(UserWarning, match="does not take"):
            assert asked(provider, replace(PROMPT, seed=9)).text == "first"
        assert asked(provider, replace(PROMPT, seed=9)).text == "second"
    bodies = [str(request.body) for request in server.requests]
    assert [f"'{name}'" in body for body in bodies] == [True, False, False]
    assert (asked.waits, asked.charges) == ([], 3)


def test_anthropic_says_what_it_is_not_sent(keys: None, asked: Asked) -> None:
    with ChatServer(["ok"]) as server:
        with pytest.warns(UserWarning, match="does not take") as said:
            provider = ANTHROPIC.connect(server.url, temperature=0.2)
        asked(provider, replace(PROMPT, seed=9))
    assert [str(one.message).partition(" does ")[2] for one in said] == ["not take a temperature: asking without it"]
    assert not {"temperature", "seed"} & set(server.requests[0].body)


def test_an_effort_that_a_model_lacks_is_the_users_to_correct(keys: None, asked: Asked) -> None:
    refusal = "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model."
    with ChatServer([Scripted(status=400, error=refusal, parameter="reasoning_effort"), "never"]) as server:
        with pytest.raises(ProviderError, match="does not support 'minimal'"):
            asked(OPENAI.connect(server.url, reasoning_effort="minimal"))
        assert len(server.requests) == 1
    with pytest.raises(UsageError, match=r"reasoning_effort none: gemini:.* takes one of minimal, low"):
        connect(GEMINI.spec, LLMOptions(reasoning_effort="none"))


def test_a_local_server_that_is_down_is_said_at_once(service: Service, asked: Asked, unused_url: str) -> None:
    with pytest.raises(ProviderError, match=rf"no server answers at {unused_url}.*: start the server"):
        asked(service.connect(unused_url))
    assert asked.waits == []


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of hosts that were looked up; none is found, and no name server is asked."""
    names: list[str] = []

    def unknown(name: str | bytes, *more: object, **options: object) -> None:
        names.append(name.decode() if isinstance(name, bytes) else name)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    return names


@pytest.mark.parametrize("found", [False, True], ids=["not found", "refused from another machine"])
def test_an_unreachable_host_may_come_back(
    service: Service, asked: Asked, unused_url: str, looked_up: list[str], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(unused_url.rpartition(":")[2])
    if found:
        address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *host, **more: [address])
    with pytest.raises(ProviderError, match=r"gave up after 2 tries: .*far\.invalid.* cannot be reached"):
        asked(service.connect(f"http://far.invalid:{port}"), max_retries=1)
    assert len(asked.waits) == 1


HOSTS = {OPENAI: "api.openai.com", GEMINI: "generativelanguage.googleapis.com", ANTHROPIC: "api.anthropic.com"}


@pytest.mark.parametrize("one", HOSTS, ids=lambda one: one.name)
def test_without_an_address_the_key_goes_to_its_own_host(
    one: Service, keys: None, asked: Asked, looked_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "http://elsewhere.example")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    with pytest.raises(ProviderError, match=HOSTS[one]):
        asked(connect(one.spec, LLMOptions()), max_retries=0)
    assert set(looked_up) == {HOSTS[one]}


def test_a_silent_server_is_a_timeout(service: Service, asked: Asked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and never answers
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ProviderError, match=r"gave up after 1 try: .* gave no answer within 0\.1 s"):
            asked(service.connect(url, timeout_seconds=0.1), max_retries=0)


def test_a_diagnosis_says_what_the_server_reports(service: Service) -> None:
    about = {
        "openai": {},
        "compatible": {"max_model_len": 32768, "supported_parameters": ["temperature", "max_tokens"]},
        "gemini": {"inputTokenLimit": 32768, "outputTokenLimit": 8192, "temperature": 1.0},
        "anthropic": {"max_input_tokens": 32768, "max_tokens": 8192},
    }[service.name]
    with ChatServer(models={service.model: about}) as server:
        diagnosis = service.connect(server.url).diagnose()
    told = "\n".join(diagnosis.lines)
    assert diagnosis.ok
    assert service.variable in told
    assert service.key not in told
    assert service.model in told
    assert ("32768" in told) == bool(about)
    assert server.chats == []


def test_a_diagnosis_of_a_model_that_is_not_there_or_a_server_that_is_down(service: Service) -> None:
    with ChatServer(models={"another-model": {}}) as server:
        provider = service.connect(server.url)
        missing = provider.diagnose()
    down = provider.diagnose()
    assert not missing.ok
    assert service.model in missing.lines[-1]
    assert not down.ok
    assert "no server answers" in down.lines[-1]


@pytest.mark.parametrize("one", [OPENAI, GEMINI, ANTHROPIC], ids=lambda one: one.name)
def test_a_missing_key_is_said_with_what_to_set(one: Service) -> None:
    with pytest.raises(UsageError, match=rf"set {one.variable} .*in the environment.*\.env"):
        connect(one.spec, LLMOptions())


@pytest.mark.parametrize("one", SERVICES, ids=lambda one: one.name)
def test_a_key_with_a_line_break_inside_is_not_shown(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(one.variable, f"{one.key}\nsecond")
    with pytest.raises(UsageError, match=one.variable) as caught:
        one.connect("http://127.0.0.1:9")
    assert one.key not in "".join(traceback.format_exception(caught.value))


def test_anthropic_without_its_package_says_what_to_install(keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "policygen.llm.anthropic", raising=False)
    with pytest.raises(UsageError, match=r'pip install "policygen\[anthropic\]"'):
        connect("anthropic:claude-sonnet-4-6", LLMOptions())


# --- Gemini: two variables for its key, quotas, waits in the details of an error --------------------------------------


def _exhausted(message: str, *details: dict[str, object]) -> Scripted:
    error = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": list(details)}
    return Scripted(status=429, body={"error": error})


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38.5s"}
MINUTE = {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"}]}


def test_the_delay_in_the_details_is_waited(keys: None, asked: Asked) -> None:
    busy = _exhausted("Quota exceeded, limit: 10, model: gemini-2.5-flash", MINUTE, RETRY)
    with ChatServer([busy, Scripted("ok")]) as server:
        assert asked(GEMINI.connect(server.url)).text == "ok"
    assert asked.waits == [38.5]


@pytest.mark.parametrize(
    "message",
    [
        "Quota exceeded for metric: free_tier_requests, limit: 0, model: gemini-3-pro Please retry in 45.5s.",
        "Your prepayment credits are depleted.",
    ],
)
def test_a_quota_of_zero_or_spent_credit_is_final(keys: None, asked: Asked, message: str) -> None:
    with (
        ChatServer([_exhausted(message, RETRY), Scripted("never")]) as server,
        pytest.raises(ProviderError, match=r"has no Gemini quota for .*, or none left today"),
    ):
        asked(GEMINI.connect(server.url))
    assert asked.waits == []


def test_the_key_is_in_the_first_of_two_variables_as_for_google(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"set GEMINI_API_KEY \(or GOOGLE_API_KEY\)"):
        connect(GEMINI.spec, LLMOptions())
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-the-google-one")
    assert connect(GEMINI.spec, LLMOptions()).spec == GEMINI.spec
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-the-gemini-one")
    with ChatServer(["ok"], models={GEMINI.model: {}}) as server:
        provider = GEMINI.connect(server.url)
        asked(provider)
        assert server.requests[0].headers["x-goog-api-key"] == "AIza-the-google-one"
        assert provider.diagnose().lines[0] == "the key is in GOOGLE_API_KEY"


def test_thoughts_are_counted_as_output_and_a_blocked_prompt_says_why(keys: None, asked: Asked) -> None:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 70, "totalTokenCount": 85}
    content = {"role": "model", "parts": [{"text": "a"}]}
    body = {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
    with ChatServer([Scripted(body=body), Scripted(finish="none")]) as server:
        provider = GEMINI.connect(server.url)
        reply, blocked = asked(provider), asked(provider)
    assert (reply.tokens_out, reply.model) == (75, GEMINI.model)
    assert blocked.finish_reason == "SAFETY"
