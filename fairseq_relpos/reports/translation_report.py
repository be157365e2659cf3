"""Tables and pictures of translation runs that differ in encoding and seed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from .markdown import markdown_table, table_by_encoding, with_deviation
from .training_log import Run
from .translation_scores import Bucket, Score


@dataclass
class Evaluated:
    """A run, and by the name of each test set its scores and those by the length of the source."""

    run: Run
    scores: dict[str, list[Score]] = field(default_factory=dict)
    buckets: dict[str, list[Bucket]] = field(default_factory=dict)

    def score(self, test: str, name: str) -> float:
        return next(score.value for score in self.scores[test] if score.name == name)


def by_encoding_of(runs: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    groups: dict[str, list[Evaluated]] = {}
    for run in runs:
        groups.setdefault(run.run.encoding, []).append(run)
    return groups


def scores_table(runs: Sequence[Evaluated], test: str) -> str:
    """Returns a Markdown table with one row per encoding."""
    names = [score.name for score in runs[0].scores[test]]
    rows = []
    for encoding, group in by_encoding_of(runs).items():
        cells = [with_deviation([run.score(test, name) for run in group], digits=1) for name in names]
        rows.append([encoding, " ".join(str(run.run.seed) for run in group), *cells])
    return markdown_table(["encoding", "seeds", *names], rows)


def signatures(runs: Sequence[Evaluated]) -> dict[str, list[str]]:
    """Returns, by the name of a score, what it is and the sacreBLEU signatures under which it was computed."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for scores in run.scores.values():
            for score in scores:
                texts = found.setdefault(score.name, [score.meaning])
                if score.signature and score.signature not in texts:
                    texts.append(score.signature)
    return found


def training_table(runs: Sequence[Run]) -> str:
    """Returns a Markdown table with one row per encoding; the loss is that of the last validation."""

    def distinct(runs: list[Run], name: str) -> str:
        return " ".join(sorted({f"{getattr(run, name):,}" for run in runs}))

    def loss(runs: list[Run]) -> str:
        losses = [run.losses["valid"] for run in runs if "valid" in run.losses]
        last = [by_update[max(by_update)] for by_update in losses]
        return with_deviation(last) if last else "-"

    def speed(runs: list[Run]) -> str:
        known = [run.speed for run in runs if run.speed]
        return f"{mean(known):,.0f}" if known else "-"

    return table_by_encoding(
        runs,
        {
            "parameters": lambda runs: distinct(runs, "parameters"),
            "updates": lambda runs: distinct(runs, "updates"),
            "valid loss (nats)": loss,
            "target tokens/s": speed,
            "minutes a run": lambda runs: f"{mean(run.seconds for run in runs) / 60:.0f}",
        },
    )


def buckets_of(runs: Sequence[Evaluated], test: str) -> dict[str, list[list[Bucket]]]:
    """Returns, by encoding, the buckets of each of its runs."""
    return {encoding: [run.buckets[test] for run in group] for encoding, group in by_encoding_of(runs).items()}


def length_table(found: dict[str, list[list[Bucket]]]) -> str:
    """Returns a Markdown table of BLEU and, in brackets, the length ratio to the references; means over the seeds."""
    first = next(iter(found.values()))[0]
    head = ["encoding", *(f"{bucket.label} words ({bucket.sentences:,})" for bucket in first)]
    rows = []
    for encoding, runs in found.items():
        cells = []
        for buckets in zip(*runs):  # one of each run
            bleu, ratio = mean(b.bleu for b in buckets), mean(b.length_ratio for b in buckets)
            cells.append(f"{bleu:.1f} ({ratio:.2f})")
        rows.append([encoding, *cells])
    return markdown_table(head, rows)


def plot_lengths(by_test: dict[str, dict[str, list[list[Bucket]]]], path: str | Path) -> Path:
    """Plots BLEU against the length of the source, for each test set."""
    from . import curves

    bleu = {
        test: {encoding: [{b.label: b.bleu for b in buckets} for buckets in runs] for encoding, runs in found.items()}
        for test, found in by_test.items()
    }
    return curves.plot(bleu, path, "words in the source", "BLEU")
