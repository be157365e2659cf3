"""bart_NAME inside fairseq: what must stay stock BART, and what every encoding can do."""

import copy
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from loops import scale_up
from small_models import dictionary, transformer, translation_batch

import fairseq_relpos
from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.models.bart import SIZES
from fairseq_relpos.signature import SignatureMismatch

NAMES = sorted(ENCODINGS)
WORDS = dictionary()


def bart(arch, seed=1, **settings):
    return transformer(arch, seed, task="denoising", **settings)


def loss_of(model, batch):
    logits = model(*batch)[0].float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[2].roll(-1, 1).flatten())


@pytest.mark.parametrize("normalize_before", [False, True])
def test_learned_trains_as_stock_bart_to_the_last_bit(normalize_before):
    settings = {"encoder_normalize_before": normalize_before, "decoder_normalize_before": normalize_before}
    stock, ours = bart("bart_base", **settings), bart("bart_learned", **settings)
    assert list(ours.state_dict()) == list(stock.state_dict())
    batch = translation_batch()
    for model in (stock, ours):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(3):
            torch.manual_seed(step)  # of the dropout
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        model.eval()
    assert torch.equal(stock(*batch)[0], ours(*batch)[0])
    for key, value in ours.state_dict().items():
        assert torch.equal(value, stock.state_dict()[key]), key
    # and each reads the file of the other
    other = bart("bart_learned", seed=2)
    other.load_state_dict(copy.deepcopy(bart("bart_base", seed=3).state_dict()), strict=True)
    bart("bart_base", seed=4).load_state_dict(other.state_dict(), strict=True)


@pytest.mark.parametrize("ending", SIZES)
def test_sizes_are_those_of_stock_bart(ending):
    stock = Namespace()
    ARCH_CONFIG_REGISTRY[SIZES[ending]](stock)
    for name in NAMES:
        ours = Namespace()
        ARCH_CONFIG_REGISTRY[f"bart_{name}{ending}"](ours)
        assert {k: getattr(ours, k) for k in vars(stock)} == vars(stock)


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_trains_is_saved_and_decodes(name):
    """In one test, because each part takes a fraction of a second."""
    model, stock = bart(f"bart_{name}", dropout=0.0), bart("bart_base")
    for key, value in stock.state_dict().items():
        if "embed_positions" not in key:
            assert torch.equal(model.state_dict()[key], value), key
    batch = translation_batch()
    loss_of(model, batch).backward()
    assert [k for k, p in model.named_parameters() if p.grad is None] == []
    for stack in (model.encoder, model.decoder):
        scale_up(stack.embed_positions)
    again = bart(model.args.arch, seed=5, **{k: v for k, v in vars(model.args).items() if k not in ("arch", "task")})
    again.load_state_dict(copy.deepcopy(model.state_dict()), strict=True)
    again.eval()
    assert torch.equal(again(*batch)[0], model.eval()(*batch)[0])
    # a sentence that the search continues step by step has the score of the full pass
    generator = SequenceGenerator([again], WORDS, beam_size=2, max_len_b=6)
    source, lengths, _ = batch
    (best, *_), *_ = generator.generate([again], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    tokens = best["tokens"][None]
    with torch.no_grad():
        logits = again(source[:1], lengths[:1], tokens.roll(1, 1))[0]
    scores = logits.log_softmax(-1).gather(2, tokens[..., None]).flatten()
    torch.testing.assert_close(scores, best["positional_scores"], atol=1e-5, rtol=0)


def test_a_head_classifies_as_stock_bart_does_and_is_saved():
    stock, ours = bart("bart_base"), bart("bart_learned")
    source, lengths, _ = translation_batch()
    for model in (stock, ours):
        torch.manual_seed(7)
        model.register_classification_head("mood", num_classes=3)
        model.eval()
    given = {"features_only": True, "classification_head_name": "mood"}
    found = ours(source, lengths, source.roll(1, 1), **given)[0]
    assert found.shape == (3, 3) and torch.equal(found, stock(source, lengths, source.roll(1, 1), **given)[0])
    again = bart("bart_learned", seed=2, load_checkpoint_heads=True).eval()
    again.args.load_checkpoint_heads = True
    again.load_state_dict(copy.deepcopy(stock.state_dict()), strict=True)
    assert torch.equal(again(source, lengths, source.roll(1, 1), **given)[0], found)


@torch.no_grad()
@pytest.mark.parametrize("arch", ["bart_base", "bart_t5"])
def test_a_batch_after_a_search_is_no_beam(arch):
    fairseq_relpos.register()  # the mends, also where stock BART is the first model
    model = bart(arch).eval()
    source, lengths, previous = (part.repeat_interleave(2, 0).roll(1, 0) for part in translation_batch())
    before = model(source, lengths, previous)[0]
    generator = SequenceGenerator([model], WORDS, beam_size=2, max_len_b=6)
    assert torch.equal(model(source, lengths, previous)[0], before)
    generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    assert torch.equal(model(source, lengths, previous)[0], before)


@torch.no_grad()
def test_words_are_copied_for_every_beam_of_every_sentence():
    model = bart("bart_t5", copy_from_source=True, share_all_embeddings=True).eval()
    scale_up(model.decoder.copy_head)
    source, lengths, _ = translation_batch()
    assert len({*map(tuple, source.tolist())}) == len(source) > 1

    def texts(rows):
        generator = SequenceGenerator([model], WORDS, beam_size=3, max_len_b=6)
        found = generator.generate([model], {"net_input": {"src_tokens": source[rows], "src_lengths": lengths[rows]}})
        return [(text["tokens"].tolist(), text["score"].item()) for of_one in found for text in of_one]

    together, alone = texts(slice(None)), [text for n in range(len(source)) for text in texts(slice(n, n + 1))]
    assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone]
    assert [score for _, score in together] == pytest.approx([score for _, score in alone], abs=1e-4)


def test_a_fine_tuning_without_mask_in_its_dictionary_leaves_its_row_out():
    pretrained = bart("bart_t5")
    words = dictionary()
    words.symbols.remove("<mask>")
    del words.indices["<mask>"]
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    args = Namespace(**{**vars(pretrained.args), "task": "translation"})
    tuned = ARCH_MODEL_REGISTRY["bart_t5"].build_model(args, task)
    tuned.load_state_dict(copy.deepcopy(pretrained.state_dict()), strict=True)
    assert torch.equal(tuned.encoder.embed_tokens.weight, pretrained.encoder.embed_tokens.weight[:-1])


def test_files_of_other_models_are_refused_in_one_line():
    other = bart("bart_shaw").state_dict()
    with pytest.raises(SignatureMismatch, match="checkpoint's encoder was trained with"):
        bart("bart_t5").load_state_dict(copy.deepcopy(other))
    with pytest.raises(ValueError, match="it lacks encoder.embed_tokens.weight; give one of bart_NAME"):
        bart("bart_t5").load_state_dict({"decoder.x": torch.ones(1)})
