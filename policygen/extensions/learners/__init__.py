"""Q-learning of tables from episodes, with the proposed table as advice (`--refine q`)."""

from __future__ import annotations

from policygen.runs.methods import METHODS, Method

METHODS.add("q", Method("policygen.extensions.learners.q:q_learning", for_tables=True))
