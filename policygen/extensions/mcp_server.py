"""A server of the Model Context Protocol: the coding assistant that connects is the model of one run."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from policygen.episodes.score import Score
from policygen.errors import PolicygenError, UsageError
from policygen.extensions.page.render import write_page
from policygen.extensions.sweeps.worker import interrupt_once
from policygen.files import list_resources
from policygen.llm.base import split_thinking
from policygen.llm.manual import as_text
from policygen.llm.messages import Exchange, FailedExchange, Prompt, Reply
from policygen.proposers.proposer import read
from policygen.runs.attempt import Attempt
from policygen.runs.listeners import Listener
from policygen.runs.state import Context
from policygen.search.run import Run

_POLL_SECONDS = 0.05
LONGEST_WAIT = 50.0  # seconds of one call; many clients give up after 60


@dataclass(frozen=True)
class Scored:
    """A policy as it was scored, tuned if the run tunes, with the score's 95% interval; or why there is none."""

    attempt: int
    score: float | None
    interval: tuple[float, float] | None
    episodes: int
    is_best: bool
    verdict: str
    problems: tuple[str, ...]
    policy: str


@dataclass(frozen=True)
class Turn:
    """The attempt whose prompt waits (None: none), results of the last text, and what budgets leave (None: no limit).

    `problems` are those that the waiting prompt asks to repair; `calls_left` counts the prompts after it.
    """

    state: str
    attempt: int | None
    prompt: str
    problems: tuple[str, ...]
    scored: tuple[Scored, ...]
    calls_left: int | None
    episodes_left: int | None


@dataclass(eq=False)
class Session(Listener):
    """The assistant as the provider of a run, which calls it in the main thread; the server's thread calls the tools.

    `task` is a task or a run folder, empty until the assistant names one. `over` says why no further prompt comes.
    """

    task: str
    list_tasks: Callable[[], str]
    run: Run | None = None
    over: str = ""
    begun: threading.Event = field(default_factory=threading.Event)
    _prompt: Prompt | None = None
    _texts: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _problems: tuple[str, ...] = ()
    _scored: tuple[Scored, ...] = ()
    spec = model = "mcp"
    is_language_model = True

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Wait, without limit, for the text that answers `prompt`."""
        self._prompt = prompt
        thought = split_thinking(self._texts.get())
        return Reply(thought.text, self.model, reasoning=thought.reasoning, truncated=thought.unclosed)

    def exchanged(self, exchange: Exchange | FailedExchange) -> None:
        """Remember the problems of a reply."""
        if self.run and isinstance(exchange, Exchange) and isinstance(context := exchange.prompt.context, Context):
            self._problems = tuple(map(str, read(exchange.reply, context, self.run.config).problems))

    def attempted(self, attempt: Attempt) -> None:
        """Remember a score."""
        self._problems, self._scored = (), (*self._scored, _scored(attempt, attempt.score))

    async def tasks(self) -> str:
        """List the tasks that `prompt` takes."""
        return await asyncio.to_thread(self.list_tasks)

    async def prompt(self, task: str = "") -> Turn:
        """Return the prompt that waits for `propose`. The first call begins the run (of `task`, if none is set)."""
        if self.task and task not in ("", self.task):
            raise ToolError(f"one session is one run, and this one is of {self.task}")
        if not self.task and task not in list_resources("envs", ".toml"):
            raise ToolError(f"there is no task {task!r}: name one that `tasks` lists")
        self.task = self.task or task
        self.begun.set()
        turn = await self._turn()
        if self.over:
            raise ToolError(self.over)
        return turn

    async def propose(self, policy: str) -> Turn:
        """Answer the waiting prompt with a text that holds one policy, and return its score, or problems to repair."""
        if self._prompt is None:
            raise ToolError(self.over or "no prompt waits for a policy: call `prompt`")
        self._prompt, self._problems, self._scored = None, (), ()
        self._texts.put(policy)
        return replace(await self._turn(), prompt="")

    async def best(self) -> Scored:
        """Return the best policy, scored on episodes that did not choose it if there are any."""
        if not self.run or not (attempt := self.run.search.best):
            raise ToolError("there is no policy yet: answer a prompt with `propose`")
        return _scored(attempt, self.run.final or self.run.search.reported_score)

    async def report(self) -> str:
        """Write a page with every prompt, reply and score, and return its path."""
        if not self.run:
            raise ToolError("there is no run yet: `prompt` begins one")
        folder = self.run.folder.resolve()
        try:
            return str(await asyncio.to_thread(write_page, folder, folder / "report.html", film=False))
        except PolicygenError as error:
            raise ToolError(str(error)) from None

    async def _turn(self) -> Turn:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                while self._prompt is None and not self.over:
                    await asyncio.sleep(_POLL_SECONDS)
        waiting, ledger = self._prompt, self.run.ledger if self.run else None
        most = ledger.config.max_calls if ledger else None
        return Turn(
            state=self.over or ("a prompt waits" if waiting else "busy scoring: call `prompt` to wait on"),
            attempt=waiting.context.number if waiting and isinstance(waiting.context, Context) else None,
            prompt=as_text(waiting) if waiting else "",
            problems=self._problems,
            scored=self._scored,
            calls_left=most - ledger.calls if ledger and most is not None else None,
            episodes_left=ledger.episodes_left if ledger else None,
        )


def _scored(attempt: Attempt, score: Score | None) -> Scored:
    value, interval, episodes = (score.value, score.ci95, score.episodes) if score else (None, None, 0)
    problems, text = tuple(map(str, attempt.problems)), attempt.policy.to_text() if attempt.policy else ""
    return Scored(attempt.number, value, interval, episodes, attempt.accepted, attempt.verdict, problems, text)


def serve(session: Session, carry_out: Callable[[], str], port: int | None) -> None:
    """Serve the tools on stdin and stdout, or on 127.0.0.1:`port`, until the client goes or Ctrl-C (KeyboardInterrupt).

    `carry_out` carries out the run, here in the main thread, once a prompt is asked for, and returns why it ended; it
    is interrupted when the client goes. Raises PolicygenError if it fails, UsageError if the port cannot be used.
    """
    server, main = MCPServer("policygen", log_level="WARNING"), threading.get_ident()
    for tool in (session.tasks, session.prompt, session.propose, session.best, session.report):
        server.add_tool(tool, structured_output=True)

    def listen() -> None:
        try:
            if port is None:
                server.run("stdio")
            else:  # on loopback the SDK refuses other host names and pages of other sites
                server.run("streamable-http", host="127.0.0.1", port=port)
        finally:
            if session.begun.is_set() and not session.over:
                signal.pthread_kill(main, signal.SIGTERM)

    signal.signal(signal.SIGTERM, interrupt_once)  # clients send it, too; SIGINT may be ignored
    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    while not session.begun.wait(_POLL_SECONDS):
        if not listening.is_alive():  # a client that only looked
            if port is not None:
                raise UsageError(f"port {port} cannot be used; choose another --http PORT")
            return
    try:
        session.over = f"the run is over: {carry_out()}; see `best` and `report`"
    except PolicygenError as error:
        session.over = str(error)
        listening.join()
        raise
    except KeyboardInterrupt:
        if listening.is_alive():
            raise
    listening.join()
