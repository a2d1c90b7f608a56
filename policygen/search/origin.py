"""Check where a run's prompts and replies come from: its templates, and the run whose replies it replays."""

from __future__ import annotations

import warnings
from pathlib import Path

from policygen.errors import UsageError
from policygen.files import find_resource, list_resources
from policygen.llm import reads_prompts
from policygen.llm.replay import Replay
from policygen.prompts.catalogue import shipped
from policygen.prompts.render import improve_template
from policygen.prompts.templates import source_of, used_templates
from policygen.proposers.proposer import Proposer
from policygen.runs.config import RunConfig
from policygen.runs.logbook import Logbook
from policygen.runs.records import TemplateTexts
from policygen.tasks.task import KIND_WORDS, Task


class TemplateWatch:
    """Records in a run folder the templates of its prompts, and the attempts at which they changed.

    Changed template files are reloaded, so a run may use several versions of a template.
    """

    def __init__(self, config: RunConfig, logbook: Logbook) -> None:
        self._config = config
        self._logbook = logbook
        self._versions = list(logbook.templates())
        self._seen: object = None

    def note(self, number: int) -> None:
        """Record the current templates for attempt `number`, if they changed.

        Warns:
            UserWarning: they changed during the run, whose score then belongs to no single version. Not if the
                provider reads no prompts.
        """
        files = {name: (path, path.stat().st_mtime_ns) for name, path in list_resources("templates", ".j2").items()}
        if files == self._seen:  # reading and parsing them can take longer than a prompt
            return
        self._seen = files
        texts = texts_used(self._config)
        before = self._versions[-1] if self._versions else None
        if before is not None and before.texts == texts:
            return
        now = TemplateTexts(number, texts)
        self._versions.append(now)
        self._logbook.write_templates(self._versions)
        if not reads_prompts(self._config.llm):
            return
        if before is not None:
            names = sorted(name for name in {*before.texts, *texts} if before.texts.get(name) != texts.get(name))
            warnings.warn(
                f"from attempt {number} on, prompts are rendered from changed templates "
                f"({', '.join(names)}; digest {before.digest} before, {now.digest} now): "
                "the run is marked as mixed, and not averaged with other runs",
                stacklevel=2,
            )
        elif number > 1:
            warnings.warn(
                "the run did not record the templates it began with; it is marked as mixed, not averaged with others",
                stacklevel=2,
            )


def texts_used(config: RunConfig) -> dict[str, str]:
    """Return the texts of all templates that a run with these settings uses, by name.

    Raises TemplateError if one is missing or malformed.
    """
    return used_templates(("system", improve_template(config), "repair"), {"kind": config.policy})


def own_templates(config: RunConfig) -> list[str]:
    """Return the files of the templates in use that differ from the shipped ones.

    Raises TemplateError if one is missing or malformed.
    """
    own = []
    for name in texts_used(config):
        path, original = find_resource("templates", name, ".j2"), shipped(name)
        if path is not None and (original is None or source_of(original) != source_of(path)):
            own.append(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
    return own


def check_replay(proposer: Proposer, task: Task, config: RunConfig) -> None:
    """Refuse to replay a run of another task or kind of policy: its replies do not fit these prompts.

    Raises UsageError if they differ.
    """
    if not isinstance(proposer.provider, Replay):
        return
    folder: Path = proposer.provider.folder
    if not (folder / "config.toml").is_file():
        return  # a transcript alone does not name its task
    logbook = Logbook(folder)
    recorded, replayed = logbook.config(), logbook.task()
    if (replayed.name, replayed.gym_id) != (task.name, task.gym_id):
        raise UsageError(
            f"{folder} is a run of {replayed.name} ({replayed.gym_id}); its replies cannot be replayed on {task.name}"
        )
    if recorded.policy != config.policy:
        raise UsageError(
            f"{folder} holds replies of another kind; replay them with --policy {KIND_WORDS[recorded.policy]}"
        )
