"""Small fairseq models built in-process, as fairseq's commands build them."""

import copy
from argparse import Namespace
from types import SimpleNamespace

import pytest

pytest.importorskip("fairseq")  # tests that build models are skipped where there is none

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerDecoder
from loops import scale_up
from omegaconf import OmegaConf

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.override import override_self_attention

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


def dictionary(words=40):
    d = Dictionary()
    for i in range(words):
        d.add_symbol(f"w{i}")
    d.add_symbol("<mask>")
    return d


def roberta(arch, seed=1, **settings):
    """A RoBERTa of this architecture; its ``args`` are what a checkpoint would hold."""
    args = Namespace(**{**SIZES, "arch": arch, **settings})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(seed)
    task = SimpleNamespace(source_dictionary=dictionary())
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


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
    args = Namespace(**{**TRANSFORMER_SIZES, "arch": arch, **settings})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(seed)
    task = SimpleNamespace(source_dictionary=dictionary(words), target_dictionary=dictionary(target_words or words))
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    model.args = args
    return model


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
    args = Namespace(**{**LANGUAGE_MODEL_SIZES, "arch": arch, **settings})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(seed)
    words = dictionary(words)
    task = task or SimpleNamespace(source_dictionary=words, target_dictionary=words)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    model.args = args
    return model


def decoder(name, hparams=None):
    """A decoder without an encoder: a causal stack with the encoding."""
    args = Namespace(
        decoder_layers=2,
        decoder_embed_dim=24,
        decoder_output_dim=24,
        decoder_input_dim=24,
        decoder_ffn_embed_dim=48,
        decoder_attention_heads=3,
        decoder_normalize_before=False,
        decoder_learned_pos=False,
        max_target_positions=32,
        share_decoder_input_output_embed=True,
        no_token_positional_embeddings=False,
        adaptive_softmax_cutoff=None,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_fn="relu",
        layernorm_embedding=False,
        no_scale_embedding=True,
        decoder_layerdrop=0,
        tie_adaptive_weights=False,
        no_cross_attention=True,
        cross_self_attention=False,
        quant_noise_pq=0,
        quant_noise_pq_block_size=8,
        quant_noise_scalar=0,
        adaptive_input=False,
    )
    words = dictionary()
    embedding = torch.nn.Embedding(len(words), 24, words.pad())
    stack = TransformerDecoder(args, words, embedding, no_encoder_attn=True)
    override_self_attention(stack, name, hparams or {}, causal=True, max_len=32)
    scale_up(stack.embed_positions)
    return stack.eval()


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
