"""Template errors in branches beyond the first prompt end the run before any request."""

from __future__ import annotations

from pathlib import Path

import pytest
from searched import written
from support import ALWAYS_DOWN, Written

import policygen
from policygen.errors import TemplateError
from policygen.files import find_resource
from policygen.runs.budget import Ledger
from policygen.runs.config import effective_config
from policygen.search.assess import assess_random_actions
from policygen.search.loop import new_search
from policygen.search.rehearsal import rehearse
from policygen.search.runner import EpisodeRunner

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("improve_table", "{% if best %}{{ nosuch }}{% endif %}"),
        ("improve_table", "{% if best %}{{ best.nosuch }}{% endif %}"),
        ("improve_table", "{% if features %}{{ features | nosuch }}{% endif %}"),
        ("improve_table", "{% if number > 3 %}{{ nosuch }}{% endif %}"),
        ("improve_table", "{% for a in attempts if a.mean is none %}{{ a.nosuch + 1 }}{% endfor %}"),
        (
            "improve_table",
            "{% for a in attempts if a.comparison.gain is not none %}{{ a.comparison.gain + 'x' }}{% endfor %}",
        ),
        ("improve_table", "{% for comment in comments %}{{ comment + 1 }}{% endfor %}"),
        ("improve_table", "{% for e in worst_episodes if e.failed and best %}{{ nosuch }}{% endfor %}"),
        ("_best", "{% if best and best.proposed %}{{ nosuch }}{% endif %}"),
        ("repair", "{% for p in problems if p.line %}{{ p.line + 'x' }}{% endfor %}"),
        ("system", "{% if number == iterations %}{{ nosuch }}{% endif %}"),
    ],
)
def test_an_error_in_a_branch_ends_the_run_before_the_first_request(name: str, text: str) -> None:
    written(text, name)
    provider = Written([ALWAYS_DOWN] * 4)
    with pytest.raises(TemplateError, match=rf"^templates/{name}\.j2, line 1: |filter named 'nosuch'"):
        policygen.run("frozenlake", llm=provider, iterations=4, episodes=4, refine="coordinate:4")
    assert provider.prompts == []


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("cartpole", {"policy": "table", "refine": "cma:20"}),
        ("cartpole", {"policy": "linear"}),
        ("pendulum", {"policy": "linear", "refine": "cma:40", "warmup_episodes": 0}),
        ("frozenlake", {"policy": "table", "refine": "q:20", "shape": True}),
        ("blackjack", {"policy": "table", "conversation": "continued", "ablate": "knowledge"}),
        ("policygen/Adventure-v0", {"policy": "linear"}),
    ],
)
def test_the_shipped_templates_pass_with_every_stand_in(task: str, settings: dict[str, object]) -> None:
    for name in ("improve_table", "improve_linear"):
        shipped = find_resource("templates", name, ".j2")
        written(f"{shipped.read_text()}Be bold.", name)
    loaded = policygen.load_task(task)
    config = effective_config(loaded, task, options={"llm": "manual", "episodes": 4, "jobs": 1, **settings})
    search = new_search(loaded, config)
    with EpisodeRunner(search, config, Ledger(config)) as runner:
        search.keep(assess_random_actions(runner))
    rehearse(search, config)
    assert len(search.attempts) == 1
    assert Path("templates").is_dir()
