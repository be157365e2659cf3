"""Write one of the three artificial tasks of Wu et al. 2021 (AT5, Table 1) as arrays.

    python generate.py reber|process50|adding100 OUT --seed N

OUT gets train.npz, valid.npz and test.npz for the task sequence_labels, and facts.json, unless they are there. Prints
the lengths of the longest sequence and of the longest in training. The same seed gives the same files; no sequence is
in two of them.
"""

import argparse
import json
import random
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from stopping import locked  # noqa: E402

from fairseq_relpos.atomic_files import whole_file, write_json  # noqa: E402

TRAIN = {"reber": 1000, "process50": 5000, "adding100": 1000}
VALID, TEST = 500, 5000

#: Reber's grammar: from each state, the letters that may follow and the state each leads to
REBER = {
    0: [("T", 1), ("P", 2)],
    1: [("S", 1), ("X", 3)],
    2: [("T", 2), ("V", 4)],
    3: [("X", 2), ("S", 5)],
    4: [("P", 3), ("V", 5)],
}
TOO_LONG = 500

#: probabilities of leaving state 0 and state 1; both chains are in state 0 two thirds of the time
CHAINS = [(0.2, 0.4), (0.3, 0.6)]
PROCESS_LENGTH = 50

ADDING_LENGTH = 100


def reber_string(rng: random.Random) -> str:
    """A walk through the grammar, with B before it and E after."""
    letters, state = ["B"], 0
    while state != 5:
        letter, state = rng.choice(REBER[state])
        letters.append(letter)
    return "".join(letters) + "E"


def reber(rng: random.Random):
    """B x REBER y REBER x with x one of P and T, and y the other: given everything before its
    last letter, name that letter. Both letters occur once at the joints, so counting says
    nothing: the second one is the answer.
    """
    while True:
        first, other = rng.choice(["PT", "TP"])
        text = "B" + first + reber_string(rng) + other + reber_string(rng)
        if len(text) + 1 < TOO_LONG:
            return text, "PT".index(first)


def process50(rng: random.Random):
    """50 states of one of two Markov chains: which chain was it? The first state is drawn from
    the stationary distribution, so only neighbours tell them apart.
    """
    label = rng.randrange(2)
    leave = CHAINS[label]
    state = int(rng.random() < leave[0] / sum(leave))
    states = []
    for _ in range(PROCESS_LENGTH):
        states.append(str(state))
        if rng.random() < leave[state]:
            state = 1 - state
    return "".join(states), label


def adding100(rng: random.Random):
    """100 pairs of a value from U(-1, 1) and a mark: -1 at both ends, 1 at one of the first ten
    places and at one other of the first 49, else 0. To find: 0.5 + (x_1 + x_2) / 4 of the two
    marked values.
    """
    pairs = [(rng.uniform(-1, 1), 0.0) for _ in range(ADDING_LENGTH)]
    first = rng.randrange(10)
    second = rng.choice([k for k in range(ADDING_LENGTH // 2 - 1) if k != first])
    for place, mark in [(0, -1.0), (-1, -1.0), (first, 1.0), (second, 1.0)]:
        pairs[place] = (pairs[place][0], mark)
    return tuple(pairs), 0.5 + (pairs[first][0] + pairs[second][0]) / 4


GENERATORS = {"reber": reber, "process50": process50, "adding100": adding100}
SYMBOLS = {"reber": "BEPSTVX", "process50": "01"}


def different(generator, rng, count):
    seen = {}
    while len(seen) < count:
        sequence, label = generator(rng)
        seen.setdefault(sequence, label)
    return list(seen.items())


def write(path: Path, samples, symbols):
    """inputs of all samples one after the other, their lengths, and their labels."""
    sequences, labels = zip(*samples)
    together = [element for sequence in sequences for element in sequence]
    arrays = {
        "inputs": np.array([symbols.index(s) for s in together], dtype=np.int64)
        if symbols
        else np.array(together, dtype=np.float32),
        "lengths": np.array([len(sequence) for sequence in sequences], dtype=np.int64),
        "labels": np.array(labels, dtype=np.float32 if isinstance(labels[0], float) else np.int64),
        "symbols": np.array(list(symbols)),
    }
    with whole_file(path) as part, open(part, "wb") as file:
        np.savez_compressed(file, **arrays)


def chain_likelihood_accuracy(samples):
    """How often the more likely chain is the right one: no classifier of process50 does better."""

    def log_likelihood(states, leave):
        return sum(np.log(leave[int(a)] if a != b else 1 - leave[int(a)]) for a, b in zip(states, states[1:]))

    right = [
        (log_likelihood(states, CHAINS[1]) > log_likelihood(states, CHAINS[0])) == label for states, label in samples
    ]
    return float(np.mean(right))


def make(task, out, seed):
    rng = random.Random(f"{task} {seed}")
    count = TRAIN[task]
    samples = different(GENERATORS[task], rng, count + VALID + TEST)
    splits = {"train": samples[:count], "valid": samples[count : count + VALID], "test": samples[count + VALID :]}
    for split, part in splits.items():
        write(out / f"{split}.npz", part, SYMBOLS.get(task, ""))
    facts = {
        "longest_train": max(len(sequence) for sequence, _ in splits["train"]),
        "longest": max(len(sequence) for sequence, _ in samples),
    }
    if task == "process50":
        facts["best_possible"] = chain_likelihood_accuracy(splits["test"])
    write_json(out / "facts.json", facts)  # last: it says that the rest is there


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=sorted(GENERATORS))
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    with locked(args.out):  # other encodings may want the same data at the same time
        if not (args.out / "facts.json").exists():
            make(args.task, args.out, args.seed)
    facts = json.loads((args.out / "facts.json").read_text())
    print(facts["longest"], facts["longest_train"])


if __name__ == "__main__":
    main()
