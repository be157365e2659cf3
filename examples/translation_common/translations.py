"""Translations and their scores, for run.sh of the translation recipes.

    translations.py collect GENERATED SOURCE OUT TEXT LANGUAGE      -> OUT, in the order of SOURCE
    translations.py score RUN DATA TEXT LANGUAGE                    -> RUN/scores.json
    translations.py better OUT LANGUAGE OF GENERATED...             -> OUT: X of the best .penaltyX.txt by BLEU, and OF

TEXT: raw, or tokenised, where OUT.tokens has the tokens that the model wrote.
"""

import dataclasses
import json
import sys
from pathlib import Path

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.reports import translation


def collect(generated, source, out, text, language):
    with open(source, encoding="utf-8") as file:
        count = sum(1 for _ in file)
    with open(generated, encoding="utf-8") as file:
        lines = translation.best_hypotheses(file, count)
    if text == "tokenised":
        write(f"{out}.tokens", lines)
        lines = translation.Text.of(lines, language, tokenised=True).raw
    write(out, lines)


def write(path, lines):
    with whole_file(path) as part:
        Path(part).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def score(run, data, text, language):
    found = {}
    for reference in sorted(Path(data, "text").glob(f"*.{language}")):
        ours = Path(run, reference.name)
        tokenised = text == "tokenised"
        hypotheses = translation.read_text(f"{ours}.tokens" if tokenised else ours, language, tokenised)
        references = translation.read_text(reference, language, tokenised)
        print(f"{reference.stem}: {len(references.raw):,} sentences")
        found[reference.stem] = []
        for result in translation.scores(hypotheses, references):
            found[reference.stem].append(dataclasses.asdict(result))
            print(f"  {result.name:<14} {result.value:5.1f}  {result.signature or result.meaning}")
    with whole_file(Path(run, "scores.json")) as part:
        Path(part).write_text(json.dumps(found, indent=1), encoding="utf-8")


def better(out, language, of, *generated):
    """BLEU against the references that fairseq-generate has printed: both sides are the model's own tokens, joined."""
    found = {}
    for path in generated:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
        # in the order of the text
        references = {line.split("\t")[0][2:]: line.rstrip("\n").split("\t")[1] for line in lines if line[:2] == "T-"}
        ordered = [references[str(number)] for number in range(len(references))]
        hypotheses = translation.best_hypotheses(lines, len(ordered))
        score = translation.bleu(language).corpus_score(hypotheses, [ordered])
        penalty = Path(path).stem.partition(".penalty")[2]
        found[penalty] = score.score
        print(f"  length penalty {penalty}: BLEU {score.score:.2f}, length ratio {score.ratio:.3f}")
    write(out, [f"{max(found, key=found.__getitem__)} {of}"])


if __name__ == "__main__":
    try:
        {"collect": collect, "score": score, "better": better}[sys.argv[1]](*sys.argv[2:])
    except (OSError, ValueError) as error:
        sys.exit(f"{Path(sys.argv[0]).name}: error: {error}")
