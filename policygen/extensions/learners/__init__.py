"""Q-learning of tables from episodes, advised by the proposed table (`--refine q`)."""
