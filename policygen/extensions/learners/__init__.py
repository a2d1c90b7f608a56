"""Learners of tables from episodes: Q-learning and SARSA, advised by the proposed table (`--refine q`, `sarsa`)."""
