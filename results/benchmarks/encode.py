"""Measure the tables of encode.md: do embeddings of a text help a linear policy when the text is reworded?

python results/benchmarks/encode.py [--quick]
"""

from __future__ import annotations

import argparse
import copy
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import cma
import numpy as np
import numpy.typing as npt
from measurements import Measurements
from scipy.optimize import minimize

from policygen.extensions.worlds.adventure import COMMANDS, DIRECTIONS, AdventureEnv
from policygen.quantities.operations import PHRASE
from policygen.runs.facts import plus_minus

HERE = Path(__file__).parent
SEEDS = range(245, 250)
MAPS = 24
STEPS = 60  # an episode's limit
PHRASES, COMPONENTS = (8, 16, 32, 64), (4, 8, 16, 32)
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
TUNED, GENERATIONS = 16, 300  # features, and generations of CMA-ES
Matrix = npt.NDArray[np.float64]
Policy = Callable[[Sequence[str]], npt.NDArray[np.intp]]  # n texts -> n commands
Features = Callable[[Sequence[str]], Matrix]  # n texts -> (n, k)
Make = Callable[[Sequence[str], npt.NDArray[np.bool_], int], Features]  # texts, their right commands, k
Near = Callable[[str, Sequence[str]], int]  # a sentence and known ones -> which is nearest

WORDINGS: dict[str, dict[str, list[str]]] = tomllib.loads((HERE / "encode_wordings.toml").read_text())
ROOMS = tuple(WORDINGS["exits"])
SIGNS = {"lamp lies": "take lamp", "key lies": "take key", "locked": "open chest", "open": "take crown"}
OWN, WHOLE, *NEW = range(4)  # the environment's own wording; whole sentences; no policy is trained on the others
TRAININGS = {"trained on own": (OWN,), "trained on own and whole": (OWN, WHOLE)}
HEADINGS = (
    "| {} | return, own | return, whole | return, new | whole: hall, % | whole: elsewhere, % | new: hall, % "
    "| new: elsewhere, % |"
)
EXAMINED = "embedding, 32 components, and products"


@dataclass(frozen=True, slots=True)
class Game:
    """Every situation of the adventure that can be reached, on all maps; n situations, 8 commands."""

    texts: list[str]  # n, in the environment's own wording
    on_map: npt.NDArray[np.intp]  # (n,): 0 to 23
    starts: npt.NDArray[np.intp]  # (24,): the first situation of each map
    after: npt.NDArray[np.intp]  # (n, 8): the situation after a command; -1 ends the episode
    rewards: Matrix  # (n, 8)
    best: npt.NDArray[np.bool_]  # (n, 8): commands of a shortest solution from here


@cache
def game() -> Game:
    """Explore the environment from the start of each map."""
    texts: list[str] = []
    on_map, after, rewards, starts = [], [], [], {}
    for seed in range(10_000):
        env = AdventureEnv()
        first = env.reset(seed=seed)[0]
        if first in starts:
            continue
        found, waiting = {first: len(texts)}, [env]
        starts[first] = len(texts)
        texts.append(first)
        for here in waiting:  # grows
            row, gains = [], []
            for command in range(len(COMMANDS)):
                there = copy.deepcopy(here)
                text, reward, ended, *_ = there.step(command)
                if not ended and text not in found:
                    found[text] = len(texts)
                    texts.append(text)
                    waiting.append(there)
                row.append(-1 if ended else found[text])
                gains.append(reward)
            after.append(row)
            rewards.append(gains)
            on_map.append(len(starts) - 1)
        if len(starts) == MAPS:
            break
    to, gain = np.array(after), np.array(rewards)
    value = np.zeros(len(texts))
    for _ in range(STEPS):  # more than any shortest solution
        gains_of = gain + np.where(to >= 0, value[to], 0.0)
        value = gains_of.max(axis=1)
    best = gains_of >= value[:, None] - 1e-9
    return Game(texts, np.array(on_map), np.array(list(starts.values())), to, gain, best)


def sentences(text: str) -> list[str]:
    """Split a text at full stops."""
    return re.findall(r"\S[^.]*\.", text)


@cache
def drawn(fact: str, wording: int) -> int:
    """Return the wording of a fact: 0 (the environment's own) to 3, or one of NEW that a seed of `SEEDS` draws."""
    return wording if wording < 4 else int(np.random.default_rng([wording, *fact.encode()]).choice(NEW))


@cache
def reworded(text: str, wording: int) -> str:
    """Replace each sentence of a text of the environment; see `drawn`."""

    def one(sentence: str) -> str:
        head, _, rest = sentence.rstrip(".").partition(": ")
        kind, fact, values = "sentences", sentence, {}
        if head.lower() in DIRECTIONS:
            kind, fact, values = "exits", rest, {"way": head.lower()}
        elif head == "Carried":
            kind, fact = "carried", rest
        elif head == "Score":
            kind, fact, values = "score", "points", {"points": rest.split()[0]}
        told = WORDINGS[kind][fact][drawn(kind + fact, wording)].format(**values)
        return told[0].upper() + told[1:]

    return " ".join(map(one, sentences(text)))


@cache
def encoder() -> Any:
    """Load the frozen encoder; its weights and tokenizer lie in the wheel, and nothing is downloaded."""
    import wordllama  # only to make the page; its tests do without

    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


@cache
def embedding(text: str) -> Matrix:
    """Return the unit vector of a text, shape (256,)."""
    return np.asarray(encoder().embed([text], norm=True)[0], float)


# --- features --------------------------------------------------------------------------------------------------------


def has(texts: Sequence[str], phrases: Sequence[str]) -> Matrix:
    """Return `contains(text, phrase)` for n texts and k phrases: (n, k)."""
    return np.array([[phrase in text.lower() for phrase in phrases] for text in texts], float)


def chosen_phrases(texts: Sequence[str], best: npt.NDArray[np.bool_], most: int) -> list[str]:
    """Choose phrases of 1 to 4 words of a sentence, one by one: each explains most of what the others do not."""
    candidates: set[str] = set()
    for sentence in {sentence.lower() for text in texts for sentence in sentences(text)}:
        words = [(found.start(), found.end()) for found in re.finditer(r"[a-z0-9]+", sentence)]
        for length in range(1, 5):
            spans = [(words[i][0], words[i + length - 1][1]) for i in range(len(words) - length + 1)]
            candidates |= {sentence[a:b] for a, b in spans if PHRASE.fullmatch(sentence[a:b])}
    phrases = sorted(candidates, key=lambda phrase: (len(phrase), phrase))
    columns = has(texts, phrases)
    _, kept = np.unique(columns, axis=1, return_index=True)  # the shortest of those that say the same
    kept.sort()
    rest, columns = [phrases[i] for i in kept], columns[:, kept] - columns[:, kept].mean(axis=0)
    left = best / best.sum(axis=1, keepdims=True)
    left = left - left.mean(axis=0)
    chosen = []
    for _ in range(most):
        lengths = np.linalg.norm(columns, axis=0)
        gains = np.linalg.norm(columns.T @ left, axis=1) / np.where(lengths > 1e-6, lengths, np.inf)
        if lengths.max() < 1e-6:
            break
        i = int((gains if gains.max() > 1e-6 else lengths).argmax())  # products may explain what single ones do not
        chosen.append(rest[i])
        axis = columns[:, i] / lengths[i]
        left, columns = left - np.outer(axis, axis @ left), columns - np.outer(axis, axis @ columns)
    return chosen


def contains_features(texts: Sequence[str], best: npt.NDArray[np.bool_], count: int) -> Features:
    """Return features that tell whether chosen phrases occur."""
    phrases = chosen_phrases(texts, best, count)
    return lambda others: has(others, phrases)


def embed_features(texts: Sequence[str], best: npt.NDArray[np.bool_], count: int) -> Features:
    """Return the principal components of embeddings, fitted on `texts`."""
    seen = np.stack([embedding(text) for text in texts])
    middle = seen.mean(axis=0)
    axes = np.linalg.svd(seen - middle, full_matrices=False)[2][:count]
    return lambda others: (np.stack([embedding(text) for text in others]) - middle) @ axes.T


def with_products(features: Features) -> Features:
    """Return features and their products in pairs."""

    def widened(texts: Sequence[str]) -> Matrix:
        plain = features(texts)
        pairs = combinations_with_replacement(range(plain.shape[1]), 2)
        return np.hstack([plain, np.stack([plain[:, i] * plain[:, j] for i, j in pairs], axis=1)])

    return widened


def scaled(features: Features, texts: Sequence[str]) -> Features:
    """Return features of mean 0, the most varied one with deviation 1 over `texts`, and a constant 1."""
    seen = features(texts)
    middle, spread = seen.mean(axis=0), seen.std(axis=0).max()
    return lambda others: np.hstack([(features(others) - middle) / spread, np.ones((len(others), 1))])


# --- heads -----------------------------------------------------------------------------------------------------------


def imitated(x: Matrix, best: npt.NDArray[np.bool_], penalty: float) -> Matrix:
    """Return weights (k, 8): the most probable ones for a right command at each of n situations, less a penalty."""
    shape = x.shape[1], best.shape[1]

    def loss(flat: Matrix) -> tuple[float, Matrix]:
        weights = flat.reshape(shape)
        log_p = log_probabilities(x @ weights)
        right = np.logaddexp.reduce(np.where(best, log_p, -np.inf), axis=1)
        share = np.where(best, np.exp(log_p - right[:, None]), 0.0)
        slope = x.T @ (np.exp(log_p) - share) / len(x) + penalty * weights
        return float(-right.mean() + penalty * (weights**2).sum() / 2), slope.ravel()

    found = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return np.asarray(found.x).reshape(shape)


def log_probabilities(scores: Matrix) -> Matrix:
    """Return log softmax along the last axis."""
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=1)[:, None])


def mean_return(commands: npt.NDArray[np.intp]) -> float:
    """Play an episode on each map, with a command (n,) for each situation."""
    here, total = game().starts, 0.0
    for _ in range(STEPS):
        given = commands[here]
        total += float(game().rewards[here, given].sum())
        here = game().after[here, given]
        here = here[here >= 0]
    return total / MAPS


@dataclass(frozen=True, slots=True)
class Lessons:
    """Training data: all situations of some maps in some wordings."""

    wordings: Sequence[int]
    maps: Sequence[int] = range(MAPS)

    def data(self) -> tuple[list[str], npt.NDArray[np.bool_]]:
        """Return n texts, and which of the 8 commands are right: (n, 8)."""
        rows = np.flatnonzero(np.isin(game().on_map, self.maps))
        texts = [reworded(game().texts[i], wording) for wording in self.wordings for i in rows]
        return texts, np.tile(game().best[rows], (len(self.wordings), 1))


def fitted(make: Make, count: int, products: bool, lessons: Lessons, seed: int) -> tuple[Features, Matrix]:
    """Fit features and a head, which imitates the right commands; a third of the maps chooses the penalty."""

    def head(texts: Sequence[str], best: npt.NDArray[np.bool_]) -> tuple[Features, Callable[[float], Matrix]]:
        features = make(texts, best, count)
        features = scaled(with_products(features) if products else features, texts)
        x = features(texts)
        return features, lambda penalty: imitated(x, best, penalty)

    maps = np.random.default_rng(seed).permutation(MAPS).tolist()
    first, aside = Lessons(lessons.wordings, maps[MAPS // 3 :]), Lessons(lessons.wordings, maps[: MAPS // 3])
    features, weights_for = head(*first.data())
    texts, best = aside.data()
    x = features(texts)

    def missed(penalty: float) -> float:
        log_p = log_probabilities(x @ weights_for(penalty))
        return float(-np.logaddexp.reduce(np.where(best, log_p, -np.inf), axis=1).mean())

    penalty = min(PENALTIES, key=missed)
    features, weights_for = head(*lessons.data())
    return features, weights_for(penalty)


def evolved(features: Features, weights: Matrix, lessons: Lessons, seed: int, generations: int) -> Matrix:
    """Tune weights by CMA-ES on the mean return in the wordings of training, from those given."""
    x = [features([reworded(text, wording) for text in game().texts]) for wording in lessons.wordings]
    spread = max(float(weights.std()), 1e-3)

    def loss(flat: Matrix) -> float:
        tried = (spread * flat).reshape(weights.shape)
        return -float(np.mean([mean_return((one @ tried).argmax(axis=1)) for one in x]))

    never = {"tolfun": 0, "tolflatfitness": 10**6}  # returns are flat in most directions
    options = {"maxiter": generations, "seed": seed, "verbose": -9, "CMA_diagonal": True, **never}
    search = cma.CMAEvolutionStrategy(weights.ravel() / spread, 0.5, options)
    least, kept = loss(weights.ravel() / spread), weights.ravel() / spread
    while not search.stop():
        asked = search.ask()
        losses = [loss(np.asarray(one)) for one in asked]
        search.tell(asked, losses)
        if min(losses) < least:
            least, kept = min(losses), np.asarray(asked[int(np.argmin(losses))])
    return (spread * kept).reshape(weights.shape)


def commanded(features: Features, weights: Matrix) -> Policy:
    """Return the linear policy: the command of the highest score."""
    return lambda texts: (features(texts) @ weights).argmax(axis=1)


def by_hand(texts: Sequence[str]) -> npt.NDArray[np.intp]:
    """Return the right commands for texts in the environment's wording, by rules over phrases written by hand."""

    def one(text: str) -> str:
        for sign, command in SIGNS.items():
            if sign in text:
                return command
        wanted = "kitchen" if "Carried: lamp" not in text else "cave" if "lamp, key" in text else "library"
        ways = {room: f"go {way}" for way in DIRECTIONS for room in ROOMS if f"{way.capitalize()}: {room}." in text}
        return ways.get(wanted) or ways.get("hall", "go north")

    return np.array([COMMANDS.index(one(text)) for text in texts])


def meanings(wordings: Sequence[int]) -> dict[str, str]:
    """Return the sentences of these wordings, each with the one of the environment that it stands for."""
    own: dict[str, str] = {}
    for text in game().texts:
        for wording in wordings:
            own |= dict(zip(sentences(reworded(text, wording)), sentences(text), strict=True))
    return own


def translated_sentences(wordings: Sequence[int], near: Near) -> Callable[[str], str]:
    """Return a function that gives the meaning of the nearest sentence of these wordings."""
    own = meanings(wordings)
    known = list(own)
    return cache(lambda sentence: own[known[near(sentence, known)]])


def translated(policy: Policy, wordings: Sequence[int], near: Near) -> Policy:
    """Put the nearest known sentence, in the environment's wording, in the place of each; then ask `policy`."""
    translation = translated_sentences(wordings, near)
    return lambda texts: policy([" ".join(map(translation, sentences(text))) for text in texts])


def near_by_meaning(sentence: str, known: Sequence[str]) -> int:
    """Return the position of the known sentence whose embedding has the smallest angle."""
    return int(np.argmax([embedding(sentence) @ embedding(one) for one in known]))


def near_by_words(sentence: str, known: Sequence[str]) -> int:
    """Return the position of the known sentence with the largest share of common words."""

    def words(text: str) -> set[str]:
        return set(re.findall(r"[a-z0-9]+", text.lower()))

    asked = words(sentence)
    return int(np.argmax([len(asked & words(one)) / len(asked | words(one)) for one in known]))


# --- the page --------------------------------------------------------------------------------------------------------


def contenders(wordings: Sequence[int], seed: int, generations: int) -> Iterator[tuple[str, Policy]]:
    """Train all contenders in these wordings."""
    lessons = Lessons(wordings)
    kinds: tuple[tuple[str, Make, Sequence[int]], ...] = (
        ("`contains`, {} phrases", contains_features, PHRASES),
        ("embedding, {} components", embed_features, COMPONENTS),
    )
    for name, make, counts in kinds:
        for count in counts:
            for products in (False, True):
                features, weights = fitted(make, count, products, lessons, seed)
                yield name.format(count) + (", and products" if products else ""), commanded(features, weights)
                if count == TUNED and not products:
                    weights = evolved(features, weights, lessons, seed, generations)
                    yield f"{name.format(count)}, tuned on the return", commanded(features, weights)
    yield "rules by hand", by_hand
    yield "rules by hand, nearest sentence by words", translated(by_hand, wordings, near_by_words)
    yield "rules by hand, nearest sentence by embedding", translated(by_hand, wordings, near_by_meaning)


@dataclass(frozen=True, slots=True)
class Result:
    """A contender in a wording: mean return over all maps, and which situations have a right command."""

    value: float
    right: npt.NDArray[np.bool_]  # (n,)
    commands: npt.NDArray[np.intp]  # (n,)


def tried(policy: Policy, wording: int) -> Result:
    """Play a policy on all maps in a wording."""
    commands = policy([reworded(text, wording) for text in game().texts])
    return Result(mean_return(commands), game().best[np.arange(len(commands)), commands], commands)


def shown(values: Sequence[float], digits: int) -> str:
    """Write a mean with Student's 95% interval over seeds."""
    return plus_minus(values, f".{digits}f").removesuffix(f" ± {0:.{digits}f}")


def rows_of(results: dict[str, list[list[Result]]], in_hall: npt.NDArray[np.bool_]) -> Iterator[str]:
    """Yield a row for each contender; of each seed there are results in `OWN`, `WHOLE`, and a drawn wording."""
    for name, seeds in results.items():
        cells = [shown([seed[i].value for seed in seeds], 1) for i in range(3)]
        for i, part in ((1, in_hall), (1, ~in_hall), (2, in_hall), (2, ~in_hall)):
            cells.append(shown([100 * float(seed[i].right[part].mean()) for seed in seeds], 0))
        yield f"| {name} | " + " | ".join(cells) + " |"


def mistakes(results: Sequence[Result], most: int) -> Iterator[str]:
    """Yield the most frequent kinds of wrong commands: the room, what is right, what is given, and their share."""
    counts: Counter[str] = Counter()
    for result in results:
        for i in np.flatnonzero(~result.right):
            right = {kind_of(COMMANDS[j]) for j in np.flatnonzero(game().best[i])}
            room = game().texts[i].split(".")[0].split()[-1]
            given = kind_of(COMMANDS[result.commands[i]])
            given = f"another {given}" if given in right else given
            counts[f"{room} | {' or '.join(sorted(right))} | {given}"] += 1
    for what, count in counts.most_common(most):
        yield f"| {what} | {100 * count / counts.total():.0f}% |"


def kind_of(command: str) -> str:
    """Return the command, without its direction."""
    return "way" if command.startswith("go ") else command


def misread(wordings: Sequence[int]) -> Iterator[str]:
    """Yield sentences of the new wordings that the embedding puts nearest to a sentence of another meaning."""
    read = {near: translated_sentences(wordings, near) for near in (near_by_words, near_by_meaning)}
    for sentence, meaning in meanings(NEW).items():
        found = [one(sentence) for one in read.values()]
        if found[1] != meaning:
            yield f"| {sentence} | {meaning} | {found[1]} | {found[0]} |"


def main() -> None:
    """Measure all contenders, and put the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, little tuning; the page stays as it is")
    quick = parser.parse_args().quick
    in_hall = np.array(["in the hall" in text for text in game().texts])
    tables: list[list[str]] = []
    for title, wordings in TRAININGS.items():
        results: dict[str, list[list[Result]]] = {}
        for seed in SEEDS[:1] if quick else SEEDS:
            for name, policy in contenders(wordings, seed, 10 if quick else GENERATIONS):
                results.setdefault(name, []).append([tried(policy, wording) for wording in (OWN, WHOLE, seed)])
        tables.append([HEADINGS.format(title), "| --- " + "| ---: " * 7 + "|", *rows_of(results, in_hall)])
    wrong = mistakes([seed[2] for seed in results[EXAMINED]], 6)
    tables.append(["| room | right | given | share of wrong commands |", "| --- | --- | --- | ---: |", *wrong])
    tables.append(["| sentence | means | nearest by embedding | nearest by words |", "| --- | --- | --- | --- |"])
    tables[-1] += misread(wordings)
    for lines in tables:
        print("\n".join(lines), flush=True)
        if not quick:
            Measurements("encode", ()).write_table(lines)


if __name__ == "__main__":
    main()
