"""A checkpoint as a folder that transformers loads: what all families need, and RoBERTa."""

import argparse
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor, nn

from .. import vocabulary_files
from ..atomic_files import whole_folder
from ..checkpoints import warm_start
from ..checkpoints.starting_point import build_roberta
from ..finetuning.vocabulary import Vocabulary
from ..hf import RelPosRobertaConfig, RelPosSentencePieceTokenizer, fast_tokenizer, model_card
from ..signature import KEY
from ..tasks import span_head
from .dictionaries import load_dictionary
from .names import ACTIVATIONS, LAYER

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

#: the largest difference of a logit between fairseq and the folder, as a part of the largest logit
TOLERANCE = 1e-5
#: texts of the data that the two tokenizers are compared on
TEXTS = 2000
#: what texts of the data rarely have
ODD_TEXTS = (
    "",
    " ",
    "  two  blanks ",
    "\ttab\nline\r\n",
    "a\x00b\x07c\x1c\x1dd\x85e\xa0f",
    "\u2581x \u2581\u2581 y",
    "x" * 3000,
    "\U0001f600 \U0001f469\u200d\U0001f680 flags \U0001f1e9\U0001f1ea",
    "Don't we'LL I've",
    "\ufb01ne \xbd \u2116 e\u0301 \xe9",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\u039f\u0394\u039f\u03a3 \u2581",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627",
)


@dataclass
class Exported:
    """The result of ``export``. difference: the largest of a logit. texts: so many got the same ids."""

    model: str
    parameters: int
    difference: float
    largest: float
    tokenizer: str | None
    texts: int
    left_out: list[str]

    @classmethod
    def of(cls, loaded: nn.Module, logits: Iterable[tuple[Tensor, Tensor]], words: Any, texts: int) -> "Exported":
        """Compares logits of ``loaded`` with those of fairseq's model. Raises ValueError if a difference is more than
        rounding, or a logit is not finite."""
        sizes = [(float((theirs - ours).abs().max()), float(ours.abs().max())) for theirs, ours in logits]
        difference, largest = torch.tensor(sizes).max(0).values.tolist()  # which is NaN if one of them is
        if not math.isfinite(difference):
            weight, name = max((weight.abs().max().item(), name) for name, weight in loaded.named_parameters())
            raise ValueError(
                f"logits of the model are not finite (nan or inf); its largest weight is {weight:.2g}, in {name}: "
                "nothing is written; give a checkpoint from before the training diverged"
            )
        if not difference <= TOLERANCE * max(largest, 1.0):
            raise ValueError(
                f"the logits of the exported model differ by {difference:.2g} from fairseq's, whose largest is "
                f"{largest:.2g}: nothing is written; please report this"
            )
        parameters = sum(parameter.numel() for parameter in loaded.parameters())
        tokenizer = None if words is None else words.kind
        return cls(type(loaded).__name__, parameters, difference, largest, tokenizer, texts, [])


def export(
    state: dict[str, Any], checkpoint: Path, folder: Path, data: str | Path | None, head: str | None
) -> Exported:
    """Writes ``folder`` for a RoBERTa or another encoder; see ``export.export``."""
    model, args = fairseq_model(state, checkpoint)
    kind, left_out = kind_of(model, checkpoint, head)
    words = None if data is None else Words(data, len(model.encoder.sentence_encoder.embed_tokens.weight), checkpoint)
    labels = labels_of(state, data, kind.labels)
    exported = as_transformers(model, args, kind, labels)
    comparison = partial(compare, model=model, kind=kind, words=words)
    result = write(folder, exported, words, args.max_positions, comparison, state["cfg"], args)
    result.left_out = left_out
    return result


def write(
    folder: Path,
    exported: Any,
    words: Any,
    longest: int,
    compare: Callable[[Path], Exported],
    cfg: Any,
    args: argparse.Namespace,
) -> Exported:
    """Writes the folder with a model of transformers, its tokenizer and its card, if ``compare`` raises no error.
    longest: tokens of an input."""
    with whole_folder(folder) as part, quiet():
        exported.save_pretrained(part)
        if words is not None:
            words.save(part, longest)
        result = compare(part)
        card = model_card.text(cfg, args, exported, result, words)
        (part / "README.md").write_text(card, encoding="utf-8")
    return result


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within this block transformers shows no progress."""
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def fairseq_model(state: dict[str, Any], path: Path) -> tuple[Any, argparse.Namespace]:
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
    warm_start.rename(weights, model)
    model.load_state_dict(weights)
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
    """The names of the classes, from the data if they are there."""
    trained_on = str(getattr(state["cfg"].task, "data", None) or "").split(":")[0]
    for folder in (data, trained_on or None):
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


def is_stock(model: Any, args: argparse.Namespace, kind: Kind) -> bool:
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
    if is_stock(model, args, kind):
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
    load(out, renamed(without_other_heads(model.state_dict(), kind), names))
    return out.eval()


def without_other_heads(weights: dict[str, torch.Tensor], kind: Kind) -> dict[str, torch.Tensor]:
    heads = {
        "encoder.lm_head.": kind.auto == "AutoModelForMaskedLM",
        f"classification_heads.{kind.head}.": True,
        "classification_heads.": False,
        f"{span_head.NAME}.": kind.auto == "AutoModelForQuestionAnswering",
    }
    return {
        key: tensor
        for key, tensor in weights.items()
        if next((is_its for head, is_its in heads.items() if key.startswith(head)), True)
    }


def renamed(weights: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    """The weights by their names in transformers."""
    out = {}
    for key, tensor in weights.items():
        if key.endswith((".version", "._float_tensor")):  # no weights
            continue
        pattern = next((pattern for pattern in names if re.match(pattern, key)), None)
        if pattern is None:
            raise ValueError(f"the model has a weight {key}, which has no place in transformers")
        out[re.sub(pattern, names[pattern], key, count=1)] = tensor
    return out


#: weights of transformers' RoBERTa that fairseq does not have
WITHOUT_COUNTERPART = "roberta.embeddings.token_type_embeddings.weight"


def load(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Loads all weights and no others. Token types are 0, and a bias that transformers has twice is one."""
    own = model.state_dict()
    if WITHOUT_COUNTERPART in own:
        weights[WITHOUT_COUNTERPART] = torch.zeros_like(own[WITHOUT_COUNTERPART])
    if "lm_head.bias" in own and "lm_head.decoder.bias" in own:
        weights["lm_head.decoder.bias"] = weights["lm_head.bias"]
    model.load_state_dict({key: tensor for key, tensor in weights.items() if key in own or not key.endswith(KEY)})


class Words:
    """The vocabulary of the data: text -> ids, by fairseq and by the new tokenizer.

    start: the symbol that a text of a language model begins with; its dictionary has no <mask>."""

    def __init__(self, data: str | Path, size: int, checkpoint: Path, start: str | None = None):
        self.data, self.start = Path(data), start
        self.dictionary = load_dictionary(self.data, "dict.txt", size, checkpoint, with_mask=start is None)
        self.vocabulary: Vocabulary | None = None
        if vocabulary_files.find(self.data)[0]:
            self.vocabulary = Vocabulary(self.data)
        else:
            refuse_pieces(self.data / "dict.txt", self.dictionary.symbols[4:])
        #: Moses' tokens, into which texts have to be cut first
        self.moses = self.vocabulary is not None and self.vocabulary.moses is not None
        self.lowercase = self.vocabulary is not None and self.vocabulary.lowercase
        self.fast: Any = None
        try:
            self.fast, self.kind = fast_tokenizer.from_folder(self.data, self.dictionary.symbols, self.lowercase)
        except fast_tokenizer.NotFast as reason:
            self.kind = f"SentencePiece in Python: {reason}"
        if start is not None and self.fast is not None:
            fast_tokenizer.for_prompts(self.fast, start)
        if self.vocabulary is not None:
            self.vocabulary.moses = None

    def save(self, folder: Path, longest: int) -> None:
        """Writes the tokenizer's files. longest: tokens of an input."""
        if self.fast is not None:
            for name, text in fast_tokenizer.files_of(self.fast, longest, self.start).items():
                (folder / name).write_text(text, encoding="utf-8")
            return
        vocabulary = folder / "vocab.json"
        vocabulary.write_text(json.dumps(self.dictionary.indices), encoding="utf-8")
        tokenizer = RelPosSentencePieceTokenizer(
            str(self.data / "spm.model"),
            str(vocabulary),
            lowercase=self.lowercase,
            prompts=self.start is not None,
            model_max_length=longest,
            padding_side="right" if self.start is None else "left",
            **fast_tokenizer.special_tokens(self.start),
        )
        tokenizer.save_pretrained(folder)

    def ids(self, text: str) -> list[int]:
        """The ids that fairseq gives the text."""
        if self.vocabulary is None:
            ids = self.dictionary.encode_line(text, add_if_not_exist=False)
        else:
            ids = self.vocabulary.encode(text)
        if self.start is not None:  # fairseq puts </s> at the end
            return [self.dictionary.index(self.start), *ids.tolist()[:-1]]
        return [self.dictionary.bos(), *ids.tolist()]

    def texts(self) -> list[str]:
        """Texts of the data, if it has been binarised, and odd ones; without special symbols, which the new tokenizer
        reads as such."""
        texts = [*ODD_TEXTS, *self.of_data()]
        return [text for text in texts if not any(token in text for token in fast_tokenizer.SPECIAL.values())]

    def of_data(self) -> Iterator[str]:
        for place in (self.data, self.data / "input0"):
            for split in ("valid", "test", "train"):
                if (place / f"{split}.idx").exists():
                    dataset = data_utils.load_indexed_dataset(str(place / split), self.dictionary)
                    for number in range(min(TEXTS, len(dataset))):
                        ids = [i for i in dataset[number].tolist() if i >= self.dictionary.nspecial]
                        if self.fast is not None:
                            yield self.fast.decode(ids)
                        elif self.vocabulary is not None:
                            yield self.vocabulary.text_of([self.dictionary[i] for i in ids])
                    return


def refuse_pieces(path: Path, symbols: list[str]) -> None:
    """Raises ValueError if these symbols of a dictionary are pieces of words, whose vocabulary is not there."""
    marks = {
        "pieces of SentencePiece": (lambda symbol: symbol.startswith(fast_tokenizer.BLANK), "spm.model"),
        "the numbers of a byte-level BPE": (str.isdigit, " and ".join(vocabulary_files.KINDS["gpt2"])),
        "pieces of WordPiece": (lambda symbol: symbol.startswith("##"), "tokenizer.json"),
        "pieces of subword-nmt, which are not served": (lambda symbol: symbol.endswith("@@"), "another vocabulary"),
    }
    for what, (is_piece, file) in marks.items():
        # some words of a text may look like pieces
        if sum(map(is_piece, symbols)) > len(symbols) / 20:
            raise ValueError(
                f"{path} has {what}: give the folder that has {file} beside this {path.name} (that of the "
                "pretraining's data, or of import-hf)"
            )


def compare(folder: Path, model: Any, kind: Kind, words: Words | None) -> Exported:
    """Loads the folder and compares it with fairseq's model. Raises ValueError if they differ."""
    import transformers

    loaded = getattr(transformers, kind.auto).from_pretrained(folder, local_files_only=True).eval()
    texts: list[str] = []
    if words is not None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        texts = words.texts()
        compare_ids(tokenizer, words, texts)

    def both():
        for tokens_BT in batches(model, kind, words, texts):
            theirs, ours = logits_of(loaded, tokens_BT), fairseq_logits(model, tokens_BT, kind)
            of_tokens = tokens_BT.ne(1) if ours.dim() == 3 else ...
            yield theirs[of_tokens], ours[of_tokens]

    return Exported.of(loaded, both(), words, len(texts))


def compare_ids(tokenizer: Any, words: Words, texts: list[str]) -> None:
    """Raises ValueError if a text gets other ids. SentencePiece's unigram adds scores in single precision: where two
    ways to cut a text have the same score, ``tokenizers`` may take the other one."""
    for text, theirs in zip(texts, tokenizer(texts, verbose=False)["input_ids"]):
        ours = words.ids(text)
        if theirs != ours and not are_equally_good(words, theirs, ours):
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise ValueError(
                f"the exported tokenizer gives {shown!r} other ids ({theirs[:12]}) than fairseq ({ours[:12]}): "
                "nothing is written; please report this, or leave out --data to export the model alone"
            )


def are_equally_good(words: Words, theirs: list[int], ours: list[int]) -> bool:
    if words.kind != "SentencePiece unigram":
        return False
    scores = [score for _, score in json.loads(words.fast.to_str())["model"]["vocab"]]
    return abs(sum(scores[i] for i in theirs) - sum(scores[i] for i in ours)) < 1e-3


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


def random_rows(words: int, longest: int) -> list[Tensor]:
    """Three sentences of random ids below ``words``."""
    generator, longest = torch.Generator().manual_seed(1), min(longest, 48)
    return [torch.randint(4, max(words, 5), (length,), generator=generator) for length in (longest, longest // 2, 3)]


def real_rows(words: Words, texts: list[str], longest: int) -> list[Tensor]:
    """The ids of the last of these texts that are not too long."""
    rows = [torch.tensor(words.ids(text)) for text in texts[-256:]]
    return [row for row in rows if 2 < len(row) <= longest][-8:]


@torch.no_grad()
def logits_of(model: Any, tokens_BT: torch.Tensor) -> torch.Tensor:
    out = model(input_ids=tokens_BT, attention_mask=tokens_BT.ne(1).long())
    return torch.stack([out.start_logits, out.end_logits], -1) if "start_logits" in out else out.logits


@torch.no_grad()
def fairseq_logits(model: Any, tokens_BT: torch.Tensor, kind: Kind) -> torch.Tensor:
    with contextlib.ExitStack() as stack:
        if getattr(model, "check_first_token", None) is not None:
            check, model.check_first_token = model.check_first_token, None  # random sentences may begin with a pad
            stack.callback(setattr, model, "check_first_token", check)
        if kind.head is None:
            out = model(tokens_BT)
        else:
            out = model(tokens_BT, classification_head_name=kind.head)
    return out if torch.is_tensor(out) else out[0]
