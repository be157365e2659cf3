"""A tiny reading comprehension corpus and its vocabulary."""

import io
import json
from argparse import Namespace
from types import SimpleNamespace

import sentencepiece
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_relpos.checkpoints import starting_point
from fairseq_relpos.finetuning import squad_data
from fairseq_relpos.tasks import span_windows

CONTEXTS = [
    "The red cat of Zoë sat on the mat in 1920, and the dog slept near the old house by the river.",
    "  Ångström was born in Lögdö;\n he measured light. Nobody counted the stars before the year 1868 there.",
]
#: id, question, context, answer
QUESTIONS = [
    ("q0", "Who sat on the mat?", 0, "red cat of Zoë"),
    ("q1", "When did it sit?", 0, "1920"),
    ("q2", "Where did the dog sleep, that dog that was not the cat and not the bird of the house?", 0, "river"),
    ("q3", "Where was he born?", 1, "Lögdö"),
    ("q4", "What did Ångström measure?", 1, "light"),
]


def squad(questions=QUESTIONS, version="1.1"):
    """In the form of SQuAD; a question whose answer is None has none."""
    paragraphs = [{"context": context, "qas": []} for context in CONTEXTS]
    for name, text, context, answer in questions:
        item = {"id": name, "question": text, "answers": []}
        if answer is not None:
            item["answers"].append({"text": answer, "answer_start": CONTEXTS[context].index(answer)})
        if version == "v2.0":
            item["is_impossible"] = answer is None
        paragraphs[context]["qas"].append(item)
    return {"version": version, "data": [{"title": "t", "paragraphs": paragraphs}]}


def write(path, data):
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


def vocabulary(folder):
    """spm.model and dict.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*CONTEXTS, *(text for _, text, _, _ in QUESTIONS)] * 3),
        model_writer=model,
        vocab_size=90,
        model_type="bpe",
        normalization_rule_name="nmt_nfkc_cf",
        num_threads=1,
        minloglevel=2,
    )
    (folder / "spm.model").write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]
    (folder / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    return folder


#: of a model for this corpus
SIZES = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}


def pretrained(path, arch="roberta_learned", **settings):
    """A checkpoint as a masked LM with short inputs leaves it beside its vocabulary."""
    sizes = {f"encoder_{name}": size for name, size in SIZES.items()}
    args = Namespace(**{"arch": arch, "_name": arch, "max_positions": 24, **sizes, **settings})
    ARCH_CONFIG_REGISTRY[arch](args)
    words = SimpleNamespace(source_dictionary=span_windows.load_dictionary(str(path.parent)))
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, words)
    starting_point.save(path, OmegaConf.create({"task": {"data": str(path.parent)}}), args, model)
    return path


def data(folder, version="1.1", **splits):
    """A folder for the task; splits: the questions of each, by default all in train and valid."""
    vocabulary(folder)
    for split, questions in (splits or {"train": QUESTIONS, "valid": QUESTIONS}).items():
        source = write(folder / f"{split}.source.json", squad(questions, version=version))
        squad_data.encode(source, str(folder), folder / split)
    return folder
