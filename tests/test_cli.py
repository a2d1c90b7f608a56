"""The command line: every command, every option, and one sentence for every mistake.

It tests `cli.experiments`, `cli.options`, `cli.preparing`, `cli.results` and `cli.running`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from chat_server import ChatServer, Scripted
from click.testing import CliRunner
from forks import Fork
from support import BEST_LAKE, MALFORMED_LAKE, Line, command, environment, sentences

import policygen
from policygen import cli
from policygen.policies.policy import Policy
from policygen.runs.config import BUDGETS, CHANGEABLE, RunConfig

pytestmark = pytest.mark.usefixtures("workplace")


@pytest.fixture(scope="module")
def lake_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short finished run."""
    out = tmp_path_factory.mktemp("runs")
    return policygen.run("frozenlake", iterations=3, out=out).folder


# --- help ------------------------------------------------------------------------------------------------------------


def test_help_lists_every_command_under_a_heading(line: Line) -> None:
    said = line("--help")
    assert said.code == 0
    for heading, group in cli.GROUPS.items():
        assert f"{heading}:" in said.out
        assert all(f"  {command.name} " in said.out for command in group)
    without = line()
    assert (without.code, without.err.partition(" [")[0]) == (2, "Usage: policygen")
    assert line("--version").out == f"policygen, version {policygen.__version__}\n"


@pytest.mark.parametrize("name", sorted(cli.commands.commands))
def test_every_command_has_help_and_so_has_every_option(name: str) -> None:
    said = CliRunner().invoke(cli.commands, [name, "--help"], terminal_width=110, prog_name="policygen")
    assert said.exit_code == 0
    assert said.output.startswith("Usage: policygen ")
    assert len(said.output.splitlines()) <= 56  # a screen
    one = cli.commands.commands[name]
    assert one.help
    options = [parameter for parameter in one.params if isinstance(parameter, click.Option)]
    for option in options:
        assert option.help, option.name
        assert option.opts[0] in said.output


def test_the_options_are_those_of_the_settings() -> None:
    def settings(name: str) -> set[str]:
        return {one.name for one in cli.commands.commands[name].params if one.name in RunConfig.model_fields}

    assert settings("run") == RunConfig.model_fields.keys()
    assert settings("resume") == {"llm", *CHANGEABLE, *BUDGETS}


# --- mistakes --------------------------------------------------------------------------------------------------------

BARE = """name = "bare"
gym_id = "Pendulum-v1"
observations = [{name = "x"}, {name = "y"}, {name = "rate"}]
actions = [{name = "torque"}]
"""
MISTAKES = [
    ("rum cartpole", "No such command 'rum'"),
    ("run CartPole-v9", "CartPole-v9"),
    ("run ./nope.toml", "there is no task file ./nope.toml"),
    ("run", "Missing argument 'TASK'"),
    ("run cartpole --iteration 3", "there is no option --iteration; did you mean --"),
    ("mcp cartpole --llm openai:x", "there is no option --llm"),
    ("run cartpole --extra-body 3", "the options: `extra_body`: input should be a valid dictionary"),
    ("run cartpole --iterations many", "'many' is not a valid integer"),
    ("run cartpole --policy tree", "'tree' is not one of 'table', 'equations', 'linear'"),
    ("run cartpole --config nope.toml", "cannot read nope.toml: there is no such file"),
    ("run cartpole --llm openai:gpt-5-mini", "openai needs an API key: set OPENAI_API_KEY"),
    ("prompt cartpole --template broken", "templates/broken.j2, line 2: 'oops' is un"),
    ("run ./bare.toml --policy table", "bare has no grid, which a table needs"),
    ("run pendulum --refine coordinate:9", "is for tables; equations"),
    (
        "run cartpole --llm compatible:x --base-url http://127.0.0.1:9 --max-usd 1",
        "--max-usd cannot be enforced because the price of compatible:x is unknown; state it with --set prices=IN/OUT",
    ),
    ("run cartpole --out file", "choose another --out"),
    (
        "run nim --llm openai:a --llm ollama:b",
        "one model; compare several with: policygen sweep TASK --llm openai:a --llm",
    ),
    ("resume folder", "folder is not a run folder"),
    ("resume nowhere", "is not a run folder"),
    ("show nowhere", "cannot read `nowhere`"),
    ("show typed.toml", "typed.toml"),
    ("eval nope.txt --task cartpole", "cannot read `nope.txt`"),
    ("eval bytes.txt --task cartpole", "bytes.txt is not a UTF-8 text file"),
    ("eval policy.txt --episodes 1", "--episodes"),
    ("new CartPole-v1 -o bare.toml", "bare.toml exists already; move it, or name another file with -o"),
    ("tasks ./wrong.toml", "wrong.toml: task wrong, [run]: `policy = 'lniear'`: `policy`: input should"),
    ("new CartPole-v1 -o file/pole.toml", "cannot create 'file': File exists; choose another -o"),
    ("plot", "Missing argument 'RUN|SWEEP|best.json|POLICY.txt...'"),
    ("plot notes.md", "notes.md is not a run folder"),
    ("plot policy.txt --episode -o e.txt", "cannot write e.txt"),
    ("plot policy.txt --episode --x calls", "leave out --x"),
    ("plot policy.txt --episode typed.toml", "one policy"),
    ("plot policy.txt --seed 3", "--seed is for episodes"),
    ("report folder", "folder is not a run"),
    ("export none.json --to c", "cannot read `none.json`"),
    ("export policy.txt --to fortran", "'fortran' is not one of 'c', 'python', 'st'"),
    ("doctor --llm gemini:x", "gemini needs an API key"),
    ("sweep cartpoll", "there is no task `cartpoll`; did you mean `cartpole`"),
    ("sweep nim --set seed=3", "--set seed: in a sweep, use --seeds"),
    ("sweep nim --seeds x", "--seeds x: write a number, as in 10"),
    ("sweep nim --max-usd -1", "`max_usd`"),
    ("compare nowhere", "nowhere is not a run or a sweep; name a monitor.csv as LABEL:TASK=PATH"),
    ("compare X=log.csv", "X=log.csv is not a run or a sweep"),
    ("compare X:nim=log.csv --by colour", "--by colour: there is no such setting; compare by llm, template"),
    ("compare X:nim=log.csv -o x.doc", "cannot write x.doc: end the name in"),
    ("compare X:nim=log.csv --suite none", "there is no suite `none`"),
    ("compare X:nim=typed.toml", "typed.toml is not a monitor file of Stable-Baselines3"),
]


@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_a_mistake_is_one_sentence_on_stderr(words: str, expected: str, line: Line) -> None:
    Path("file").write_text("")
    Path("folder").mkdir()
    Path("bare.toml").write_text(BARE)
    Path("wrong.toml").write_text('name = "wrong"\ngym_id = "CartPole-v1"\n[run]\npolicy = "lniear"\n')
    Path("typed.toml").write_text("iterations = 'many'")
    Path("policy.txt").write_text("left = angle")
    Path("bytes.txt").write_bytes(b"\xff\xfe\x00\x01")
    Path("log.csv").write_text('#{"t_start": 0}\nr,l,t\n1,2,3\n')
    Path("templates").mkdir()
    Path("templates/broken.j2").write_text("fine\n{{ oops }}\n")
    said = line(*words.split())
    assert said.code == 2
    assert said.out == ""
    (sentence,) = sentences(said.err)
    assert sentence.startswith("Error: ")
    assert expected in sentence
    assert not Path("results").exists()


def test_a_text_with_problems_lists_them_all(line: Line) -> None:
    Path("policy.txt").write_text(MALFORMED_LAKE)
    said = line("eval", "policy.txt", "--task", "frozenlake")
    assert said.code == 2
    first, *problems = sentences(said.err)
    assert first == "Error: policy.txt is not a policy for frozenlake:"
    assert len(problems) == 2
    assert [problem.startswith(f"  line {n}: ") for problem, n in zip(problems, (5, 6), strict=True)] == [True, True]


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    said = tmp_path / "said"
    arguments = command("run", "frozenlake", "--iterations", 1)[1:]
    process = Fork(arguments, tmp_path, environment(), (os.devnull, "/dev/full", said))
    assert process.wait() == 1
    assert sentences(said.read_text()) == ["Error: the output cannot be written: No space left on device"]


def test_a_wrong_certificate_file_is_not_taken_for_a_full_disk(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    said = line("run", "frozenlake", "--llm", "compatible:m@https://models.example/v1")
    assert (said.code, len(sentences(said.err))) == (2, 1)
    assert sentences(said.err)[0].startswith("Error: SSL_CERT_FILE=/nonexistent.pem cannot be read")


def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    shell = f"{sys.executable} -m policygen run frozenlake --iterations 2 | head -1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, cwd=tmp_path, env=environment())
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert not re.search("Traceback|Error|Broken", done.stderr)


# --- settings --------------------------------------------------------------------------------------------------------


def test_options_win_over_set_over_config_over_the_task(line: Line) -> None:
    Path("mine.toml").write_text("iterations = 4\nepisodes = 4\nseed = 4\nfinal_episodes = 5")
    done = line(
        *("run", "frozenlake-deterministic", "--config", "mine.toml", "--set", "iterations=1", "--set", "episodes=3"),
        *("--episodes", "2"),
    )
    assert done.code == 0, done.err
    (folder,) = Path("results").iterdir()
    config = policygen.search.run.Logbook(folder).config()
    chosen = (config.iterations, config.episodes, config.seed, config.warmup_episodes, config.final_episodes)
    assert chosen == (1, 2, 4, 100, 5)


# --- commands --------------------------------------------------------------------------------------------------------


def test_eval_scores_a_run_a_saved_policy_and_a_text(lake_run: Path, line: Line) -> None:
    Path("mine.txt").write_text(BEST_LAKE)
    of_run, of_file = line("eval", lake_run), line("eval", lake_run / "best.json")
    assert of_run.code == of_file.code == 0
    assert of_run.out == of_file.out
    assert of_run.out.startswith("frozenlake: mean return 0.")
    of_text = line("eval", "mine.txt", "--task", "frozenlake")
    assert of_text.out.splitlines() == [
        "frozenlake: mean return 0.7402 (exact), standard deviation 0.4385",
        "solved (mean return of at least 0.7): yes",
    ]
    elsewhere = line("eval", lake_run, "--task", "frozenlake-deterministic")
    assert elsewhere.out.startswith("frozenlake-deterministic: "), elsewhere.err


def test_show_prints_a_text_that_reads_back(lake_run: Path, line: Line) -> None:
    said = line("show", lake_run)
    policy = Policy.load(lake_run / "best.json")
    assert said.code == 0
    header, _, rest = said.out.partition("\n")
    assert header == "# table for frozenlake (FrozenLake-v1)"
    assert rest.startswith(policy.to_text(whole=True))
    assert "let row = " in rest
    Path("shown.txt").write_text(rest)
    assert line("eval", "shown.txt", "--task", "frozenlake").out == line("eval", lake_run).out
    drawn = line("show", lake_run / "best.json", "-o", "policy.png")
    assert drawn.code == 0
    assert Path("policy.png").read_bytes().startswith(b"\x89PNG")


def test_plot_draws_runs_into_the_file_it_names_and_leaves_out_what_is_no_run(lake_run: Path, line: Line) -> None:
    assert line("plot", lake_run).out.strip() == "learning_curves.png"
    assert Path("learning_curves.png").stat().st_size > 1000
    assert line("plot", lake_run, lake_run, "-o", "both.svg", "--x", "episodes").code == 0
    assert Path("both.svg").read_text().lstrip().startswith("<?xml")
    Path("notes.md").write_text("none")
    said = line("plot", "notes.md", lake_run, "-o", "curves.png")
    warning = "Warning: notes.md is not a run folder and is left out\n"
    assert (said.code, said.out, said.err) == (0, "curves.png\n", warning)


def test_prompt_of_a_task_is_what_the_model_is_sent(line: Line) -> None:
    said = line("prompt", "frozenlake", "--episodes", "5")
    assert said.code == 0
    assert said.out.startswith("--- system ---\nYou design small, readable control policies")
    assert "characters, about " in said.err
    assert "template improve" in said.err
    with ChatServer([BEST_LAKE]) as server:
        policygen.run("frozenlake", llm="compatible:m", base_url=server.openai_url, iterations=20, episodes=5)
        messages = server.chats[0].body["messages"]
    assert said.out == "".join(f"--- {m['role']} ---\n{m['content']}\n" for m in messages)


def test_prompt_of_a_run_is_its_next_one_and_settings_can_be_tried_on_it(lake_run: Path, line: Line) -> None:
    before = {path.name: path.read_bytes() for path in lake_run.iterdir()}
    said = line("prompt", lake_run)
    assert "## Best policy so far" in said.out
    assert "This is attempt 4. " in said.out
    for tried in (("--set", "prompt_tokens=1100"), ("--config", "small.toml")):
        Path("small.toml").write_text("prompt_tokens = 1100")
        assert len(line("prompt", lake_run, *tried).out) < len(said.out)
    Path("templates").mkdir()
    Path("templates/terse.j2").write_text("Just {{ best.text }}")
    assert "Just | row" in line("prompt", lake_run, "--template", "terse").out
    assert {path.name: path.read_bytes() for path in lake_run.iterdir()} == before
    refused = line("prompt", lake_run, "--ablate", "knowledge")
    assert refused.code == 2
    assert "preview the task itself to see another --ablate" in refused.err


def test_latest_is_the_newest_run_for_a_prompt_and_for_replies(line: Line) -> None:
    with ChatServer([BEST_LAKE]) as server:
        first = policygen.run("frozenlake", llm="compatible:m", base_url=server.openai_url, iterations=1)
    assert line("prompt", "latest").out == line("prompt", first.folder).out
    assert line("run", "frozenlake", "--llm", "replay:latest", "--iterations", 1).code == 0
    (again,) = set(Path("results").iterdir()) - {Path(first.folder)}
    assert f'llm = "replay:{first.folder}"' in (again / "config.toml").read_text()


def test_prompt_of_an_unfinished_run_is_the_one_it_would_send_next(line: Line) -> None:
    with ChatServer([Scripted(BEST_LAKE.replace("up", "down")), Scripted(status=401)]) as server:
        said = line("run", "frozenlake", "--llm", "compatible:m", "--base-url", server.openai_url)
        assert said.code == 1
        sent = server.chats[1].body["messages"]
    (folder,) = Path("results").iterdir()
    assert line("prompt", folder).out == "".join(f"--- {m['role']} ---\n{m['content']}\n" for m in sent)


def test_prompt_says_what_it_would_cost_and_takes_the_budgets_that_it_speaks_of(line: Line) -> None:
    known = line("prompt", "frozenlake", "--llm", "openai:gpt-5-mini")
    assert "about $0.0" in known.err
    assert "cost unknown" in line("prompt", "frozenlake", "--llm", "compatible:m").err
    assert "$" not in line("prompt", "frozenlake").err
    tuned = ("prompt", "cartpole", "--set", "refine=cma", "--iterations", 2)
    few, many = (line(*tuned, "--max-episodes", n) for n in (500, 5_000))
    assert few.code == many.code == 0, few.err
    assert few.out != many.out


def test_doctor_lists_the_providers_or_tries_one(line: Line) -> None:
    said = line("doctor")
    assert said.code == 0
    assert all(name in said.out for name in ("openai", "gemini", "builtin", "manual", "replay"))
    with ChatServer(models={"m": {"max_model_len": 4096}}) as server:
        well = line("doctor", "--llm", "compatible:m", "--base-url", server.openai_url)
        ill = line("doctor", "--llm", "compatible:n", "--base-url", server.openai_url)
    assert (well.code, "its context is 4096 tokens" in well.out) == (0, True)
    assert (ill.code, "it does not list 'n'" in ill.out) == (1, True)


def test_a_key_goes_where_a_file_says_only_when_trusted_and_where_is_printed(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    refusal = Scripted(status=401, error="\x1b[2Jno such key: sk-canary-0123456789")
    with ChatServer([refusal] * 2) as server:
        Path("s.toml").write_text(f'llm = "openai:m@{server.openai_url}"\nwarmup_episodes = 0\n')
        asked = ("run", "frozenlake", "--config", "s.toml", "--iterations", 1)
        said = line(*asked)
        assert (said.code, server.requests) == (2, [])
        assert f"s.toml would send the key in OPENAI_API_KEY to {server.openai_url}" in said.err
        assert not Path("results").exists()
        for more in (("--trust",), ("--llm", f"openai:m@{server.openai_url}")):
            said = line(*asked, *more)
            assert said.code == 1
            assert f"the key in OPENAI_API_KEY goes to {server.url.removeprefix('http://')}" in said.out
            assert "sk-canary" not in said.out + said.err
            assert "\x1b" not in said.out + said.err
        assert len(server.chats) == 2


# --- names ------------------------------------------------------------------------------------------------------------

ODD_NAMES = {"half a character": "x\udcff", "a line end": "x\n#!", "an escape": "x\x1b[2J", "long": "x" * 300}
NAMED = """
show NAME; eval NAME; plot NAME; compare NAME; film NAME; report NAME; resume NAME; simplify NAME
export NAME --to c; tasks NAME; tasks NAME.toml; run NAME
prompt NAME; sweep NAME; drive NAME --llm manual; new NAME; templates show NAME; templates copy NAME
run cartpole --out NAME; run cartpole --config NAME
run cartpole --cache NAME --iterations 0; run cartpole --template NAME
run cartpole --llm replay:NAME; run cartpole --llm manual:NAME
sweep cartpole --out NAME; sweep cartpole --template NAME; show POLICY -o NAME.png; film POLICY -o NAME.gif
eval POLICY --task NAME; report POLICY -o NAME.html; export POLICY --to c -o NAME.c; simplify POLICY -o NAME.json
plot POLICY -o NAME.png; compare POLICY -o NAME.md; new CartPole-v1 -o NAME.toml
compare PPO:cartpole=NAME; drive cartpole --out NAME; doctor --llm replay:NAME
"""


@pytest.mark.parametrize("what", ODD_NAMES)
def test_a_name_that_no_file_should_have_is_one_sentence_wherever_it_enters(what: str, line: Line) -> None:
    name = ODD_NAMES[what]
    Path("POLICY").mkdir()
    wrong = {}
    for words in re.split(r"[;\n]", NAMED.strip()):
        said = line(*(word.replace("NAME", name) for word in words.split()))
        one = re.fullmatch(
            r"Error: [^\n]*\bname .*(holds|has) .*(text|control|allowed).*; choose another.*\n", said.err
        )
        if said.code != 2 or one is None:
            wrong[words] = (said.code, said.err)
    assert not wrong
    assert [path.name for path in Path.cwd().iterdir()] == ["POLICY"]


# --- export -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "word"), [("c", "int frozenlake_act("), ("python", "def act(")])
def test_export_prints_or_writes(to: str, word: str, lake_run: Path, tmp_path: Path, line: Line) -> None:
    best = lake_run / "best.json"
    printed = line("export", best, "--to", to)
    assert printed.code == 0, printed.err
    assert word in printed.out
    written = line("export", best, "--to", to, "-o", "policy.out")
    assert written.out.startswith("wrote policy.out: ")
    assert (tmp_path / "policy.out").read_text() == printed.out
