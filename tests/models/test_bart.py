"""bart_NAME inside fairseq: what must stay stock BART, and what every encoding can do."""

import copy
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from loops import scale_up
from small_models import dictionary, transformer, translation_batch

import fairseq_relpos

WORDS = dictionary()


def bart(arch, seed=1, **settings):
    return transformer(arch, seed, task="denoising", **settings)


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


def test_a_file_of_another_model_is_refused_in_one_line():
    with pytest.raises(ValueError, match="it lacks encoder.embed_tokens.weight; give one of bart_NAME"):
        bart("bart_t5").load_state_dict({"decoder.x": torch.ones(1)})
