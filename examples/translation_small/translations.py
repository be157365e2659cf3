"""Translations and their scores, for run.sh of the translation recipes.

    translations.py generate RUN PENALTIES COMMAND...     -> RUN/SPLIT.de of every test set; COMMAND: fairseq-generate
    translations.py translate RUN PENALTIES COMMAND...    stdin -> stdout; COMMAND: fairseq-interactive
    translations.py score RUN EDGES                       -> RUN/scores.json; RUN/lengths.json, by words of the source

SOURCE, TARGET, TEXT, DATA and CHECKPOINT are in the environment. PENALTIES: a length penalty, or several of which the
one with the best BLEU on the validation text is used (RUN/length_penalty). TEXT: raw, or tokenised, where
SPLIT.de.tokens has the tokens that the model wrote.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
import corpus  # noqa: E402
from messages import fail, in_one_line, say  # noqa: E402

from fairseq_relpos.atomic_files import write_json  # noqa: E402
from fairseq_relpos.reports import translation_scores  # noqa: E402

SOURCE, TARGET, TEXT = (os.environ[name] for name in ("SOURCE", "TARGET", "TEXT"))
DATA, CHECKPOINT = Path(os.environ["DATA"]), Path(os.environ["CHECKPOINT"])
IS_TOKENISED = TEXT == "tokenised"
if TEXT not in ("raw", "tokenised"):
    fail(f"TEXT={TEXT}: give raw or tokenised")


def write(path, lines):
    with corpus.writing(path) as (file,):
        file.writelines(f"{line}\n" for line in lines)


def decode(run, out, command, *flags):
    """Runs a command of fairseq into a file, with its errors in a file beside it. Flags of ``command`` come last."""
    with open(out, "w") as file, open(f"{out}.errors", "w") as errors:
        done = subprocess.run(
            [*command[:2], *flags, *command[2:]], stdin=subprocess.DEVNULL, stdout=file, stderr=errors
        )
    if done.returncode:
        text = Path(out).read_text(errors="replace") + Path(f"{out}.errors").read_text(errors="replace")
        (run / "errors.txt").write_text(text)
        fail(f"{(text.splitlines() or ['no message'])[-1]} (all of it in {run}/errors.txt)")


def collect(generated, source, out):
    """Writes the translations in the order of the source."""
    count = sum(1 for _ in corpus.lines_of(source))
    with open(generated, encoding="utf-8") as file:
        lines = translation_scores.best_hypotheses(file, count)
    if IS_TOKENISED:
        write(f"{out}.tokens", lines)
        lines = translation_scores.Text.of(lines, TARGET, tokenised=True).raw
    write(out, lines)


def chosen_penalty(run, penalties):
    """Returns the length penalty, chosen from these for this checkpoint if there are several."""
    if len(penalties) == 1:
        return penalties[0]
    path = run / "length_penalty"
    chosen, *others = path.read_text(encoding="utf-8").split() if path.exists() else [None]
    if others != ["of", *penalties] or CHECKPOINT.exists() and CHECKPOINT.stat().st_mtime > path.stat().st_mtime:
        fail(f"no length penalty is chosen for {CHECKPOINT}: run.sh generate {run.name.partition('-seed')[0]} first")
    return chosen


def choose_penalty(run, penalties, command):
    """Uses BLEU against the references that fairseq-generate prints: both sides are the model's own tokens, joined."""
    found = {}
    for penalty in penalties:
        say(f"{run.name}: translating the validation text with length penalty {penalty}")
        path = run / f"valid.penalty{penalty}.txt"
        decode(run, path, command, "--lenpen", penalty, "--gen-subset", "valid")
        lines = path.read_text(encoding="utf-8").splitlines(True)
        references = {line.split("\t")[0][2:]: line.rstrip("\n").split("\t")[1] for line in lines if line[:2] == "T-"}
        ordered = [references[str(number)] for number in range(len(references))]
        best = translation_scores.best_hypotheses(lines, len(ordered))
        score = translation_scores.bleu(TARGET).corpus_score(best, [ordered])
        found[penalty] = score.score
        print(f"  length penalty {penalty}: BLEU {score.score:.2f}, length ratio {score.ratio:.3f}")
    write(run / "length_penalty", [f"{max(found, key=found.__getitem__)} of {' '.join(penalties)}"])
    for path in run.glob("valid.penalty*"):
        path.unlink()


def generate(run, penalties, *command):
    if len(penalties) > 1:
        choose_penalty(run, penalties, command)
    penalty = chosen_penalty(run, penalties)
    joined = [line.split()[1] for line in corpus.lines_of(DATA / "sources.txt") if line.startswith("joined ")]
    for split in test_splits():
        source = DATA / "text" / f"{split}.{SOURCE}"
        say(f"{run.name}: translating {source} with {CHECKPOINT}")
        longer = ["--max-len-a", "2"] if split in joined else []  # fairseq writes 200 tokens at most
        out = run / f"{split}.generate.txt"
        decode(run, out, command, "--lenpen", penalty, "--gen-subset", split, *longer)
        collect(out, source, run / f"{split}.{TARGET}")


def test_splits():
    """test, test1, ...: the test sets of DATA"""
    names = [path.name.split(".")[0] for path in DATA.glob(f"test*.{SOURCE}-{TARGET}.{SOURCE}.idx")]
    return sorted(names, key=lambda name: (len(name), name))


def translate(run, penalties, *command):
    penalty = chosen_penalty(run, penalties)
    encoder = corpus.Encoder(DATA, SOURCE)
    with tempfile.TemporaryDirectory() as work:
        given = Path(work, f"input.{SOURCE}")
        given.write_bytes(sys.stdin.buffer.read())
        pieces, out = Path(work, "pieces"), Path(work, "output")
        write(pieces, (" ".join(encoder(corpus.one_line(line))) for line in corpus.lines_of(given)))
        decode(run, Path(work, "generated"), command, "--lenpen", penalty, "--input", str(pieces))
        collect(Path(work, "generated"), pieces, out)
        sys.stdout.write(out.read_text(encoding="utf-8"))


def score(run, edges):
    found, lengths = {}, {"edges": edges, "names": names_of(test_splits())}
    for split in test_splits():
        reference, ours = DATA / "text" / f"{split}.{TARGET}", run / f"{split}.{TARGET}"
        hypotheses = translation_scores.read_text(f"{ours}.tokens" if IS_TOKENISED else ours, TARGET, IS_TOKENISED)
        references = translation_scores.read_text(reference, TARGET, IS_TOKENISED)
        print(f"{split}: {len(references.raw):,} sentences")
        results = list(translation_scores.scores(hypotheses, references))
        found[split] = [dataclasses.asdict(result) for result in results]
        for result in results:
            print(f"  {result.name:<14} {result.value:5.1f}  {result.signature or result.meaning}")
        sources = translation_scores.read_text(DATA / "text" / f"{split}.{SOURCE}", SOURCE, IS_TOKENISED).raw
        buckets = translation_scores.by_length(
            sources, hypotheses.raw, references.raw, TARGET, beyond([int(edge) for edge in edges.split()], sources)
        )
        lengths[split] = [dataclasses.asdict(bucket) for bucket in buckets]
    write_json(run / "lengths.json", lengths)
    write_json(run / "scores.json", found)


def names_of(splits):
    """The name of each test set: that of the file which it was made from."""
    names, ending = {}, f".{SOURCE}"
    for line in corpus.lines_of(DATA / "sources.txt"):
        if line.startswith("vocabulary "):  # of a given one, only its digest
            continue
        _, split, name = line.split(" ", 2)
        if split in splits and ending in name:
            name = name[: name.rindex(ending)]
            names[split] = f"{name} ({split})" if name in names.values() else name
    return names


def beyond(edges, sources):
    """The edges, and the double of the last as long as most of the sources are longer, as joined ones are."""
    edges = list(edges)
    lengths = sorted(len(source.split()) for source in sources)
    while lengths[len(lengths) // 2] > edges[-1]:
        edges.append(2 * edges[-1])
    return edges


if __name__ == "__main__":
    action, run, *rest = sys.argv[1:]
    with in_one_line(run):
        if action == "score":
            score(Path(run), *rest)
        else:
            {"generate": generate, "translate": translate}[action](Path(run), rest[0].split(), *rest[1:])
