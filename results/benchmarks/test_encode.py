"""Tests of the benchmark of text features: its game is the environment's, and its rewordings are new."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from encode import (
    HEADINGS,
    NEW,
    OWN,
    SEEDS,
    WHOLE,
    Lessons,
    by_hand,
    commanded,
    contains_features,
    embedding,
    fitted,
    game,
    mean_return,
    meanings,
    near_by_words,
    reworded,
    rows_of,
    translated,
    tried,
)

import policygen.extensions.worlds  # noqa: F401 - it registers the adventure


def test_returns_are_those_of_the_environment() -> None:
    rng = np.random.default_rng(0)
    wrong = np.where(
        rng.random(len(game().texts)) < 0.2, rng.integers(8, size=len(game().texts)), by_hand(game().texts)
    )
    for commands in (game().best.argmax(axis=1), wrong):
        returns, env = {}, gym.make("policygen/Adventure-v0")
        for seed in range(300):  # draws all 24 maps
            first = text = env.reset(seed=seed)[0]
            chosen = {game().texts[i]: commands[i] for i in _same_map(first)}
            total, over = 0.0, False
            while not over:
                text, reward, ended, cut, _ = env.step(chosen[text])
                total, over = total + reward, ended or cut
            returns[first] = total
        assert len(returns) == 24
        assert mean_return(commands) == pytest.approx(np.mean(list(returns.values())))
    assert mean_return(game().best.argmax(axis=1)) == 41
    assert mean_return(wrong) < 41


def _same_map(first: str) -> np.ndarray:
    return np.flatnonzero(game().on_map == game().on_map[game().texts.index(first)])


def test_wordings_tell_all_situations_apart_and_the_new_ones_share_no_sentence_with_the_others() -> None:
    different = len(set(game().texts))
    for wording in (OWN, WHOLE, *NEW, *SEEDS):
        assert len({reworded(text, wording) for text in game().texts}) == different
    assert not meanings(NEW).keys() & meanings((OWN, WHOLE)).keys()
    drawn = [{reworded(text, seed) for text in game().texts} for seed in SEEDS]
    assert all(a != b for i, a in enumerate(drawn) for b in drawn[:i])


def test_a_linear_policy_over_phrases_and_products_solves_the_wording_that_it_learnt_and_no_other() -> None:
    policy = commanded(*fitted(contains_features, 64, True, Lessons((OWN,)), seed=1))
    results = [tried(policy, wording) for wording in (OWN, WHOLE, SEEDS[0])]
    assert results[0].value == 41
    assert max(results[1].value, results[2].value) < 0
    (row,) = rows_of({"phrases": [results]}, np.array(["in the hall" in text for text in game().texts]))
    assert row.startswith("| phrases | 41.0 | ")
    assert row.count("|") == HEADINGS.count("|")


def test_known_sentences_are_translated_back() -> None:
    assert tried(by_hand, WHOLE).value < 0
    assert tried(translated(by_hand, (OWN, WHOLE), near_by_words), WHOLE).value == 41


def test_one_embedding_for_a_whole_text_does_not_say_which_way_leads_where() -> None:
    pytest.importorskip("wordllama")
    halls = [text for text in game().texts if "in the hall" in text and "nothing" in text]
    assert len(halls) == 24
    np.testing.assert_allclose([embedding(text) for text in halls], [embedding(halls[0])] * 24, atol=1e-7)
