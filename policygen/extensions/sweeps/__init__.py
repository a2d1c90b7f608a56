"""Many runs: suites of tasks, and sweeps over tasks, models, templates and seeds."""

from __future__ import annotations
