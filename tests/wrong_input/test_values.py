"""Numbers, overrides and launchers' variables that cannot be: one line each."""

import argparse
import logging
from argparse import Namespace

import pytest
from fairseq import checkpoint_utils, models, options
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from fairseq_data import masked_lm
from omegaconf import OmegaConf

import fairseq_relpos.models
from fairseq_relpos.mends.wrong_input import arguments, text
from fairseq_relpos.mends.wrong_input.launching import check_variables
from fairseq_relpos.mends.wrong_input.models import what_the_task_needs
from fairseq_relpos.mends.wrong_input.needed import check_languages, check_numbers_of_parts
from fairseq_relpos.mends.wrong_input.overrides import Command, as_dict, check_overrides
from fairseq_relpos.mends.wrong_input.ranges import check_numbers

USER_DIR = fairseq_relpos.__path__[0]


@pytest.mark.parametrize(
    "name, value",
    [
        ("batch_size", 0),
        ("encoder_layers", -1),
        ("dropout", 1.5),
        ("dropout", float("nan")),
        ("lr", [-0.5]),
        ("update_freq", [4, 0]),
        ("max_update", -1),
        ("save_interval", 0),
        ("seed", -1),
        ("encoder_embed_dim", 10**12),
        ("adam_betas", "(0.9,)"),
        ("adam_betas", "abc"),
        ("mask_prob", -0.1),
        ("num_workers", -1),
    ],
)
def test_a_number_that_the_flag_cannot_have_is_refused(name, value):
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')}"):
        check_numbers(Namespace(**{name: value}))


@pytest.mark.parametrize(
    "name",
    ("save_interval", "validate_interval", "log_interval", "batch_size", "tokens_per_sample", "max_source_positions"),
)
def test_a_huge_number_that_means_never_passes(name):
    check_numbers(Namespace(**{name: 10**10}))


def test_minus_one_that_fairseq_takes_as_off_passes():
    check_numbers(Namespace(save_interval_updates=-1, prefix_size=-1))


def test_a_masked_language_model_masks_some_tokens_and_not_all():
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"--mask-prob {share:g}: give a share above 0 and below 1"):
            check_numbers(Namespace(task="masked_lm", mask_prob=share))
        check_numbers(Namespace(task="audio_pretraining", mask_prob=share))


def test_shares_of_the_same_tokens_are_one_at_most():
    with pytest.raises(ValueError, match="together 1 at most"):
        check_numbers(Namespace(leave_unmasked_prob=0.6, random_token_prob=0.6))


def test_ordinary_numbers_and_those_not_given_pass():
    check_numbers(
        Namespace(
            batch_size=8,
            max_tokens=None,
            lr=[0.0005, 0.1],
            update_freq=[1],
            dropout=0.0,
            seed=2**32 - 1,
            max_update=0,
            adam_betas="(0.9, 0.98)",
            clip_norm=-1.0,
            context_window=0,
            tokens_per_sample=None,
            max_positions=(1024, 512),
        )
    )


@pytest.mark.parametrize(
    "command", ("preprocessing", "training", "validation", "generation", "eval_lm", "interactive_generation")
)
def test_the_defaults_of_every_command_pass(command):
    parser = getattr(options, f"get_{command}_parser")()
    check_numbers(Namespace(**{action.dest: action.default for action in parser._actions}))


def of_the_parser(*more):
    parser = options.get_training_parser()
    return options.parse_args_and_arch(parser, masked_lm("data", "save", USER_DIR, *more))


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--seed", -1), "--seed -1: give 0 or more"),
        (("--optimizer-overrides", "[1]"), "no dict"),
        (("--lr-scheduler", "polynomial_decay"), "give --total-num-update"),
        (("--lr-scheduler", "triangular"), "give --max-lr$"),
    ],
)
def test_a_command_that_is_given_one_ends_in_one_line(flags, message):
    with pytest.raises(SystemExit, match=f"fairseq_relpos: error: .*{message}"):
        of_the_parser(*flags)


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


def test_overrides_are_settings_of_the_checkpoint_or_flags_of_its_model():
    check_overrides({"encoder_layers": 3, "dropout": 0, "tokens_per_sample": 32, "task": {}}, settings(), {})
    check_overrides({"unpad": True}, settings(), {})  # a checkpoint of before that flag
    with pytest.raises(ValueError, match="no setting 'dropuot'; the nearest: dropout"):
        Command({"dropuot": 0.3}, {}).check(settings())
    with pytest.raises(ValueError, match="encoder_layers is 2 in the checkpoint: 'x' is of another kind"):
        check_overrides({"encoder_layers": "x"}, settings(), {})


def test_overrides_of_kinds_and_names_that_fairseq_takes_pass(caplog):
    cfg = settings()
    cfg.task.update({"shuffle": True, "update_freq": [1], "seed": 1, "bpe": None})
    Command({"shuffle": 0, "update_freq": (2,), "seed": 2.0, "dropout": True}, {}).check(cfg)
    Command({"bpe": "sentencepiece", "sentencepiece_model": "m"}, {}).check(cfg)
    Command({"beam": 4}, {"beam": 5}).check(cfg)
    assert not caplog.records


def test_a_name_that_only_another_checkpoint_of_the_command_has_passes():
    other = settings()
    other.task.another_name = 1
    for first, second in ((settings(), other), (other, settings())):
        command = Command({"another_name": 2}, {"path": "a.pt", "lm_path": "lm.pt"})
        command.check(first)
        command.check(second)
    command = Command({"dropuot": 2}, {"path": "a.pt:b.pt"})
    command.check(settings())
    with pytest.raises(ValueError, match="'dropuot'"):
        command.check(other)


def test_a_name_that_only_the_code_of_the_model_knows_is_a_warning(caplog):
    cfg = settings()
    cfg.model.arch = "roberta_base"
    caplog.set_level(logging.WARNING)
    Command({"checkpoint_activations": True}, {}).check(cfg)  # by getattr alone
    Command({"nosuch": 1}, {"user_dir": "of/a_user"}).check(cfg)
    cfg.model.arch = "of_a_user"
    Command({"dropuot": 0.3}, {}).check(cfg)
    assert [record.message.split("'")[1] for record in caplog.records] == [
        "checkpoint_activations",
        "nosuch",
        "dropuot",
    ]


@pytest.mark.parametrize("name", ("nosuch", "encoder_layrs"))
def test_a_name_that_no_code_reads_is_refused(name):
    with pytest.raises(ValueError, match=f"no setting '{name}'"):
        Command({name: 1}, {"user_dir": USER_DIR}).check(settings())


def test_a_task_or_model_of_a_user_is_not_judged():
    class DecoderOnly(TranslationTask):
        pass

    language_model = models.ARCH_MODEL_REGISTRY["transformer_lm"]
    assert what_the_task_needs(language_model, object.__new__(TranslationTask))
    assert what_the_task_needs(language_model, object.__new__(DecoderOnly)) is None


def test_overrides_of_a_program_are_its_own():
    cfg = settings()
    checkpoint_utils.overwrite_args_by_name(cfg, {"of_a_program": 1})
    assert cfg.model.of_a_program == 1


@pytest.mark.parametrize(
    "name, value",
    [
        ("WORLD_SIZE", "abc"),
        ("WORLD_SIZE", "-1"),
        ("RANK", "2"),
        ("LOCAL_RANK", "x"),
        ("MASTER_PORT", "99999"),
        ("SLURM_STEP_NUM_TASKS", "x"),
    ],
)
def test_a_launchers_variable_that_is_no_such_number_is_named(monkeypatch, name, value):
    for variable in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_variables()
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"the variable {name} is {value!r}"):
        check_variables()


def test_an_empty_variable_is_none_unless_the_launchers_are_read(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "")
    check_variables()
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    with pytest.raises(ValueError, match="the variable RANK is ''"):
        check_variables()


def test_generation_joins_no_ranks_whatever_the_variables_say(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "abc")
    for interactive in (False, True):
        parser = options.get_generation_parser(interactive)
        assert options.parse_args_and_arch(parser, ["data", "--path", "x.pt"]).path == "x.pt"


def test_a_preprocessing_that_fails_takes_back_what_it_has_written(tmp_path):
    (tmp_path / "valid.bin").write_text("of before")
    args = preprocessing("--only-source --trainpref text --validpref a,b", tmp_path)
    with pytest.raises(OSError), text._all_or_nothing(args):
        Dictionary().save(str(tmp_path / "dict.txt"))
        for name in ("train.bin", "train.pt1.idx", "valid1.idx", "test.bin"):
            (tmp_path / name).write_text("half")
        raise OSError("no room")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.bin", "valid.bin"]


def preprocessing(flags, folder):
    return options.get_preprocessing_parser().parse_args([*flags.split(), "--destdir", str(folder)])


def test_a_preprocessing_that_fails_leaves_what_another_writes_beside_it(tmp_path):
    others = ["dict.de.txt", "dict.en.txt", "train.align.en-de.bin", "train.en-de.de.bin", "train.en-de.en.idx"]
    own = ["alignment.en-fr.txt", "train.align.en-fr.idx", "train.en-fr.en.bin", "train.en-fr.fr.pt1.idx"]
    flags = "-s en -t fr --trainpref text --align-suffix align --alignfile text.align"
    with pytest.raises(OSError), text._all_or_nothing(preprocessing(flags, tmp_path)):
        for language in ("en", "fr"):
            Dictionary().save(str(tmp_path / f"dict.{language}.txt"))
        for name in (*others, *own):
            (tmp_path / name).write_text("of another run" if name in others else "half")
        raise OSError("no room")
    assert sorted(path.name for path in tmp_path.iterdir()) == others


def test_preprocess_takes_one_side_of_a_pair_and_reads_no_dictionary_of_the_other(tmp_path):
    (tmp_path / "dict.txt").write_text("a 1\n")
    flags = f"--only-source --testpref text --srcdict {tmp_path}/dict.txt"
    text.check_arguments(preprocessing(f"{flags} -s en -t en", tmp_path / "out"))
    text.check_arguments(preprocessing(f"{flags} -s en -t de --tgtdict gone.txt", tmp_path / "out"))
    with pytest.raises(ValueError, match="both en"):
        text.check_arguments(
            preprocessing(f"-s en -t en --testpref text --srcdict {tmp_path}/dict.txt", tmp_path / "out")
        )


@pytest.mark.parametrize("flags", ("--workers 0", "--dataset-impl fasta"))
def test_preprocess_refuses_what_it_cannot_do(flags, tmp_path):
    with pytest.raises(ValueError, match=flags):
        text.check_arguments(preprocessing(f"--only-source --trainpref text {flags}", tmp_path))


def test_one_language_alone_has_to_be_that_of_the_data(tmp_path):
    (tmp_path / "train.a-b.a.idx").write_text("")
    settings = {"task": "translation", "data": str(tmp_path), "source_lang": None, "target_lang": "b"}
    check_languages(settings)
    check_languages({**settings, "source_lang": "b", "target_lang": "a"})  # which the data may be used for, too
    with pytest.raises(ValueError, match="--target-lang a: the data are from a to b"):
        check_languages({**settings, "target_lang": "a"})


def test_a_detokeniser_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="--eval-bleu-detok nosuch is not known: .*moses"):
        check_numbers_of_parts({"eval_bleu": True, "eval_bleu_detok": "nosuch"})
