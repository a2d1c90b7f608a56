"""Q-learning of tables from episodes, advised by the proposed table (`--refine q`)."""

from __future__ import annotations

from policygen.runs.methods import METHODS, Method

METHODS.add("q", Method("policygen.extensions.learners.q:q_learning", for_tables=True))
