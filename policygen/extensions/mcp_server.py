"""A server of the Model Context Protocol (MCP): the coding assistant that connects acts as the model in a run."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from policygen.episodes.score import Score
from policygen.errors import PolicygenError
from policygen.extensions.page.render import write_page
from policygen.files import list_resources
from policygen.llm.base import read_reply
from policygen.llm.manual import as_text
from policygen.llm.messages import Prompt, Reply
from policygen.outgoing import redacted
from policygen.portable import interrupt
from policygen.runs.attempt import Attempt
from policygen.runs.listeners import Listener
from policygen.runs.state import Context
from policygen.search.run import Run

_POLL_SECONDS = 0.05
LONGEST_WAIT = 50.0  # seconds that a call may take; many clients give up after 60


@dataclass(eq=False)
class Assistant(Listener):
    """The assistant as a provider. The run calls it in the main thread; the server's thread calls the tools.

    `task` is a task or a run folder, empty until the assistant names one. `end_reason` says why no prompt follows.
    """

    task: str
    list_tasks: Callable[[], str]
    run: Run | None = None
    end_reason: str = ""
    begun: threading.Event = field(default_factory=threading.Event)
    _prompt: Prompt | None = None
    _texts: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _results: tuple[str, ...] = ()
    spec = model = "mcp"
    is_language_model = True

    def complete(self, prompt: Prompt, max_output_tokens: int) -> Reply:
        """Wait, without a limit, for the reply to `prompt`."""
        self._prompt = prompt
        return read_reply(self._texts.get(), self.model)

    def attempted(self, attempt: Attempt) -> None:
        """Remember the attempt's score or problems."""
        self._results += (_result(attempt, attempt.score),)

    async def tasks(self) -> str:
        """List the tasks that `prompt` accepts."""
        return await asyncio.to_thread(self.list_tasks)

    async def prompt(self, task: str = "") -> str:
        """Return the prompt to answer with `propose`. The first call begins the run, of `task` if none is set yet."""
        if self.task and task not in ("", self.task):
            raise ToolError(f"a session is one run, and this run is of {self.task}")
        if not self.task and task not in list_resources("envs", ".toml"):
            raise ToolError(f"there is no task {task!r}: name one that `tasks` lists")
        self.task = self.task or task
        self.begun.set()
        waiting = await self._next()
        return as_text(waiting) if waiting else self.end_reason

    async def propose(self, policy: str) -> str:
        """Answer the prompt with a text that contains one policy; return its score, or the problems to repair."""
        if self._prompt is None:
            raise ToolError(self.end_reason or "no prompt waits for a policy: call `prompt`")
        self._prompt, self._results = None, ()
        self._texts.put(policy)
        waiting = await self._next()
        # A prompt that follows without a result asks for a repair, in its last message.
        told = self._results or (() if waiting is None else (waiting.messages[-1].content,))
        return "\n\n".join((*told, self._remaining(waiting)))

    async def best(self) -> str:
        """Return the best policy and its score, if possible on episodes that did not select it."""
        if not self.run or not (attempt := self.run.search.best) or not attempt.policy:
            raise ToolError("there is no policy yet: answer a prompt with `propose`")
        return f"{_result(attempt, self.run.final or self.run.search.reported_score)}\n\n{attempt.policy.to_text()}"

    async def report(self) -> str:
        """Write a page with all prompts, replies and scores; return its path."""
        if not self.run:
            raise ToolError("there is no run yet: `prompt` begins one")
        folder = self.run.folder.resolve()
        try:
            return str(await asyncio.to_thread(write_page, folder, folder / "report.html"))
        except PolicygenError as error:
            raise ToolError(redacted(str(error))) from None

    async def _next(self) -> Prompt | None:
        """Return the next prompt, or None if the run is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                while self._prompt is None and not self.end_reason:
                    await asyncio.sleep(_POLL_SECONDS)
        if self.run is None or not (self._prompt or self.end_reason):
            raise ToolError(
                self.end_reason or "policies are still being tuned and scored: call `prompt` again to wait longer"
            )
        return self._prompt

    def _remaining(self, waiting: Prompt | None) -> str:
        if self.run is None or waiting is None or not isinstance(waiting.context, Context):
            return self.end_reason
        most, episodes = self.run.config.max_calls, self.run.ledger.episodes_left
        calls = "any number of" if most is None else most - self.run.ledger.calls
        left = f"{calls} further calls and {'any number of' if episodes is None else episodes} episodes are left"
        return f"a prompt waits for attempt {waiting.context.number}; {left}"


def _result(attempt: Attempt, score: Score | None) -> str:
    verdict = f"{'became the best: ' * attempt.accepted}{attempt.verdict}"
    return "\n".join((f"attempt {attempt.number}: {score or 'no policy'} ({verdict})", *map(str, attempt.problems)))


def serve(assistant: Assistant, carry_out: Callable[[], str]) -> None:
    """Serve tools on stdin and stdout until the client leaves or Ctrl-C (KeyboardInterrupt).

    When the client asks for a prompt, `carry_out` carries out the run in this main thread, and returns why it ended. It
    is interrupted when the client leaves. Raises PolicygenError if it fails.
    """
    server, main = MCPServer("policygen", log_level="WARNING"), threading.get_ident()
    for tool in (assistant.tasks, assistant.prompt, assistant.propose, assistant.best, assistant.report):
        server.add_tool(tool, structured_output=False)

    def listen() -> None:
        try:
            server.run("stdio")
        finally:
            if not assistant.end_reason:
                assistant.end_reason = "the client has gone"
                interrupt(main, signal.SIGTERM)

    def interrupt_once(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt writing files
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt_once)  # clients send it, too; SIGINT may be ignored
    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    try:
        assistant.begun.wait()
        assistant.end_reason = f"the run is over: {carry_out()}; see `best` and `report`"
    except PolicygenError as error:
        assistant.end_reason = redacted(str(error))
        listening.join()
        raise
    except KeyboardInterrupt:
        if not assistant.end_reason:  # Ctrl-C
            raise
    listening.join()
