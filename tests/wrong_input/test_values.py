"""Flags without effect, and overrides."""

import argparse
from argparse import Namespace

import pytest
from fairseq import checkpoint_utils, options
from fairseq_data import masked_lm
from omegaconf import OmegaConf

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.mends.wrong_input import arguments, ignored
from fairseq_relpos.mends.wrong_input.ignored import check_languages
from fairseq_relpos.mends.wrong_input.overrides import as_dict, check_names


@pytest.mark.parametrize(
    "name, value",
    [
        ("batch_size", 0),
        ("dropout", float("nan")),
        ("lr", [0.5, -0.5]),
        ("max_update", -1),
        ("label_smoothing", 2),
        ("sacrebleu", True),
        ("write_checkpoints_asynchronously", True),  # without iopath
        ("mask", 1.0),
        ("mask_random", -0.1),
        ("insert", float("nan")),
        ("poisson_lambda", 0.0),
        ("poisson_lambda", 17.0),
        ("permute", 0.1),
        ("permute_sentences", 1.0),
    ],
)
def test_a_flag_that_fairseq_would_take_without_its_effect_is_refused(name, value):
    usual = {"task": "denoising", "lr": [0.1], "label_smoothing": 0.1, "max_update": 0, "poisson_lambda": 3.0}
    usual |= {"permute_sentences": -1, "mask": 0.3, "dropout": None}
    ignored.check(usual)
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')}") as error:
        ignored.check({**usual, name: value})
    assert "\n" not in str(error.value)


def test_updates_with_a_learning_rate_of_0_are_refused():
    usual = {"lr_scheduler": "polynomial_decay", "max_update": 20, "total_num_update": 20, "end_learning_rate": 0.0}
    ignored.check(usual)
    for change in {"max_update": 0}, {"end_learning_rate": 1e-5}, {"lr_scheduler": "fixed"}:
        ignored.check({**usual, "total_num_update": 9, **change})
    with pytest.raises(ValueError, match="--max-update 20 is more than --total-num-update 9"):
        ignored.check({**usual, "total_num_update": 9})


@pytest.mark.parametrize(
    "command", ("preprocessing", "training", "validation", "generation", "eval_lm", "interactive_generation")
)
def test_the_defaults_of_every_command_pass(command):
    parser = getattr(options, f"get_{command}_parser")()
    ignored.check({action.dest: action.default for action in parser._actions})


def of_the_parser(*more):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, masked_lm("data", "save", *more))


@pytest.mark.parametrize("flags", [("--lr", -1), ("--optimizer-overrides", "[1]")])
def test_a_command_that_is_given_one_ends_in_one_line(flags):
    with pytest.raises(SystemExit, match=f"fairseq_relpos: error: {flags[0]} "):
        of_the_parser(*flags)


def test_denoising_needs_a_decoder():
    with pytest.raises(SystemExit, match="--task denoising needs a decoder, which --arch roberta_t5 lacks: give bart_"):
        of_the_parser("--task", "denoising", "--arch", "roberta_t5")


def test_a_wrong_positional_argument_keeps_its_message():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["a", "b"])
    message = "argument kind: invalid choice: 'c' (choose from 'a', 'b')"
    assert arguments.in_words(parser, message) == message


@pytest.mark.parametrize("text", ("{", "abc", "[1]", "", "None", "{1: 2}", "{'a': print(1)}"))
def test_overrides_that_are_no_dict_are_refused_and_never_run(text, capsys):
    with pytest.raises(ValueError, match="--model-overrides .* is no dict"):
        as_dict("model_overrides", text)
    assert capsys.readouterr().out == ""


def settings():
    return OmegaConf.create(
        {"model": Namespace(arch="roberta_t5", dropout=0.1, encoder_layers=2), "task": {"tokens_per_sample": 16}},
        flags={"allow_objects": True},
    )


def test_a_misspelt_override_is_refused_and_settings_and_flags_of_the_model_pass(caplog):
    known = {"encoder_layers": 3, "tokens_per_sample": 32, "task": {}, "unpad": True}  # no --unpad in the checkpoint
    check_names({**known, "beam": 4}, settings(), {"path": "a.pt", "beam": 5})
    assert not caplog.records
    with pytest.raises(ValueError, match="'dropuot'.*: dropout"):
        check_names({"dropuot": 0.3}, settings(), {"path": "a.pt"})


def test_an_override_that_other_code_or_another_checkpoint_may_read_is_a_warning(caplog):
    check_names({"of_my_own_code": True}, settings(), {})
    check_names({"dropuot": 0.3}, settings(), {"path": "a.pt", "lm_path": "lm.pt"})
    assert [record.message.split("'")[1] for record in caplog.records] == ["of_my_own_code", "dropuot"]


def test_overrides_of_a_program_are_its_own():
    cfg = settings()
    checkpoint_utils.overwrite_args_by_name(cfg, {"of_a_program": 1})
    assert cfg.model.of_a_program == 1


def test_one_language_alone_has_to_be_that_of_the_data(tmp_path):
    (tmp_path / "train.a-b.a.idx").write_text("")
    settings = {"task": "translation", "data": str(tmp_path), "source_lang": None, "target_lang": "b"}
    check_languages(settings)
    check_languages({**settings, "source_lang": "b", "target_lang": "a"})  # which the data may be used for, too
    with pytest.raises(ValueError, match="--target-lang a: .* from a to b"):
        check_languages({**settings, "target_lang": "a"})
