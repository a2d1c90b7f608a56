"""Read policies from run folders, saved files and text files, and the origin of a policy from its run folder."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from policygen import __version__
from policygen.errors import PolicyError, UsageError
from policygen.files import find_run, read
from policygen.policies.parse import parse
from policygen.policies.policy import Policy
from policygen.runs.facts import BEST, read_record, run_facts
from policygen.runs.logbook import Logbook
from policygen.tasks.load import load_task
from policygen.tasks.task import Task


def best_policy(path: Path) -> Policy:
    """Return the policy of a run folder or saved file; raise PolicyError if there is none."""
    if path.is_dir():
        folder, path = path, path / "best.json"
        if not path.exists():
            raise PolicyError(f"{folder} has no best.json: it is not a run folder, or no policy has been found yet")
        if path.is_symlink() or not path.is_file():
            raise PolicyError(f"cannot read {path}: it is a link, a pipe or a device, not a plain file")
    return Policy.load(path)


def read_policy(path: Path, task_name: str | None = None, *, attempt: int | None = None, trust: bool = False) -> Policy:
    """Read the policy of a run folder, a saved file, or a text file in the policy language.

    Args:
        task_name: the task of a text file; if given, any policy is read from its text, as one for this task.
        attempt: number of an attempt of a run; by default the best one.
        trust: whether the task may name modules to import and paths to read.

    Raises:
        PolicyError: there is none, or the text has problems; all are listed with their lines.
        UsageError: a text file needs a task, or the run has no attempt of this number.
    """
    if attempt is not None:
        policy = _of_attempt(path, attempt)
    elif not path.exists():
        raise PolicyError(f"cannot read `{path}`: there is no such file or folder")
    elif task_name is not None:
        policy = _of_text(path, load_task(task_name, trust=trust))
    elif path.is_dir() or path.suffix == ".json":
        policy = best_policy(path)
    else:
        raise UsageError(f"{path.name} does not say which task it is for; add --task TASK")
    return replace(policy, task=policy.task.trusted()) if trust else policy


def _of_attempt(run: Path, number: int) -> Policy:
    if not run.is_dir():
        raise UsageError(f"--attempt {number} needs the folder of a run, and {run} is not one")
    attempts = Logbook(run).attempts()
    if not 0 <= number < len(attempts):
        last = f"its last one is {len(attempts) - 1}" if attempts else "it has no attempts yet"
        raise UsageError(f"{run} has no attempt {number}: {last}")
    attempt = attempts[number]
    if attempt.policy is None:
        problems = "".join(f"\n  {problem}" for problem in attempt.problems)
        raise PolicyError(f"attempt {number} of {run} has no policy:{problems or f' {attempt.verdict}'}")
    return attempt.policy


def _of_text(path: Path, task: Task) -> Policy:
    parsed = parse(policy_text(path), task, policy_only=True)
    if parsed.policy is None:
        raise PolicyError(
            f"{path.name} is not a policy for {task.name}:\n" + "\n".join(f"  {p}" for p in parsed.problems)
        )
    return parsed.policy


def read_opponent(text: str, task: Task, *, trust: bool = False) -> Policy:
    """Read a policy to compare on `task`, from a run, a saved file or a text file.

    Raises:
        PolicyError: there is no such policy, or it cannot be read.
        UsageError: the policy is for another environment.
    """
    path = find_run(text)
    if not path.is_dir() and path.suffix != ".json":
        return _of_text(path, task)
    policy = read_policy(path, trust=trust)
    if policy.task.gym_id != task.gym_id:
        raise UsageError(f"{text} is a policy for {policy.task.gym_id}, but the task plays {task.gym_id}")
    return policy


def policy_text(path: Path) -> str:
    """Return the text of the policy in a run folder, a saved file or a text file; raise PolicyError if none exists."""
    if not path.exists():
        raise PolicyError(f"cannot read `{path}`: there is no such file or folder")
    if path.is_dir() or path.suffix == ".json":
        return best_policy(path).to_text(whole=True)
    return read(path, str, named=PolicyError)


def origin_of(policy: Policy, source: Policy | str | Path) -> list[str]:
    """Return sentences about a policy's origin and final score, for the head of an exported file."""
    lines = [f"Exported by policygen {__version__} on {date.today().isoformat()}."]
    folder = Path(source) if isinstance(source, str | Path) else None
    if folder is None or not (folder / "summary.json").is_file():
        return lines
    record = read_record(folder)
    if record.final is None or record.best is None or record.best.policy != policy:
        return lines
    stated = [one for one in run_facts(record) if one.name.startswith((BEST[0], "violations"))]
    return [*lines, f"Run {folder.name}, attempt {record.best.number}:", *(f"{one.name}: {one}." for one in stated)]
