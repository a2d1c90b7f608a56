"""`policygen mcp`: the SDK's own client is the model of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from support import command, environment, figure

from policygen.policies.policy import Policy
from policygen.runs.logbook import Logbook

LEAN = """Push towards the side to which the pole will lean.
```
let lean = angle + 0.25*spin + 0.04*position + 0.08*velocity
bins lean: 0
| lean | action |
| 0    | left   |
| *    | right  |
```"""
ALWAYS = "| angle | action |\n| * | left |"


@asynccontextmanager
async def session(cwd: Path, *arguments: object) -> AsyncIterator[Client]:
    program, *rest = command("mcp", *arguments)
    with open(cwd / "stderr.txt", "a") as errors:
        server = StdioServerParameters(command=program, args=rest, env=environment(), cwd=cwd)
        async with Client(stdio_client(server, errlog=errors)) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return str(result.content[0].text)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


def test_a_run_over_two_sessions(workplace: Path) -> None:
    settings = ("--seed", 300, "--jobs", 1, "--set", "final_episodes=20", "--episodes", 5, "--max-calls", 5)

    async def begin() -> None:
        async with session(workplace, *settings) as client:
            assert "CartPole-v1" in await call(client, "tasks")
            assert "`prompt`" in await refused(client, "propose", policy=LEAN)
            assert "`propose`" in await refused(client, "best")
            assert "`tasks`" in await refused(client, "prompt", task="envs/cartpole.toml")
            assert not (workplace / "results").exists(), "looking begins no run"
            first = await call(client, "prompt", task="cartpole")
            assert "===== system =====" in first
            assert "This is attempt 1 of 20" in first
            malformed = await call(client, "propose", policy="| angle | nothing |\n| 0 | up |")
            assert "a column `nothing`" in malformed
            assert malformed.endswith("waits for attempt 1; 3 further calls and any number of episodes are left")
            repair = await call(client, "prompt")
            assert repair.startswith(first)
            assert "a column `nothing`" in repair
            assert "waits for attempt 2" in await call(client, "propose", policy=ALWAYS)

    async def go_on(run: Path) -> None:
        async with session(workplace, run) as client:
            assert "is one run" in await refused(client, "prompt", task="frozenlake")
            assert "This is attempt 2 of 20" in await call(client, "prompt")
            assert "attempt 1: " in await call(client, "best")
            good = await call(client, "propose", policy=LEAN)
            assert good.startswith("attempt 2: 500 [500, 500] over 5 episodes (became the best: ")
            assert "500, was reached" in good
            best = await call(client, "best")
            assert best.startswith("attempt 2: 500 [500, 500] over 20 episodes")
            assert "let lean = angle" in best
            assert "let lean = angle" in Path(await call(client, "report")).read_text()
            assert "500, was reached" in await call(client, "prompt")
            assert "500, was reached" in await refused(client, "propose", policy=LEAN)

    asyncio.run(begin())
    (run,) = (workplace / "results").iterdir()
    assert f"continue with: policygen mcp results/{run.name}" in (workplace / "stderr.txt").read_text()
    assert Logbook(run).summary() is None
    asyncio.run(go_on(run))
    told = [figure(run, name) for name in ("requests", "repairs", "solved")]
    assert told == [4, 1, True]  # one request was open when the client left
    assert Logbook(run).summary().asks_a_model
    assert Policy.load(run / "best.json").act_one([0, 0, 0.1, 0.1]) == 1
    _, always, _, lean = Logbook(run).transcript.exchanges()
    assert (always.reply.text, lean.reply.text) == (ALWAYS, LEAN)
