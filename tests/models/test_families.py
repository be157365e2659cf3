"""Every family of models beside stock fairseq; transformer_align_NAME, the non-autoregressive models and
s2t_transformer_NAME in detail."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.nat_loss import LabelSmoothedDualImitationCriterion
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqLanguageModel
from fairseq.models.roberta import RobertaModel
from loops import scale_up
from small_models import ABSOLUTE, GIVEN, NO_DROPOUT, PRE_NORM, model_of, save, sentences, stack_of, translation_batch

from fairseq_relpos.architectures import endings_of
from fairseq_relpos.attention import RelPosMultiheadAttention
from fairseq_relpos.encodings import ENCODINGS, names_for
from fairseq_relpos.signature import SignatureMismatch

NONAUTOREGRESSIVE = ["nonautoregressive_transformer", "cmlm_transformer", "levenshtein_transformer"]
FAMILIES = ["roberta", "transformer", "transformer_lm", "bart", "transformer_align", *NONAUTOREGRESSIVE]
FAMILIES += ["s2t_transformer"]
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
#: family, stock architecture, ending of both
SIZES = [
    *(("roberta", f"roberta{ending}", ending) for ending in ("", "_large")),
    *(("transformer", f"transformer{ending}", ending) for ending in endings_of("transformer")),
    *(("bart", f"bart{ending or '_base'}", ending) for ending in endings_of("bart")),
    *(("transformer_lm", f"transformer_lm{ending}", ending) for ending in endings_of("transformer_lm")),
]
SIZES.remove(("transformer_lm", "transformer_lm", ""))  # whose sizes are defaults of a dataclass


def stock_of(family):
    return {"bart": "bart_base", "transformer_lm": "transformer_lm_gpt"}.get(family, family)


def arch_of(family, name):
    return f"{family}_{name}_gpt" if family == "transformer_lm" else f"{family}_{name}"


def sample_of(arch):
    """A batch as fairseq's criterions get it."""
    if arch == "roberta":
        return {"previous": sentences(), "target": sentences().roll(1, 1)}
    source, lengths, previous = translation_batch()
    target = previous.roll(-1, 1)
    if arch.startswith("s2t"):
        source, lengths = torch.randn(3, 29, 6, generator=torch.Generator().manual_seed(2)), torch.tensor([29, 20, 9])
    if arch.startswith(tuple(NONAUTOREGRESSIVE)):
        target = previous.clone()
        target[:, 0] = 0
        previous = target.masked_fill(target.gt(3) & (target % 2).eq(0), 3)
        if arch.startswith("levenshtein"):
            previous = torch.tensor([[0, target[0, 2], target[0, 4], 2], [0, target[1, 1], 2, 1], [0, 2, 1, 1]])
            target[:, -1], target[2, 4:] = 2, torch.tensor([2, 1, 1])
    inputs = {"src_tokens": source, "src_lengths": lengths}
    return {"net_input": inputs, "previous": previous, "prev_target": previous, "target": target}


def loss_of(model, sample, seed=3):
    torch.manual_seed(seed)
    if isinstance(model, tuple(ARCH_MODEL_REGISTRY[family] for family in NONAUTOREGRESSIVE)):
        criterion = LabelSmoothedDualImitationCriterion(None, 0.1)
        return criterion(model, {**sample, "nsentences": 3, "ntokens": 1})[0]
    if isinstance(model, FairseqLanguageModel | RobertaModel):
        logits, extra = model(sample["previous"])
    else:
        logits, extra = model(**sample["net_input"], prev_output_tokens=sample["previous"])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), sample["target"].flatten())
    attention = extra.get("attn", [None])[0]
    return loss if attention is None else loss + attention[:, :, 0].square().mean()


@pytest.mark.parametrize("family", NONAUTOREGRESSIVE)
def test_unpad_skips_the_pads_of_the_encoder_alone(family):
    losses = [
        loss_of(model_of(f"{family}_t5", **NO_DROPOUT, unpad=unpad), sample_of(family)) for unpad in (False, True)
    ]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("family, stock, ending", SIZES)
def test_sizes_are_those_of_the_stock_architecture_of_the_same_ending(family, stock, ending):
    theirs = Namespace()
    ARCH_CONFIG_REGISTRY[stock](theirs)
    for name in names_for(causal=False) if family == "roberta" else sorted(ENCODINGS):
        ours = Namespace()
        ARCH_CONFIG_REGISTRY[f"{family}_{name}{ending}"](ours)
        if family == "transformer_lm":
            assert ours.decoder_learned_pos == (name == "learned")
            theirs.decoder_learned_pos = ours.decoder_learned_pos
        assert {k: getattr(ours, k) for k in vars(theirs)} == vars(theirs)


def stock_and_ours(family):
    """(encoding, settings of stock's model, settings of ours) for each kind of fairseq's own positions."""
    for name, positions in {"learned": LEARNED, "sinusoidal": {}}.items():
        if family == "s2t_transformer" and name == "learned":
            # stock has sinusoids in its encoder in any case
            ours = {"position_stacks": "decoder", "decoder_learned_pos": True}
            yield "learned", {"decoder_learned_pos": True}, ours
        elif family not in ("roberta", "bart") or name == "learned":
            yield name, positions, {}


@pytest.mark.parametrize(
    "family, settings", [*((family, {}) for family in FAMILIES), *((family, PRE_NORM) for family in FAMILIES[:4])]
)
def test_learned_and_sinusoidal_train_as_stock_fairseq_to_the_last_bit(family, settings):
    settings = {"dropout": 0.1, "attention_dropout": 0.1, **settings}
    if family in NONAUTOREGRESSIVE:
        settings["apply_bert_init"] = True
    if family == "transformer_align":
        settings["full_context_alignment"] = True
    sample = sample_of(family)
    for name, positions, more in stock_and_ours(family):
        archs = {stock_of(family): positions, arch_of(family, name): more}
        models = [model_of(arch, **own, **settings) for arch, own in archs.items()]
        stock, ours = (model.state_dict() for model in models)
        assert set(ours) == {key for key in stock if not key.endswith("_float_tensor")}
        losses = []
        for model in models:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for step in range(3):
                optimizer.zero_grad()
                loss = loss_of(model, sample, seed=step)
                loss.backward()
                optimizer.step()
            losses.append(loss)
        assert torch.equal(*losses)
        for key, value in ours.items():
            assert torch.equal(value, stock[key]), (name, key)
        # each reads the file of the other
        models[1].load_state_dict({key: value.clone() for key, value in stock.items()})
        models[0].load_state_dict(
            {key: value.clone() for key, value in ours.items()}, strict=ours.keys() == stock.keys()
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_encoding_trains_all_its_parameters_and_only_in_self_attention(family):
    sample = sample_of(family)
    causal = family not in (*NONAUTOREGRESSIVE, "roberta")
    stock, after = model_of(stock_of(family)).state_dict(), torch.get_rng_state()
    for name in sorted(ENCODINGS) if causal else names_for(causal=False):
        model = model_of(arch_of(family, name), early_exit="2,2,2")
        if name != "learned":  # whose table stock draws, too
            assert torch.equal(torch.get_rng_state(), after), "later draws would differ"
            for key, value in model.state_dict().items():
                assert "position" in key or torch.equal(value, stock[key]), (name, key)
        loss_of(model, sample).backward()
        without = [key for key, p in model.named_parameters() if p.grad is None and "ctc" not in key]
        assert without == [], name
        for layer in (stack_of(model) if family == "roberta" else model.decoder).layers:
            assert layer.self_attn.causal is causal
            assert layer.self_attn.position_encoding.dims.causal is causal
            assert not isinstance(getattr(layer, "encoder_attn", None), RelPosMultiheadAttention)


@pytest.mark.parametrize("family", ["roberta", "transformer", "bart", "transformer_lm"])
def test_a_model_is_rebuilt_from_its_saved_settings(family):
    for name in names_for(causal=False) if family == "roberta" else sorted(ENCODINGS):
        model = model_of(f"{family}_{name}")
        saved = {key: value for key, value in vars(model.args).items() if key not in {*GIVEN, "arch"}}
        if family == "transformer" and name not in ABSOLUTE:  # a longer source later must not change a relative table
            saved["max_source_positions"] = 50
        if family == "transformer_lm":  # nor longer blocks any table
            saved["tokens_per_sample"] = 50
        again = model_of(f"{family}_{name}", seed=2, **saved)
        assert again.args.position_hparams == model.args.position_hparams
        again.load_state_dict(model.state_dict())


@torch.no_grad()
@pytest.mark.parametrize("family", NONAUTOREGRESSIVE)
def test_a_decoder_that_sees_everything_knows_the_order_of_later_words(family):
    """In a causal stack, all later words have the distance 0 for t5."""
    model = model_of(f"{family}_t5").eval()
    scale_up(model.decoder.embed_positions)
    encoded = model.encoder(*translation_batch()[:2])
    words = torch.tensor([[0, 7, 8, 9, 10, 2]] * 3)
    both = words, words[:, [0, 1, 2, 4, 3, 5]]
    before, after = (model.decoder.extract_features(x, encoded, early_exit=1)[0][:, 1] for x in both)
    assert (before - after).abs().max() > 1e-4


def test_recomputed_layers_give_the_same_gradients():
    for family in ("transformer_align", *NONAUTOREGRESSIVE):
        sample, found = sample_of(family), []
        for how in ({}, {"checkpoint_activations": True}):
            model = model_of(f"{family}_tupe_r", early_exit="2,2,2", dropout=0.1, **how).train()
            loss_of(model, sample).backward()
            found.append([p.grad for p in model.parameters()])
        for one, other in zip(*found):
            torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-5)


def test_an_encoder_of_speech_counts_what_comes_out_of_its_convolutions():
    for version in ("s2t_transformer", "convtransformer"):
        model = model_of("s2t_transformer_learned_s", conv_version=version, max_source_positions=29)
        assert model.encoder.embed_positions.dims.max_len == 8
        assert loss_of(model, sample_of("s2t_transformer")).isfinite()


def test_a_pretrained_encoder_of_speech_is_read_with_its_positions(tmp_path):
    trained = model_of("s2t_transformer_shaw", seed=1, task="speech_to_text", criterion="cross_entropy")
    save(trained, tmp_path / "asr.pt")
    given = {"load_pretrained_encoder_from": str(tmp_path / "asr.pt")}
    model = model_of("s2t_transformer_shaw", seed=2, **given)
    assert model.args.load_pretrained_encoder_from is None
    for key, value in model.encoder.state_dict().items():
        assert torch.equal(value, trained.encoder.state_dict()[key]), key
    with pytest.raises(SignatureMismatch, match="was trained with .pe:shaw"):
        model_of("s2t_transformer_m4", **given)
    with pytest.raises(ValueError, match="--load-pretrained-encoder-from .*fc1.weight is"):
        model_of("s2t_transformer_shaw", encoder_ffn_embed_dim=20, **given)
