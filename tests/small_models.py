"""Small fairseq models built in-process, as fairseq's commands build them."""

import copy
from argparse import Namespace
from types import SimpleNamespace

import pytest

pytest.importorskip("fairseq")  # tests that build models are skipped where there is none

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from loops import scale_up_positions
from omegaconf import OmegaConf
from torch import nn

import fairseq_relpos.models  # noqa: F401  registers the architectures

SIZES = {
    "encoder_layers": 3,
    "encoder_embed_dim": 24,
    "encoder_ffn_embed_dim": 48,
    "encoder_attention_heads": 3,
    "max_positions": 32,
    "encoder_layerdrop": 0.0,
    "quant_noise_pq": 0,
    "quant_noise_pq_block_size": 8,
    "quant_noise_scalar": 0,
}


NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
#: one of each kind: input only, operands, shared bias, function of parameters, both; tables in
#: each layer, parts in both, a recomputed bias
KINDS = ["learned", "bert_ad", "tupe_r", "at5", "bert_r", "m4m", "deberta", "transformer_xl", "fire"]
#: their tables have as many rows as there may be positions
ABSOLUTE = ["learned", "abs_m4m", "bert_r", "bert_ad", "tupe_a", "tupe_r", "tupe_a_tie_cls", "tupe_r_tie_cls"]


def dictionary(words=40):
    d = Dictionary()
    for i in range(words):
        d.add_symbol(f"w{i}")
    d.add_symbol("<mask>")
    return d


def roberta(arch, seed=1, **settings):
    """A RoBERTa of this architecture; its ``args`` are what a checkpoint would hold."""
    return built(arch, SIZES, SimpleNamespace(source_dictionary=dictionary()), seed, **settings)


def built(arch, sizes, task, seed, /, **settings):
    args = Namespace(**{**sizes, "arch": arch, **settings})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    model.args = args
    return model


def moved(model):
    """The model with all weights moved, so that none has no effect."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def trained(arch, path, seed=1, head=False, **settings):
    """A checkpoint as fairseq-train of today leaves it behind, with all weights moved."""
    model = roberta(arch, seed, task="masked_lm", criterion="masked_lm", data="elsewhere", **settings)
    if head:
        model.register_classification_head("mood", num_classes=3)
    save(moved(model), path)
    return model


def loaded(path):
    """The masked LM of a checkpoint, as fairseq's commands load it."""
    task = MaskedLMTask(MaskedLMConfig(), dictionary())
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], task=task)
    return model.eval()


def assert_trains(model, tokens, labels, loss):
    """A training step of a model of transformers has this loss, and a gradient for each parameter."""
    found = model.train()(tokens, labels=labels).loss
    torch.testing.assert_close(found, loss, rtol=0, atol=1e-5)
    model.zero_grad()
    found.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def gradients(model):
    return {key: parameter.grad for key, parameter in model.named_parameters()}


def save(model, path, **settings):
    """Writes a checkpoint of the model as fairseq-train leaves it behind. settings: more than its ``args`` has."""
    args = Namespace(**{**vars(copy.deepcopy(model.args)), **settings})
    torch.save(
        {
            "args": None,
            "cfg": OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True),
            "model": model.state_dict(),
            "optimizer_history": [
                {"criterion_name": "C", "optimizer_name": "O", "lr_scheduler_state": {}, "num_updates": 7}
            ],
            "extra_state": {"train_iterator": {"epoch": 5, "iterations_in_epoch": 3}, "best": 1.0},
            "last_optimizer_state": {"state": {0: torch.ones(3)}},
        },
        path,
    )


TRANSFORMER_SIZES = {
    "encoder_layers": 2,
    "encoder_embed_dim": 24,
    "encoder_ffn_embed_dim": 48,
    "encoder_attention_heads": 3,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "max_source_positions": 32,
    "max_target_positions": 32,
}


def transformer(arch, seed=1, words=40, target_words=None, **settings):
    """An encoder-decoder model of this architecture; its ``args`` are what a checkpoint
    would hold. target_words: where the decoder has a dictionary of its own."""
    task = SimpleNamespace(source_dictionary=dictionary(words), target_dictionary=dictionary(target_words or words))
    return built(arch, TRANSFORMER_SIZES, task, seed, **settings)


LANGUAGE_MODEL_SIZES = {
    "decoder_layers": 2,
    "decoder_embed_dim": 24,
    "decoder_input_dim": 24,
    "decoder_output_dim": 24,
    "decoder_ffn_embed_dim": 48,
    "decoder_attention_heads": 3,
    "max_target_positions": 32,
}


def language_model(arch, seed=1, task=None, words=40, **settings):
    """A decoder-only language model of this architecture; its ``args`` are what a checkpoint would hold."""
    words = dictionary(words)
    task = task or SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return built(arch, LANGUAGE_MODEL_SIZES, task, seed, **settings)


#: what some families of encoder-decoders need and the others do not read
GIVEN = {"alignment_layer": 1, "label_smoothing": 0.1, "task": "denoising"}


def model_of(arch, seed=1, **settings):
    """A model of any family."""
    if arch.startswith("s2t"):
        sizes = {"input_feat_per_channel": 6, "conv_channels": 8, **TRANSFORMER_SIZES}
        task = SimpleNamespace(source_dictionary=None, target_dictionary=dictionary())
        return built(arch, sizes, task, seed, **settings)
    for family, build in {"roberta": roberta, "electra": roberta, "transformer_lm": language_model}.items():
        if arch.startswith(family):
            return build(arch, seed, **settings)
    return transformer(arch, seed, **GIVEN, **settings)


def decoder(name):
    """A causal stack with the encoding, evaluated, with positions that matter."""
    settings = {"dropout": 0.0, "no_scale_embedding": True, "activation_fn": "relu"}
    return scale_up_positions(language_model(f"transformer_lm_{name}", **settings).decoder).eval()


class Anew(nn.Module):
    """A model as the generator sees one that cannot decode incrementally."""

    def __init__(self, model):
        super().__init__()
        if hasattr(model, "encoder"):
            self.encoder = model.encoder
        self.decoder = _DecoderAnew(model.decoder)
        self.max_decoder_positions = model.max_decoder_positions
        self.get_normalized_probs = model.get_normalized_probs


class _DecoderAnew(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        self.stock = decoder

    def forward(self, tokens, encoder_out=None):
        return self.stock(tokens, encoder_out=encoder_out)


def translation_batch():
    """Sources padded to the left, as fairseq's translation task does, and the decoder's
    inputs, padded to the right: (src_tokens, src_lengths, prev_output_tokens)."""
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(4, 40, (3, 9), generator=generator)
    source[:, -1] = 2
    source[1, :3] = source[2, :6] = 1
    previous = torch.randint(4, 40, (3, 7), generator=generator)
    previous[:, 0] = 2
    previous[2, 5:] = 1
    return source, source.ne(1).sum(1), previous


def sentences(batch=3, length=17, padding="right"):
    """Random sentences that begin with <s> and end with </s>, of different lengths."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(4, 40, (batch, length), generator=generator)
    for row in range(batch):
        real = length - 3 * row
        sentence = tokens[row, :real].clone()
        sentence[0], sentence[-1] = 0, 2
        tokens[row] = 1
        where = slice(0, real) if padding == "right" else slice(length - real, length)
        tokens[row, where] = sentence
    return tokens


def stack_of(model):
    return model.encoder.sentence_encoder


@torch.no_grad()
def logits(model, tokens, **settings):
    """The logits of a model of transformers."""
    return model(input_ids=tokens, attention_mask=tokens.ne(1).long(), **settings).logits
