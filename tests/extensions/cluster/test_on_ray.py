"""Sweeps on a real Ray cluster of several nodes: the runs that they would be here, and nothing is lost with a node."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attack.test_environments import ONES, policy_of, task_with
from attacks import LONG
from chat_server import ChatServer, Scripted
from played import CARTPOLE, CLUMSY, assert_equal, copies_of, policy_for
from support import ALWAYS_RIGHT, CHECKOUT, Line, files_with, sentences
from sweeping import SWEPT, assert_as_alone, conducted, opened, stated

from policygen.episodes.players import Players, by_processes, use_distribution
from policygen.errors import EnvironmentFault
from policygen.extensions.cluster.on_ray import RayExecutor, by_ray
from policygen.extensions.sweeps.conduct import open_sweep
from policygen.extensions.sweeps.executor import ProcessExecutor
from policygen.extensions.sweeps.shared_budget import spent_so_far
from policygen.extensions.sweeps.worker import CellResult, Event, Order, Progress, Tell, carry_out_again

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.usefixtures("workplace"),
    pytest.mark.skipif(not LONG, reason="starts a Ray cluster, which a busy machine fails to: POLICYGEN_ATTACK=long"),
    pytest.mark.skipif(sys.platform != "linux", reason="several nodes on one machine: Linux"),
]
CANARY = "sk-canary-0123456789"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of three nodes, each with a processor; the first test takes one away."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'tests'}")  # of the workers
        patch.setenv("OPENAI_COMPATIBLE_API_KEY", CANARY)  # a machine's own
        # A node that does not answer for ten seconds is given up: one that lives may be slow on a busy machine.
        quick = {"health_check_period_ms": 1000, "health_check_failure_threshold": 10}
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": quick},
        )
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made
        ray.shutdown()
        made.shutdown()


def test_a_node_lost_in_mid_sweep_loses_nothing_and_each_run_is_what_it_is_here(cluster: Any) -> None:
    cluster.wait_for_nodes()
    sweep = opened("cartpole", "frozenlake", iterations=10)
    begun, gone = Path("begun").absolute(), Path("gone").absolute()
    killed: list[str] = []

    def noted(order: Order, tell: Tell) -> CellResult:
        with begun.open("a") as file:
            print(order.cell.key, file=file)

        def held(event: Event) -> None:
            tell(event)
            while isinstance(event, Progress) and event.attempt >= 2 and not gone.exists():
                time.sleep(0.05)  # in mid-run, until the node is lost

        return carry_out_again(order, held)

    def tell(event: Event) -> None:
        at_work = [key for key, progress in sweep.running.items() if progress.attempt >= 2]
        if not killed and len(at_work) == 3:
            killed.extend(at_work)
            here = ray.get_runtime_context().get_node_id()  # without its own, the driver would end as well
            lost = next(node for node in cluster.worker_nodes if node.node_id != here)
            for one in (one for processes in lost.all_processes.values() for one in processes):
                os.kill(one.process.pid, signal.SIGKILL)
            gone.touch()

    conducted(sweep, tell, RayExecutor(sweep.folder, cluster.address, carry_out=noted))
    assert len(killed) == 3
    assert sweep.complete, sweep.outcomes
    again = [key for key, count in Counter(begun.read_text().split()).items() if count > 1]
    assert set(again) <= set(killed)
    assert len(again) == 1  # what the lost node was at
    for task in ("cartpole", "frozenlake"):
        for seed in (100, 101):
            assert_as_alone(task, seed, iterations=10)


def test_what_is_broken_off_there_goes_on_here(cluster: Any) -> None:
    sweep = opened("cartpole", iterations=16)

    def tell(event: Event) -> None:
        if isinstance(event, Progress) and event.attempt >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conducted(sweep, tell, RayExecutor(sweep.folder, cluster.address))
    assert [one.state for one in sweep.outcomes.values()] == ["interrupted"] * 2
    assert conducted(open_sweep(SWEPT), executor=ProcessExecutor(SWEPT, 2)).complete
    assert_as_alone("cartpole", 100, iterations=16)


def test_the_budget_of_the_sweep_holds_and_keys_are_in_no_log(cluster: Any, line: Line) -> None:
    words = [word for text in stated() for word in ("--set", text)]
    os.environ["OPENAI_COMPATIBLE_API_KEY"] = CANARY
    with ChatServer([Scripted(ALWAYS_RIGHT, tokens_in=2000, tokens_out=100)] * 12) as server:
        address = ("--on", "ray", "--address", cluster.address)
        model = ("--llm", "compatible:m", "--base-url", server.openai_url, "--seeds", 3, "--out", "swept", *words)
        done = line("sweep", "frozenlake", *model, *address, "--max-calls", 5)
        assert done.code == 1, done.out
        assert len(server.chats) == 5
        assert all(CANARY in chat.headers["authorization"] for chat in server.chats)
        assert f"continue with a larger budget: policygen resume swept --on ray --address {cluster.address}" in done.err
        assert sum(entry[0] for entry in spent_so_far(SWEPT).values()) == 5
        more = ("--set", f"base_url={server.openai_url}", "--max-calls", 9)
        done = line("resume", "swept", *address, *more)
        assert done.code == 0, done.err
        assert len(server.chats) == 9
    assert files_with(SWEPT, CANARY) == []
    assert files_with(Path(cluster.head_node.get_session_dir_path()), CANARY) == []


def test_episodes_are_played_by_tasks_to_the_last_bit(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clumsy = policy_for("cartpole", CLUMSY)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    use_distribution(by_ray)
    try:
        with Players(CARTPOLE, jobs=2) as players:
            players._local = copies_of(CARTPOLE, monkeypatch)
            players.isolated = True
            seeds = (3, 1, 4, 1, 5)
            (many,), one = players.play_many([clumsy], seeds), players.play(clumsy, seeds)
            assert_equal(many, players._local.play(clumsy, seeds))
            assert_equal(one, many)
        for fault, sentence in (("raises", "failed in `step`"), ("is-killed", "was killed")):
            task = task_with(fault)
            with Players(task, jobs=2) as players:
                players.isolated = True
                with pytest.raises(EnvironmentFault, match=f"Zoo-{fault}-v0.*{sentence}|{sentence}") as caught:
                    players.play(policy_of(task, ONES), (1, 2))
                assert "Traceback" not in str(caught.value)
    finally:
        use_distribution(by_processes)
        ray.shutdown()


def test_an_address_that_is_not_taken_is_a_sentence(line: Line) -> None:
    done = line("sweep", "nim", "--seeds", 1, "--on", "ray", "--address", "ray://somewhere:10001", "--out", "swept")
    assert done.code == 2
    assert sentences(done.err) == [
        "Error: --address ray://somewhere:10001: write HOST:PORT or auto, on a machine of the cluster"
    ]
