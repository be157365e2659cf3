"""A checkpoint of a RoBERTa as a folder that transformers loads."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, data_utils

from ..checkpoints import warm_start
from ..checkpoints.starting_point import build_roberta, upgrade_names
from ..hf import RelPosRobertaConfig
from ..tasks import data_facts, span_head
from .names import ACTIVATIONS, LAYER
from .trained_models import QUANTISED, refuse_without_counterpart
from .transformers_folder import Exported, load, random_rows, renamed, write
from .words import Words, compare_ids, real_rows

#: names of weights, fairseq's -> ours for transformers; the first that fits
NAMES = {
    r"encoder\.sentence_encoder\.embed_tokens\.": "roberta.embed_tokens.",
    r"encoder\.sentence_encoder\.": "roberta.encoder.",
    r"encoder\.lm_head\.(weight|bias)$": r"lm_head.decoder.\1",
    r"encoder\.lm_head\.": "lm_head.",
    r"classification_heads\.[^.]+\.": "classifier.",
    rf"{span_head.NAME}\.": "qa_outputs.",
}
#: the same for transformers' own RoBERTa
STOCK_NAMES = {
    r"encoder\.sentence_encoder\.embed_tokens\.": "roberta.embeddings.word_embeddings.",
    r"encoder\.sentence_encoder\.embed_positions\.": "roberta.embeddings.position_embeddings.",
    r"encoder\.sentence_encoder\.layernorm_embedding\.": "roberta.embeddings.LayerNorm.",
    **{
        rf"encoder\.sentence_encoder\.layers\.(\d+)\.{re.escape(ours)}\.": rf"roberta.encoder.layer.\1.{theirs}."
        for theirs, ours in LAYER.items()
    },
    r"encoder\.lm_head\.weight$": "lm_head.decoder.weight",
    r"encoder\.lm_head\.": "lm_head.",
    **{name: theirs for name, theirs in NAMES.items() if theirs in ("classifier.", "qa_outputs.")},
}


def export(
    state: dict[str, Any], checkpoint: Path, folder: Path, data: str | Path | None, head: str | None
) -> Exported:
    """Writes ``folder`` for a RoBERTa or another encoder; see ``export.export``."""
    refuse_without_counterpart(state["cfg"].model, checkpoint, QUANTISED, ACTIVATIONS, "transformers")
    model, args = fairseq_model(state)
    kind, left_out = kind_of(model, checkpoint, head)
    words = None if data is None else Words(data, len(model.encoder.sentence_encoder.embed_tokens.weight), checkpoint)
    if words is not None:
        data_facts.refuse_other_words(state, checkpoint, words.dictionary, words.data)
        refuse_other_ends(state["cfg"].task, checkpoint, words.data)
    labels = labels_of(state, data, kind.labels)
    exported = as_transformers(model, args, kind, labels)
    comparison = partial(compare, model=model, kind=kind, words=words)
    result = write(folder, exported, words, args.max_positions, comparison, state["cfg"], args)
    result.left_out = left_out
    return result


def fairseq_model(state: dict[str, Any]) -> tuple[Any, argparse.Namespace]:
    """The model in the checkpoint, as it is evaluated, with its heads, and its settings."""
    old, weights = state["cfg"].model, state["model"]
    name = getattr(old, "position_encoding", None) or "learned"
    names = ("position_encoding", "position_hparams", "position_layers", "attention_window")
    positions = {key: getattr(old, key, None) for key in names}
    args = warm_start.settings(old, f"roberta_{name}", positions)
    size = next(len(weights[key]) for key in warm_start.EMBEDDINGS if key in weights)
    # they change how a training runs, not the model
    args.checkpoint_activations = args.torch_compile = args.unpad = False
    args.tokens_per_sample = None
    model = build_roberta(args, size, seed=1)
    if f"{span_head.NAME}.weight" in weights:
        span_head.add_span_head(model, args.encoder_embed_dim)
    upgrade_names(weights, model)
    model.load_state_dict(weights)
    model.check_first_token = None  # random sentences may begin with a pad
    return model.eval(), args


@dataclass
class Kind:
    """The purpose of a model. auto: the Auto class. head: the name of its classification head."""

    auto: str
    head: str | None = None
    labels: int = 0


def kind_of(model: Any, path: Path, head: str | None) -> tuple[Kind, list[str]]:
    """Returns the purpose of the model in the checkpoint, and the heads that are left out."""
    heads = list(model.classification_heads)
    words_head = ["encoder.lm_head"]
    if hasattr(model, span_head.NAME) and head is None:
        return Kind("AutoModelForQuestionAnswering"), [*words_head, *heads]
    if head is None and len(heads) > 1:
        raise ValueError(f"{path} has the heads {', '.join(heads)}: choose one by --head NAME")
    if head is not None and head not in heads:
        raise ValueError(f"{path} has no classification head {head}: it has {', '.join(heads) or 'none'}")
    if not heads:
        return Kind("AutoModelForMaskedLM"), []
    head = head or heads[0]
    linear = model.classification_heads[head]
    if linear.dense.out_features != linear.dense.in_features:
        raise ValueError(
            f"{path}: head {head} has {linear.dense.out_features} inner dimensions, the model has "
            f"{linear.dense.in_features}: transformers' heads have as many as the model"
        )
    pooling = getattr(model.args, "pooling", None) or "cls"
    if pooling != "cls":
        raise ValueError(
            f"{path}: its head reads by --pooling {pooling}, heads of transformers read the vector of <s> alone: "
            "fine-tune without --pooling"
        )
    kind = Kind("AutoModelForSequenceClassification", head, linear.out_proj.out_features)
    return kind, [*words_head, *(other for other in heads if other != head)]


def labels_of(state: dict[str, Any], data: str | Path | None, count: int) -> list[str] | None:
    """The names of the classes, from the checkpoint, or from the data if they are there. The training's own data are
    read where their path is absolute: a relative one may lead to other data here."""
    kept = data_facts.labels_of(state)
    if kept is not None and len(kept) == count:
        return kept
    trained_on = str(getattr(state["cfg"].task, "data", None) or "").split(":")[0]
    for folder in (data, trained_on if Path(trained_on).is_absolute() else None):
        if folder is None or count < 2:
            continue
        names: list[str] = []
        if Path(folder, "labels.txt").is_file():
            names = Path(folder, "labels.txt").read_text(encoding="utf-8").splitlines()
        elif Path(folder, "label", "dict.txt").is_file():
            symbols = Dictionary.load(str(Path(folder, "label", "dict.txt")))
            names = [symbol for symbol in symbols.symbols[symbols.nspecial :] if not symbol.startswith("madeupword")]
        if len(names) == count:
            return names
    return None


def refuse_other_ends(task: Any, checkpoint: Path, data: Path) -> None:
    """Raises ValueError, one line, if fairseq's sentence_prediction read other texts than ``<s> A </s>`` or pairs than
    ``<s> A </s></s> B </s>``, which is what the tokenizer writes."""
    if getattr(task, "_name", None) != "sentence_prediction":
        return
    flags = ["--init-token 0"] if getattr(task, "init_token", None) != 0 else []
    are_pairs = (data / "input1").exists()
    flags += ["--separator-token 2"] if are_pairs and getattr(task, "separator_token", None) != 2 else []
    if flags:
        raise ValueError(
            f"{checkpoint} was trained without {' and '.join(flags)}, so that it reads other inputs than a "
            "tokenizer of transformers writes: leave out --data, which exports the model alone"
        )


def is_stock(args: argparse.Namespace, kind: Kind) -> bool:
    """Whether transformers' own RoBERTa computes the same."""
    return (
        args.position_encoding == "learned"
        and args.position_layers == "all"
        and not args.attention_window
        and args.activation_fn == "gelu"
        and not args.encoder_normalize_before
        and args.layernorm_embedding
        and args.no_scale_embedding
        and not args.activation_dropout
        and (kind.head is None or args.pooler_activation_fn == "tanh")
    )


def as_transformers(model: Any, args: argparse.Namespace, kind: Kind, labels: list[str] | None) -> Any:
    """The model of transformers with the same weights."""
    import transformers

    for setting in ("activation_fn", "pooler_activation_fn"):
        if getattr(args, setting) not in ACTIVATIONS:
            raise ValueError(
                f"--{setting.replace('_', '-')} {getattr(args, setting)} has no counterpart in transformers"
            )
    settings: dict[str, Any] = {
        "vocab_size": len(model.encoder.sentence_encoder.embed_tokens.weight),
        "hidden_size": args.encoder_embed_dim,
        "num_hidden_layers": args.encoder_layers,
        "num_attention_heads": args.encoder_attention_heads,
        "intermediate_size": args.encoder_ffn_embed_dim,
        "hidden_act": ACTIVATIONS[args.activation_fn],
        "hidden_dropout_prob": args.dropout,
        "attention_probs_dropout_prob": args.attention_dropout,
        "layer_norm_eps": model.encoder.sentence_encoder.layers[0].final_layer_norm.eps,
        "classifier_dropout": args.pooler_dropout,
        "tie_word_embeddings": not args.untie_weights_roberta,
    }
    if kind.head is not None:
        named = labels or [f"LABEL_{number}" for number in range(kind.labels)]
        settings |= {"id2label": dict(enumerate(named)), "label2id": {name: i for i, name in enumerate(named)}}
        settings |= {"problem_type": "regression"} if kind.labels == 1 else {}
    if is_stock(args, kind):
        config: Any = transformers.RobertaConfig(
            max_position_embeddings=args.max_positions + 2, type_vocab_size=1, **settings
        )
        names = STOCK_NAMES
    else:
        config = RelPosRobertaConfig(
            max_position_embeddings=args.max_positions,
            activation_dropout=args.activation_dropout,
            position_encoding=args.position_encoding,
            position_hparams=args.position_hparams,
            position_layers=args.position_layers,
            position_signature=model.encoder.sentence_encoder.embed_positions.signature,
            attention_window=args.attention_window,
            normalize_before=args.encoder_normalize_before,
            layernorm_embedding=args.layernorm_embedding,
            scale_embedding=not args.no_scale_embedding,
            classifier_activation=ACTIVATIONS[args.pooler_activation_fn],
            **settings,
        )
        names = NAMES
    out = getattr(transformers, kind.auto).from_config(config)
    weights = {key: tensor for key, tensor in model.state_dict().items() if is_of_kind(key, kind)}
    load(out, renamed(weights, names))
    return out.eval()


def is_of_kind(key: str, kind: Kind) -> bool:
    """Whether a weight of this name is of the encoder, or of the head that the model keeps."""
    if key.startswith("encoder.lm_head."):
        return kind.auto == "AutoModelForMaskedLM"
    if key.startswith("classification_heads."):
        return key.startswith(f"classification_heads.{kind.head}.")
    if key.startswith(f"{span_head.NAME}."):
        return kind.auto == "AutoModelForQuestionAnswering"
    return True


def compare(folder: Path, model: Any, kind: Kind, words: Words | None) -> Exported:
    """Loads the folder and compares it with fairseq's model. Raises ValueError if they differ."""
    import transformers

    loaded = getattr(transformers, kind.auto).from_pretrained(folder, local_files_only=True).eval()
    texts: list[str] = []
    if words is not None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        texts = words.texts()
        compare_ids(tokenizer, words, texts)

    def pairs_of_logits():
        for tokens_BT in batches(model, kind, words, texts):
            theirs, ours = logits_of(loaded, tokens_BT), fairseq_logits(model, tokens_BT, kind)
            if kind.head is None:
                real = tokens_BT.ne(1)
                theirs, ours = theirs[real], ours[real]
            yield theirs, ours

    return Exported.of(loaded, pairs_of_logits(), words, len(texts))


def batches(model: Any, kind: Kind, words: Words | None, texts: list[str]) -> Iterator[torch.Tensor]:
    """Token ids: random ones padded to the right, to the left and not at all, and real texts."""
    rows = random_rows(len(model.encoder.sentence_encoder.embed_tokens.weight) - 1, model.max_positions())
    for row in rows:
        row[0], row[-1] = 0, 2
    yield rows[0][None]
    yield data_utils.collate_tokens(rows, 1)
    if kind.head is None:  # it reads the first slot
        yield data_utils.collate_tokens(rows, 1, left_pad=True)
    if real := [] if words is None else real_rows(words, texts, model.max_positions()):
        yield data_utils.collate_tokens(real, 1)


@torch.no_grad()
def logits_of(model: Any, tokens_BT: torch.Tensor) -> torch.Tensor:
    out = model(input_ids=tokens_BT, attention_mask=tokens_BT.ne(1).long())
    return torch.stack([out.start_logits, out.end_logits], -1) if "start_logits" in out else out.logits


@torch.no_grad()
def fairseq_logits(model: Any, tokens_BT: torch.Tensor, kind: Kind) -> torch.Tensor:
    if kind.head is None:
        out = model(tokens_BT)
    else:
        out = model(tokens_BT, classification_head_name=kind.head)
    return out if torch.is_tensor(out) else out[0]
