"""Small files like those of GLUE, and a vocabulary for them."""

import json

import sentencepiece
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

from fairseq_relpos.finetuning.glue import task_of

WORDS = [f"w{i}" for i in range(40)]


def write_vocabulary(folder):
    """SentencePiece and dict.txt, a piece for each word."""
    texts = [" ".join(WORDS[start::7]) for start in range(40)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=f"{folder}/spm", vocab_size=43, model_type="word", minloglevel=2
    )
    (folder / "dict.txt").write_text("".join(f"▁{word} 1\n" for word in WORDS), encoding="utf-8")
    return folder


def write_gpt2(folder):
    """The files of GPT-2's BPE and dict.txt: a piece for each byte, one for "cat", and one for a blank and "t"."""
    pieces = [*bytes_to_unicode().values(), "ca", "cat", "\u0120t"]
    (folder / "encoder.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version\nc a\nca t\n\u0120 t\n", encoding="utf-8")
    (folder / "dict.txt").write_text("".join(f"{number} 1\n" for number in range(len(pieces))))
    return folder


def sentence(number, length):
    return " ".join(WORDS[(number * 7 + place * 3) % 40] for place in range(length))


def write_tsv(folder, name, rows=24, **replace):
    """Files like those of GLUE."""
    task = task_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    for split, file in task.files.items():
        labelled = not split.startswith("test")
        header = ["index", *(names[0] for names in task.columns), *([task.label_columns[0]] if labelled else [])]
        lines = []
        for row in range(rows):
            texts = [sentence(row + place, 3 + (row * 5 + 3 * place) % 9) for place in range(len(task.columns))]
            label = task.labels[row % len(task.labels)] if task.labels else f"{row % 6:.1f}"
            lines.append([str(row), *texts, *([label] if labelled else [])])
        (folder / file).write_text("".join("\t".join(line) + "\n" for line in [header, *lines]), encoding="utf-8")
    for file, text in replace.items():
        (folder / f"{file}.tsv").write_text(text, encoding="utf-8")
    return folder
