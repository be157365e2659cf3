"""fairseq's denoising task with bart_NAME: trainings by the command, its noise, and settings that cannot be."""

import argparse
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary, indexed_dataset
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.denoising import DenoisingConfig, DenoisingTask
from fairseq_data import USER_DIR, WORDS, binarise, denoising
from forked import Run, error_of, run, train, weights
from omegaconf import OmegaConf
from vocabularies import VOCABULARIES

from fairseq_relpos.mends.wrong_input import ignored


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return binarise(tmp_path_factory.mktemp("denoising"), train=24, valid=8)


def assert_equal(one, other):
    assert list(one) == list(other)
    for key, tensor in one.items():
        assert torch.equal(tensor, other[key]), key


def test_learned_trains_by_the_command_as_stock_bart_to_the_last_bit(data, tmp_path):
    for arch in ("bart_base", "bart_learned"):
        flags = ["--max-update", 4, "--disable-validation"]
        train(denoising(data, tmp_path / arch, *flags, arch=arch), tmp_path / "log")
    assert_equal(weights(tmp_path / "bart_base"), weights(tmp_path / "bart_learned"))


def test_a_training_that_stops_goes_on_as_if_it_had_not_for_any_number_of_loaders(data, tmp_path):
    flags = "--dropout 0 --attention-dropout 0 --no-epoch-checkpoints --max-epoch".split()
    train(denoising(data, tmp_path / "whole", *flags, 2, arch="bart_tupe_r"), tmp_path / "log")
    train(denoising(data, tmp_path / "two", *flags, 1, arch="bart_tupe_r"), tmp_path / "log")
    more = [*flags, 2, "--num-workers", 2]
    train(denoising(data, tmp_path / "two", *more, arch="bart_tupe_r"), tmp_path / "log")
    assert_equal(weights(tmp_path / "whole"), weights(tmp_path / "two"))
    # and the model can be used
    generating = [data, "--user-dir", USER_DIR, "--task", "denoising", "--path", tmp_path / "two/checkpoint_last.pt"]
    flags = "--cpu --gen-subset valid --mask 0.3 --rotate 0 --replace-length 1 --tokens-per-sample 18 --beam 2".split()
    flags += ["--batch-size", 8, "--required-batch-size-multiple", 1]
    assert "H-0" in run("generate", [*generating, *flags], tmp_path / "log")
    kind = ARCH_MODEL_REGISTRY["bart_tupe_r"]
    bart = kind.from_pretrained(str(tmp_path / "two"), "checkpoint_last.pt", str(data), bpe="bytes").eval()
    bart.bpe = argparse.Namespace(encode=lambda text: text, decode=lambda text: text)  # words as they are
    ((filled, other),) = bart.fill_mask([f"{WORDS[1]} <mask> {WORDS[2]}"], topk=2)
    assert filled[1] >= other[1] and set(filled[0].split()) <= set(WORDS)


def task_of(folder, **settings):
    config = DenoisingConfig(**{"data": str(folder), "tokens_per_sample": 18, "mask": 0.3, "rotate": 0.0, **settings})
    config.seed, config.dataset_impl = 1, None
    return DenoisingTask(config, Dictionary.load(str(Path(folder) / "dict.txt")))


def test_the_noise_of_a_sample_depends_on_seed_epoch_and_sample_alone(data):
    task = task_of(data, replace_length=1, mask_random=0.3, mask_length="span-poisson")
    task.load_dataset("valid")
    dataset = task.datasets["valid"]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    before = [dataset[n]["source"].tolist() for n in range(len(dataset))]
    assert torch.equal(torch.get_rng_state(), state), "the dropout would be another"
    torch.manual_seed(2)
    again = {n: dataset[n]["source"].tolist() for n in reversed(range(len(dataset)))}
    assert [again[n] for n in range(len(dataset))] == before
    dataset.set_epoch(2)
    assert [dataset[n]["source"].tolist() for n in range(len(dataset))] != before


def lengths_of_sources(folder, room, spans):
    task = task_of(
        folder, replace_length=1, mask_length="span-poisson", poisson_lambda=spans, max_source_positions=room
    )
    task.load_dataset("valid")
    dataset = task.datasets["valid"]
    found = []
    for epoch in range(1, 9):
        dataset.set_epoch(epoch)
        found += [len(dataset[n]["source"]) for n in range(len(dataset))]
    return found, max(len(dataset[n]["target"]) for n in range(len(dataset)))


def test_a_task_that_derives_from_it_may_have_one_length_and_a_model_without_a_decoder(data, monkeypatch):
    task = task_of(data, replace_length=1, mask_length="span-poisson")
    monkeypatch.setattr(type(task), "max_positions", lambda self: 1024)
    task.load_dataset("valid")
    assert task.datasets["valid"].room == 1024
    of_it = {"task": "of somebody", "arch": "roberta_t5", "poisson_lambda": 3.0}
    ignored.check(of_it)
    with pytest.raises(ValueError, match="needs a decoder"):
        ignored.check({**of_it, "task": "denoising"})


def test_noise_that_makes_a_sample_too_long_for_the_model_is_drawn_again(data):
    free, longest = lengths_of_sources(data, 1024, 1.0)
    bound, _ = lengths_of_sources(data, longest, 1.0)
    assert max(free) > longest >= max(bound)
    assert all(ours == theirs for ours, theirs in zip(bound, free, strict=True) if theirs <= longest)
    assert lengths_of_sources(data, longest, 1.0)[0] == bound
    lengths_of_sources(data, 1024, 16.0)  # the largest that ends
    with pytest.raises(ValueError, match=f"longer than --max-source-positions {longest}, 100 times in a row: give a"):
        lengths_of_sources(data, longest, 0.1)


def test_words_are_masked_as_wholes_with_the_vocabulary_beside_the_data(tmp_path):
    VOCABULARIES["bpe"](tmp_path / "spm")
    folder = tmp_path / "spm"
    words = Dictionary.load(str(folder / "dict.txt"))
    builder = indexed_dataset.make_builder(str(folder / "train.bin"), "mmap", len(words))
    line = " ".join(words.symbols[4:40])
    builder.add_item(words.encode_line(line, add_if_not_exist=False))
    builder.finalize(str(folder / "train.idx"))
    task = task_of(folder, mask_length="word", replace_length=1, bpe="sentencepiece", tokens_per_sample=60)
    task.load_dataset("train")
    begins = task.datasets["train"].mask_whole_word
    assert begins[words.index("\u2581the")] == 1 and begins[words.index("e")] == 0
    with pytest.raises(ValueError, match="--bpe gpt2: the vocabulary in .* is of --bpe sentencepiece"):
        task_of(folder, mask_length="word", replace_length=1, bpe="gpt2").load_dataset("train")
    (folder / "spm.model").unlink()
    with pytest.raises(ValueError, match="--mask-length word --bpe sentencepiece: .* put spm.model there"):
        task.load_dataset("train")


def test_the_share_of_sentences_is_no_whole_number():
    parser = options.get_training_parser("denoising")
    given = "data --task denoising --arch bart_base --permute-sentences 0.5"
    assert options.parse_args_and_arch(parser, [*given.split(), "--bpe", "gpt2"]).permute_sentences == 0.5


@pytest.mark.parametrize("bpe", [None, "gpt2"])
def test_from_pretrained_chooses_the_bpe_of_a_bart(data, bpe):
    cfg = OmegaConf.create({"task": {"_name": "denoising", "data": str(data), "bpe": bpe}, "bpe": None})
    checkpoint_utils.overwrite_args_by_name(cfg, {"bpe": "sentencepiece", "sentencepiece_model": "spm.model"})
    assert cfg.bpe._name == "sentencepiece" and cfg.bpe.sentencepiece_model == "spm.model"
    assert tasks.setup_task(cfg.task, from_checkpoint=True).cfg.bpe == "sentencepiece"


def test_the_command_refuses_noise_that_hides_everything(data, tmp_path):
    run = Run(denoising(data, tmp_path / "run", "--mask", 1, arch="bart_t5"), tmp_path / "log")
    assert error_of(run).startswith("--mask 1") and not (tmp_path / "run").exists()
