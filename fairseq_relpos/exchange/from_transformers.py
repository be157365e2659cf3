"""RoBERTa, BERT and DeBERTa folders of transformers as checkpoints of fairseq.

The weights and config.json are read as they are, never through a class of transformers: it would leave out in silence
what it does not know, such as relative positions of BERT since transformers 5.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY

from ..atomic_files import whole_folder
from ..checkpoints.loading import refuse_nonfinite, refuse_packed
from ..checkpoints.starting_point import build_roberta, build_with_decoder, save
from ..encodings import names_for
from ..tasks import data_facts, span_head
from ..version import install
from .names import FAIRSEQ_ACTIVATIONS, LAYER, STACK
from .pieces import Pieces, read
from .trained_models import check_new_folder

Weights = dict[str, torch.Tensor]

#: the name of the checkpoint in the folder that is written
CHECKPOINT = "model.pt"

#: the name that fairseq gives a classification head
HEAD = "sentence_classification_head"


@dataclass
class Imported:
    """The result of ``import_hf``. fresh: weights that were not there and begin at random. left_out: weights that have
    no place in fairseq. words: the kind of vocabulary. unnamed: rows without a word. args: the model's settings."""

    args: Namespace
    parameters: int
    fresh: list[str]
    left_out: list[str]
    words: str
    unnamed: int


def import_hf(folder: str | Path, out: str | Path) -> Imported:
    """Writes the folder ``out``: model.pt, dict.txt, and the files of the vocabulary, with which data is prepared.

    Raises ValueError, one line, before anything is written.
    """
    folder, out = Path(folder), Path(out)
    config = Config(folder)
    check_new_folder(out, "OUT")
    kind = config.one_of(READERS, "model_type")
    config.refuse("quantization_config", "quantized weights are not served: give the folder of the model before")
    weights = read_weights(folder)
    if others := [key for key, tensor in weights.items() if "weight" in key and not tensor.is_floating_point()]:
        raise ValueError(
            f"{folder}: {others[0]} is of type {weights[others[0]].dtype}: numbers with a point are needed"
        )
    refuse_nonfinite(folder, weights)
    source = READERS[kind](config, weights)
    pieces = Pieces.of(folder, kind, source.rows(), config)
    source.put_in_order(pieces.order)
    args = source.args
    model = source.build()
    fresh = source.fill(model)
    cfg = convert_namespace_to_omegaconf(args)
    with whole_folder(out) as part:
        pieces.write(part)
        check_dictionary(part, source.rows(), pieces.with_mask, folder)
        labels = source.labels()
        save(part / CHECKPOINT, cfg, cfg.model, model, data_facts.with_labels(labels) if labels else None)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Imported(args, parameters, fresh, sorted(source.theirs), pieces.kind, pieces.unnamed)


class Config:
    """The settings in DIR/config.json."""

    def __init__(self, folder: Path):
        self.folder = folder
        path = folder / "config.json"
        if not path.is_file():
            raise ValueError(f"no config.json in {folder}: give a folder that save_pretrained has written")
        self.values = read(path)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the setting. Raises ValueError if it is missing, or null, and has no default."""
        value = self.values.get(name)
        if value is None and default is None:
            raise ValueError(f"{self.folder}/config.json has no {name}")
        return default if value is None else value

    def one_of(self, served: Collection[str], name: str, default: str | None = None) -> str:
        """Returns the setting, as ``get``. Raises ValueError if it is not served."""
        value = self.get(name, default)
        if value not in list(served):
            raise ValueError(f"{self.folder}/config.json: {name} is {value!r}; served are {', '.join(served)}")
        return value

    def refuse(self, name: str, why: str, *accepted: Any) -> None:
        """Raises ValueError if the setting has a value that is not accepted; a setting that is missing is."""
        value = self.values.get(name)
        if value is not None and value not in accepted:
            raise ValueError(f"{self.folder}/config.json: {name} is {value!r}: {why}")


def read_weights(folder: Path) -> Weights:
    """All weights of the folder: safetensors, or .bin files, of which nothing is executed."""
    for name, load_file in {"model.safetensors": read_safetensors, "pytorch_model.bin": read_bin}.items():
        if (folder / name).is_file():
            return load_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            places = read(index).get("weight_map")
            parts = sorted(set(places.values())) if isinstance(places, dict) else []
            if not parts or not all(isinstance(part, str) and Path(part).name == part for part in parts):
                raise ValueError(f"{index} lists no files of this folder: copy it again")
            return {key: tensor for part in parts for key, tensor in load_file(folder / part).items()}
    raise ValueError(f"no model.safetensors or pytorch_model.bin in {folder}: give a folder with weights")


#: how many times as many numbers as the weights have the layers may have that config.json promises
MOST = 10


def refuse_too_large(config: Config, args: Namespace, weights: Weights) -> None:
    """Raises ValueError, one line, for a config.json that promises a model far larger than its weights: it would fill
    the memory before anything is compared."""
    rows = getattr(args, "max_positions", None) or args.max_source_positions
    promised = rows * args.encoder_embed_dim if args.arch.endswith("_learned") else 0
    for stack in ("encoder", "decoder") if args.arch == "transformer_learned" else ("encoder",):
        layers, dim, ffn_dim = (getattr(args, f"{stack}_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim"))
        promised += layers * dim * (4 * dim + 2 * ffn_dim)
    found = sum(tensor.numel() for tensor in weights.values())
    if promised > MOST * found:
        raise ValueError(
            f"{config.folder}/config.json promises a model of {promised:,} numbers, the weights have {found:,}: give "
            "the config.json of these weights"
        )


def read_safetensors(path: Path) -> Weights:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise ValueError(f"safetensors is not installed: {install('hf')}") from None
    try:
        return load_file(path)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}): copy it again") from None


def read_bin(path: Path) -> Weights:
    refuse_packed(path)
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged or hostile file makes torch raise almost anything
        foreign = re.search(r"GLOBAL (\S+)", str(error))
        what = f"contains {foreign[1]}, which could run any code" if foreign else "is damaged or no torch file"
        raise ValueError(f"{path} {what}: not read, nothing was executed; get model.safetensors instead") from None
    if not isinstance(weights, dict) or not all(torch.is_tensor(value) for value in weights.values()):
        raise ValueError(f"{path} has something else than weights: get model.safetensors instead")
    return weights


class Source:
    """A model of transformers on its way to fairseq: ``theirs`` are its weights that are not yet taken, ``ours``
    those for fairseq, ``args`` the settings."""

    #: what the names of the encoder's weights begin with, where there is a head besides
    prefix = ""

    def __init__(self, config: Config, weights: Weights):
        self.config, self.theirs = config, dict(weights)
        self.ours: Weights = {}
        has_prefix = any(key.startswith(self.prefix) for key in weights)
        self.at = self.prefix if has_prefix else ""
        self.args = self.settings()
        refuse_too_large(config, self.args, weights)
        self.take_embeddings()
        for layer in range(self.args.encoder_layers):
            self.take_layer(layer)
        self.take_language_model()
        self.take_heads()
        for key in [key for key in self.theirs if key.endswith(("position_ids", "token_type_ids"))]:
            del self.theirs[key]  # no weights
        if more := [key for key in self.theirs if key.startswith(f"{self.at}encoder.")]:
            raise ValueError(
                f"{config.folder}: the weights have {more[0]}, but not for a {config.values['model_type']} with these "
                "settings of config.json: correct position_embedding_type and the others, or merge adapters"
            )

    def rows(self) -> int:
        return len(self.ours[f"{STACK}embed_tokens.weight"])

    def settings(self) -> Namespace:
        get = self.config.get
        self.config.refuse("is_decoder", "a decoder is not served", False)
        self.config.refuse("add_cross_attention", "cross-attention is not served", False)
        self.config.refuse("is_encoder_decoder", "an encoder-decoder model is not served", False)
        dropout = get("hidden_dropout_prob", 0.1)
        args = Namespace(
            task="masked_lm",
            criterion="masked_lm",
            data="",
            encoder_layers=get("num_hidden_layers"),
            encoder_embed_dim=get("hidden_size"),
            encoder_ffn_embed_dim=get("intermediate_size"),
            encoder_attention_heads=get("num_attention_heads"),
            activation_fn=FAIRSEQ_ACTIVATIONS[self.config.one_of(FAIRSEQ_ACTIVATIONS, "hidden_act", "gelu")],
            dropout=dropout,
            attention_dropout=get("attention_probs_dropout_prob", 0.1),
            pooler_dropout=get("classifier_dropout", dropout),
            untie_weights_roberta=False,
        )
        eps = get("layer_norm_eps", self.usual_eps)
        if eps != 1e-5:
            args.layer_norm_eps = eps
        self.set_positions(args)
        args.tokens_per_sample = args.max_positions
        return args

    #: the eps of LayerNorms where config.json does not say it
    usual_eps = 1e-12

    def set_positions(self, args: Namespace) -> None:
        """Sets arch, max_positions and position_hparams."""
        raise NotImplementedError

    def take(self, key: str) -> torch.Tensor:
        if key not in self.theirs:
            raise ValueError(f"{self.config.folder}: the weights have no {key}, which config.json promises")
        return self.theirs.pop(key).float()

    def move(self, theirs: str, ours: str, parts: tuple[str, ...] = ("weight", "bias")) -> None:
        for part in parts:
            self.ours[f"{ours}.{part}"] = self.take(f"{theirs}.{part}")

    def move_norm(self, theirs: str, ours: str) -> None:
        """Moves a LayerNorm; old files call its weights gamma and beta."""
        for old, new in (("gamma", "weight"), ("beta", "bias")):
            if f"{theirs}.{old}" in self.theirs:
                self.theirs[f"{theirs}.{new}"] = self.theirs.pop(f"{theirs}.{old}")
        self.move(theirs, ours)

    def take_embeddings(self) -> None:
        at = f"{self.at}embeddings."
        self.ours[f"{STACK}embed_tokens.weight"] = self.take(f"{at}word_embeddings.weight")
        self.move_norm(f"{at}LayerNorm", f"{STACK}layernorm_embedding")
        types = self.theirs.pop(f"{at}token_type_embeddings.weight", None)
        self.type_0 = None if types is None or not len(types) else types[0].float()

    #: the parts of a layer that have a counterpart in fairseq
    layer_parts = LAYER

    def take_layer(self, layer: int) -> None:
        for theirs, ours in self.layer_parts.items():
            move = self.move_norm if "LayerNorm" in theirs else self.move
            move(f"{self.at}encoder.layer.{layer}.{theirs}", f"{STACK}layers.{layer}.{ours}")

    #: the head of the language model: its parts, and where its bias and matrix are
    head_parts: tuple[dict[str, str], ...] = ()

    def take_language_model(self) -> None:
        """Moves the head, where there is one, and says whether its matrix is that of the words."""
        for parts in self.head_parts:
            if parts["bias"] in self.theirs:
                self.move(parts["dense"], "encoder.lm_head.dense")
                self.move_norm(parts["norm"], "encoder.lm_head.layer_norm")
                bias = self.take(parts["bias"])
                # transformers uses the copy, where there is one
                self.ours["encoder.lm_head.bias"] = self.theirs.pop(f"{parts['decoder']}.bias", bias).float()
                self.ours["encoder.lm_head.weight"] = self.output_matrix(f"{parts['decoder']}.weight")
                break
        self.fold_token_type()
        matrix = self.ours.get("encoder.lm_head.weight")
        words = self.ours[f"{STACK}embed_tokens.weight"]
        self.args.untie_weights_roberta = matrix is not None and not torch.equal(matrix, words)

    def output_matrix(self, key: str) -> torch.Tensor:
        """Takes the matrix of the head out of ``theirs``. Where config.json ties it, it is that of the words."""
        if not self.config.get("tie_word_embeddings", True):
            return self.take(key)
        words, matrix = self.ours[f"{STACK}embed_tokens.weight"], self.theirs.pop(key, None)
        if matrix is not None and not torch.equal(matrix.float(), words):
            raise ValueError(
                f"{self.config.folder}: config.json says that the embeddings are tied, but {key} and the word "
                "embeddings differ: correct tie_word_embeddings, or the file"
            )
        return words

    def fold_token_type(self) -> None:
        """Token type 0 is added to every token: to its position if there are learned ones, else to the word."""
        if self.type_0 is None or not self.type_0.any():
            return
        positions = f"{STACK}embed_positions.weight"
        if positions in self.ours:
            self.ours[positions][2:] += self.type_0
        else:
            words = self.ours[f"{STACK}embed_tokens.weight"] = self.ours[f"{STACK}embed_tokens.weight"].clone()
            words += self.type_0

    def take_heads(self) -> None:
        """Moves heads for sentences and for answers that fairseq has, too."""
        if "qa_outputs.weight" in self.theirs:
            self.move("qa_outputs", span_head.NAME)
        if "classifier.dense.weight" in self.theirs and "classifier.out_proj.weight" in self.theirs:
            for part in ("dense", "out_proj"):
                self.move(f"classifier.{part}", f"classification_heads.{HEAD}.{part}")
            self.config.refuse(
                "problem_type",
                "fairseq's head has one answer for a text: remove the head, or import it without this setting",
                *("single_label_classification", "regression"),
            )

    def labels(self) -> list[str] | None:
        """The names of the classes of the head; None where it has none, or numbers for names."""
        names = [name for _, name in sorted(self.config.get("id2label", {}).items(), key=lambda item: int(item[0]))]
        classes = len(self.ours.get(f"classification_heads.{HEAD}.out_proj.weight", ()))
        is_named = len(names) == classes and any(name != f"LABEL_{i}" for i, name in enumerate(names))
        return names if is_named else None

    def put_in_order(self, order: list[int]) -> None:
        """Gives every word the id that fairseq gives it: row n is that of the old id order[n]."""
        for key in (f"{STACK}embed_tokens.weight", "encoder.lm_head.weight", "encoder.lm_head.bias"):
            if key in self.ours:
                self.ours[key] = self.ours[key][order]

    def build(self) -> Any:
        return build_roberta(self.args, self.rows(), seed=1)

    def fill(self, model: Any) -> list[str]:
        """Loads the weights. Returns the names of those that begin at random: a head that the folder lacks."""
        if f"{span_head.NAME}.weight" in self.ours:
            span_head.add_span_head(model, self.args.encoder_embed_dim)
        head = f"classification_heads.{HEAD}"
        if f"{head}.dense.weight" in self.ours:
            classes, inner_dim = (len(self.ours[f"{head}.{part}.weight"]) for part in ("out_proj", "dense"))
            model.register_classification_head(HEAD, classes, inner_dim)
        # one with the word embeddings, so no parameter of its own
        self.ours.setdefault("encoder.lm_head.weight", self.ours[f"{STACK}embed_tokens.weight"])
        lm_head = [key for key, _ in model.named_parameters() if key.startswith("encoder.lm_head.")]
        fresh = [key for key in lm_head if key not in self.ours]
        load(self.config.folder, model, self.ours, fresh)
        return fresh


class Bert(Source):
    prefix = "bert."
    head_parts = (
        {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
            "decoder": "cls.predictions.decoder",
        },
    )
    #: rows of the position embeddings before that of the first token
    unused_rows = 0

    def set_positions(self, args: Namespace) -> None:
        encodings = {"absolute": "learned", "relative_key": "shaw", "relative_key_query": "m4"}
        kind = self.config.one_of(encodings, "position_embedding_type", "absolute")
        args.arch = f"roberta_{encodings[kind]}"
        self.relative = kind != "absolute"
        length = self.config.get("max_position_embeddings")
        args.max_positions = length if self.relative else length - self.unused_rows
        if self.relative:
            args.position_hparams = f"max_distance={max(length - 1, 1)} heads=shared scale_factor=1"

    def take_embeddings(self) -> None:
        super().take_embeddings()
        key = f"{self.at}embeddings.position_embeddings.weight"
        if self.relative:
            self.theirs.pop(key, None)
            return
        positions = self.take(key)[self.unused_rows :]
        # fairseq's rows up to the pad, which no token reads
        self.ours[f"{STACK}embed_positions.weight"] = torch.cat([positions.new_zeros(2, positions.size(1)), positions])

    def take_layer(self, layer: int) -> None:
        super().take_layer(layer)
        if self.relative:  # theirs is in the order of i - j, ours of j - i
            table = self.take(f"{self.at}encoder.layer.{layer}.attention.self.distance_embedding.weight")
            self.ours[f"{STACK}layers.{layer}.self_attn.position_encoding.table"] = table.flip(0)


class Roberta(Bert):
    prefix = "roberta."
    head_parts = (
        {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias", "decoder": "lm_head.decoder"},
    )
    unused_rows = 2

    def set_positions(self, args: Namespace) -> None:
        super().set_positions(args)
        self.config.refuse("hidden_act", "the head of transformers' RoBERTa has gelu in any case", "gelu")
        self.config.refuse("pad_token_id", "positions of RoBERTa begin after it, so fairseq needs 1", 1)


class Deberta(Source):
    prefix = "deberta."
    usual_eps = 1e-7
    head_parts = (
        Bert.head_parts[0],
        {
            "dense": "lm_predictions.lm_head.dense",
            "norm": "lm_predictions.lm_head.LayerNorm",
            "bias": "lm_predictions.lm_head.bias",
            "decoder": "lm_predictions.lm_head",
        },
    )

    def settings(self) -> Namespace:
        if self.config.get("position_biased_input", True):
            raise ValueError(
                f"{self.config.folder}/config.json: position_biased_input is True, as it is if it is missing: absolute "
                "positions beside relative ones have no counterpart here"
            )
        if not self.config.get("relative_attention", False):
            raise ValueError(f"{self.config.folder}/config.json: relative_attention is not true, which is not served")
        return super().settings()

    def set_positions(self, args: Namespace) -> None:
        get = self.config.get
        given = get("pos_att_type")
        terms = given.lower().split("|") if isinstance(given, str) else given
        if not isinstance(terms, list) or not terms or not set(terms) <= {"c2p", "p2c"}:
            raise ValueError(f"{self.config.folder}/config.json: pos_att_type is {terms}; served are c2p and p2c")
        length = get("max_position_embeddings")
        reach = get("max_relative_positions", -1)
        self.shares = self.config.values.get("share_att_key") is True
        self.has_norm = self.config.one_of(("none", "layer_norm"), "norm_rel_ebd", "none") == "layer_norm"
        if self.has_norm and get("layer_norm_eps", 1e-7) != 1e-7:
            raise ValueError(f"{self.config.folder}/config.json: norm_rel_ebd is served with layer_norm_eps 1e-7 alone")
        self.terms = ",".join(term for term in ("c2p", "p2c") if term in terms)
        args.arch, args.max_positions = "roberta_deberta", length
        buckets = max(get("position_buckets", -1), 0)
        distance = length if reach < 1 else reach
        args.position_hparams = (
            f"max_distance={distance} att={self.terms} buckets={buckets} "
            f"norm_table={self.has_norm} share_att_key={self.shares} p2c=i-j variant=deberta"
        )

    def take_embeddings(self) -> None:
        super().take_embeddings()
        stack = f"{STACK}embed_positions."
        self.theirs.pop(f"{self.at}embeddings.position_embeddings.weight", None)
        self.ours[f"{stack}a"] = self.take(f"{self.at}encoder.rel_embeddings.weight")
        if self.has_norm:
            self.move(f"{self.at}encoder.LayerNorm", f"{stack}layer_norm")


class DebertaV1(Deberta):
    layer_parts = {theirs: ours for theirs, ours in LAYER.items() if ".self." not in theirs}

    def take_layer(self, layer: int) -> None:
        super().take_layer(layer)
        at, ours = f"{self.at}encoder.layer.{layer}.", f"{STACK}layers.{layer}."
        # head by head: the rows of query, key and value
        packed = self.take(f"{at}attention.self.in_proj.weight")
        rows = packed.unflatten(0, (self.args.encoder_attention_heads, 3, -1))
        for number, name in enumerate("qkv"):
            weight = rows[:, number].flatten(0, 1).contiguous()
            bias = torch.zeros(len(weight)) if name == "k" else self.take(f"{at}attention.self.{name}_bias")
            self.ours[f"{ours}self_attn.{name}_proj.weight"] = weight
            self.ours[f"{ours}self_attn.{name}_proj.bias"] = bias.reshape(-1)
        encoding = f"{ours}self_attn.position_encoding."
        if "c2p" in self.terms:
            self.move(f"{at}attention.self.pos_proj", f"{encoding}w_r", ("weight",))
        if "p2c" in self.terms:
            self.move(f"{at}attention.self.pos_q_proj", f"{encoding}w_t")


class DebertaV2(Deberta):
    layer_parts = DebertaV1.layer_parts | {
        f"attention.self.{theirs}_proj": f"self_attn.{ours}_proj"
        for theirs, ours in {"query": "q", "key": "k", "value": "v"}.items()
    }

    def take_layer(self, layer: int) -> None:
        super().take_layer(layer)
        at = f"{self.at}encoder.layer.{layer}."
        encoding = f"{STACK}layers.{layer}.self_attn.position_encoding."
        if not self.shares and "c2p" in self.terms:
            self.move(f"{at}attention.self.pos_key_proj", f"{encoding}w_r", ("weight",))
            self.theirs.pop(f"{at}attention.self.pos_key_proj.bias", None)  # drops out of the softmax
        if not self.shares and "p2c" in self.terms:
            self.move(f"{at}attention.self.pos_query_proj", f"{encoding}w_t")


class Ours(Source):
    """A model that ``to_transformers`` has written."""

    prefix = "roberta."
    usual_eps = 1e-5
    head_parts = (
        {
            "dense": "lm_head.dense",
            "norm": "lm_head.layer_norm",
            "bias": "lm_head.decoder.bias",
            "decoder": "lm_head.decoder",
        },
    )

    def set_positions(self, args: Namespace) -> None:
        self.config.refuse("has_cls", "a text of fairseq's RoBERTa begins with <s>", True)
        get = self.config.get
        name = self.config.one_of(names_for(causal=False), "position_encoding")
        args.arch, args.max_positions = f"roberta_{name}", get("max_position_embeddings")
        args.position_hparams = get("position_hparams", "")
        args.position_layers = get("position_layers", "all")
        args.attention_window = get("attention_window", "")
        args.encoder_normalize_before = get("normalize_before", False)
        args.layernorm_embedding = get("layernorm_embedding", True)
        args.no_scale_embedding = not get("scale_embedding", False)
        args.activation_dropout = get("activation_dropout", 0.0)
        pooler = self.config.one_of(FAIRSEQ_ACTIVATIONS, "classifier_activation", "tanh")
        args.pooler_activation_fn = FAIRSEQ_ACTIVATIONS[pooler]

    def take_embeddings(self) -> None:
        self.type_0 = None
        self.ours[f"{STACK}embed_tokens.weight"] = self.take(f"{self.at}embed_tokens.weight")
        at = f"{self.at}encoder."
        for key in [key for key in self.theirs if key.startswith(at)]:
            self.ours[STACK + key.removeprefix(at)] = self.take(key)

    def take_layer(self, layer: int) -> None:
        pass  # all layers have been taken


def load(folder: Path, model: Any, weights: Weights, fresh: Sequence[str] = ()) -> None:
    """Loads the weights. Raises ValueError if one is missing that is not ``fresh``, too many, or of another shape."""
    if lacking := [key for key, _ in model.named_parameters() if key not in weights and key not in fresh]:
        raise ValueError(f"{folder}: there is no weight for {lacking[0]}, which config.json promises")
    try:
        model.load_state_dict({**model.state_dict(), **weights})
    except ValueError as error:
        raise ValueError(f"{folder} contradicts itself: {error}") from None


class Bart:
    """BART, whose parts have fairseq's names, as a translation model with learned positions."""

    def __init__(self, config: Config, weights: Weights):
        self.config, self.theirs = config, dict(weights)
        get = config.get
        config.refuse("normalize_before", "layers with LayerNorm first are not those of BART", False)
        config.refuse("tie_word_embeddings", "BART's embeddings are one matrix", True)
        length = get("max_position_embeddings")
        self.args = Namespace(
            arch="transformer_learned",
            task="translation",
            criterion="label_smoothed_cross_entropy",
            data="",
            encoder_embed_dim=get("d_model"),
            decoder_embed_dim=get("d_model"),
            max_source_positions=length,
            max_target_positions=length,
            activation_fn=config.one_of(("gelu", "relu"), "activation_function", "gelu"),
            dropout=get("dropout", 0.1),
            attention_dropout=get("attention_dropout", 0.0),
            activation_dropout=get("activation_dropout", 0.0),
            share_all_embeddings=True,
            layernorm_embedding=True,
            no_scale_embedding=not get("scale_embedding", False),
            position_hparams="",
        )
        for stack in ("encoder", "decoder"):
            setattr(self.args, f"{stack}_layers", get(f"{stack}_layers"))
            setattr(self.args, f"{stack}_ffn_embed_dim", get(f"{stack}_ffn_dim"))
            setattr(self.args, f"{stack}_attention_heads", get(f"{stack}_attention_heads"))
        refuse_too_large(config, self.args, weights)
        bias = self.theirs.pop("final_logits_bias", None)
        if bias is not None and bias.any():
            raise ValueError(f"{config.folder}: final_logits_bias is not 0, which has no counterpart in fairseq")
        at = "model." if any(key.startswith("model.") for key in weights) else ""
        tied = [f"{at}shared.weight", f"{at}encoder.embed_tokens.weight", f"{at}decoder.embed_tokens.weight"]
        found = [self.theirs.pop(key).float() for key in [*tied, "lm_head.weight"] if key in self.theirs]
        if not found or any(not torch.equal(matrix, found[0]) for matrix in found):
            raise ValueError(f"{config.folder}: the word embeddings of BART are one matrix, here are {len(found)}")
        self.ours: Weights = {}
        for stack in ("encoder", "decoder"):
            self.ours[f"{stack}.embed_tokens.weight"] = found[0]
            for key in [key for key in self.theirs if key.startswith(f"{at}{stack}.")]:
                self.ours[key.removeprefix(at)] = self.theirs.pop(key).float()
        self.ours["decoder.output_projection.weight"] = found[0]

    def rows(self) -> int:
        return len(self.ours["decoder.output_projection.weight"])

    def labels(self) -> None:
        """A head for sentences is not taken."""

    def put_in_order(self, order: list[int]) -> None:
        for key in [key for key in self.ours if key.endswith(("embed_tokens.weight", "output_projection.weight"))]:
            self.ours[key] = self.ours[key][order]

    def build(self) -> Any:
        ARCH_CONFIG_REGISTRY[self.args.arch](self.args)
        return build_with_decoder(self.args, self.rows(), self.rows(), seed=1)

    def fill(self, model: Any) -> list[str]:
        load(self.config.folder, model, self.ours)
        return []


READERS: dict[str, Callable[[Config, Weights], Any]] = {
    "roberta": Roberta,
    "xlm-roberta": Roberta,
    "bert": Bert,
    "deberta": DebertaV1,
    "deberta-v2": DebertaV2,
    "bart": Bart,
    "relpos_roberta": Ours,
}


def check_dictionary(part: Path, rows: int, with_mask: bool, folder: Path) -> None:
    """Raises ValueError unless fairseq makes as many words of the new dict.txt as there are embeddings."""
    dictionary = Dictionary.load(str(part / "dict.txt"))
    if not with_mask:
        dictionary.add_symbol("<mask>")
    if len(dictionary) != rows:
        raise ValueError(
            f"{folder}: its words make {len(dictionary)} entries of dict.txt, but there are {rows} embeddings"
        )
