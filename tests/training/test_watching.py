"""The values and pictures of a training that TensorBoard and Weights & Biases receive."""

import sys
from types import ModuleType

import pytest
import torch
from fairseq_data import masked_lm
from forked import Run, error_of, ranks, train, weights
from small_models import roberta, transformer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fairseq_relpos.biases import mosaic
from fairseq_relpos.mends import position_log as watching

STACK = "encoder.sentence_encoder"


def arguments(data, folder, *more, arch="roberta_tupe_r", logdir=True):
    watched = ("--tensorboard-logdir", folder / "tb") if logdir else ()
    flags = f"--arch {arch} --disable-validation --required-batch-size-multiple 1 --max-update 6 --log-interval 2"
    return masked_lm(data, folder / "run", *flags.split(), "--no-epoch-checkpoints", *watched, *more)


def events(folder, tag):
    found = EventAccumulator(str(folder / "tb" / tag), size_guidance={"images": 0})
    return found.Reload()


def steps(series):
    return [event.step for event in series]


def test_tensorboard_has_speed_scale_gradients_norms_and_pictures(data, tmp_path):
    flags = "--fp16 --fp16-init-scale 4 --log-position-bias-interval 3".split()
    train(arguments(data, tmp_path, *flags), tmp_path / "log")
    inner = events(tmp_path, "train_inner")
    assert {"loss", "wps", "gnorm", "loss_scale", "lr"} <= set(inner.Tags()["scalars"])
    assert steps(inner.Scalars("gnorm")) == [2, 4, 6]
    positions = events(tmp_path, "positions")
    scalars = set(positions.Tags()["scalars"])
    state = weights(tmp_path / "run")
    ours = {key for key in state if ".embed_positions." in key and "version" not in key}
    assert ours and scalars == {*(f"norm of {key}" for key in ours), f"largest bias of {STACK}"}
    for key in ours:
        logged = positions.Scalars(f"norm of {key}")
        assert steps(logged) == [2, 4, 6]
        assert logged[-1].value == pytest.approx(state[key].float().norm().item(), rel=1e-4)
    pictures = positions.Images(f"bias of {STACK}")
    assert steps(pictures) == [3, 6]
    assert (pictures[0].height, pictures[0].width) == (17, 34)  # two heads of 16 tokens and a line


def test_watching_changes_no_weight_and_without_tensorboard_nothing_is_computed(data, tmp_path):
    def trap():
        watching.log_scalars = watching.norms = watching.biases = None

    every = ("--log-position-bias-interval", 1, "--dropout", 0.1)
    for name, logdir in (("watched", True), ("alone", False)):
        command = arguments(data, tmp_path / name, *every, logdir=logdir)
        (tmp_path / name).mkdir()
        train(command, tmp_path / "log", before=None if logdir else trap)
    watched, alone = (weights(tmp_path / name / "run") for name in ("watched", "alone"))
    torch.testing.assert_close(watched, alone, rtol=0, atol=0)
    assert len(events(tmp_path / "watched", "positions").Images(f"bias of {STACK}")) == 6


def test_of_two_ranks_the_first_one_logs(data, tmp_path):
    runs = ranks(2, arguments(data, tmp_path), tmp_path)
    assert [run.wait() for run in runs] == [0, 0], runs[0].printed()
    assert len(list((tmp_path / "tb" / "positions").glob("events.*"))) == 1


def test_wandb_gets_the_same_where_it_is_configured(data, tmp_path):
    def stand_in():
        wandb = ModuleType("wandb")
        wandb.init = lambda **_: None
        wandb.config = type("Config", (), {"update": lambda self, _: None})()
        wandb.Image = lambda picture: f"picture {picture.shape}"
        wandb.log = lambda values, step: print(f"wandb {step} {values}")
        from fairseq.logging import progress_bar

        progress_bar.wandb = sys.modules["wandb"] = wandb

    command = arguments(data, tmp_path, "--wandb-project", "p", "--log-position-bias-interval", 6, logdir=False)
    printed = train(command, tmp_path / "log", before=stand_in)
    assert f"wandb 2 {{'positions/norm of {STACK}.embed_positions." in printed
    assert f"wandb 6 {{'positions/bias of {STACK}': 'picture (17, 34, 3)'}}" in printed
    assert "wandb 6 {'train_inner/gnorm': " in printed


def test_an_interval_below_zero_is_refused_in_one_line(data, tmp_path):
    run = Run(arguments(data, tmp_path, "--log-position-bias-interval", -1), tmp_path / "log")
    assert "--log-position-bias-interval -1: a number of updates, 0 for never" in error_of(run)


def test_norms_of_stacks_and_layers_are_told_apart():
    both = watching.norms(transformer("transformer_shaw"))
    assert {name.split(".")[0] for name in both} == {"norm of encoder", "norm of decoder"}
    assert any(".layers.1.self_attn.position_encoding." in name for name in both)
    assert watching.norms(roberta("roberta_none")) == {}
    assert not any(".position_encoding." in name for name in watching.norms(roberta("roberta_t5")))


def test_a_layer_with_a_bias_of_its_own_has_its_own_picture():
    found = watching.biases(roberta("roberta_t5", position_hparams="per_layer=True"))
    assert list(found) == [f"{STACK} layer {number}" for number in (1, 2, 3)]
    assert watching.biases(roberta("roberta_m4m")) == {}


def test_a_picture_has_no_dropout():
    model = roberta("roberta_at5", position_hparams="mlp_dropout=0.9").train()
    (first,), (second,) = (watching.biases(model).values() for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert all(module.training for module in model.modules())


def test_long_biases_are_drawn_up_to_a_size():
    (bias_HTS,) = watching.biases(roberta("roberta_alibi", max_positions=2000)).values()
    assert bias_HTS.shape == (3, watching.TOKENS, watching.TOKENS)


def test_the_mosaic_is_white_at_zero_and_red_above():
    bias_HTS = torch.zeros(5, 2, 2)
    bias_HTS[4, 1, 0], bias_HTS[0, 0, 1] = 3.0, -3.0
    picture = mosaic(bias_HTS)
    assert picture.shape == (2 * 3, 4 * 3, 3)  # four heads a row
    picture = picture.astype(int)
    red, blue, white = picture[3 + 1, 0], picture[0, 1], picture[0, 0]
    assert red[0] > 2 * red[2] and blue[2] > 2 * blue[0] and white.min() > 240
    assert (mosaic(torch.zeros(1, 2, 2)) > 240).all()


@pytest.mark.parametrize("score, warnings", [(1e6, 1), (0.0, 0)])
def test_a_training_warns_once_of_a_head_that_attends_to_the_first_token_alone(data, tmp_path, score, warnings):
    def with_this_score():
        from fairseq_relpos.encodings.tupe import UntiedPositions

        reset = UntiedPositions.reset_2H
        UntiedPositions.reset_2H = lambda part: reset(part) + torch.tensor([score, 0.0])

    flags = ["--validate-interval-updates", 2, "--valid-subset", "valid"]
    call = [flag for flag in arguments(data, tmp_path, *flags, logdir=False) if flag != "--disable-validation"]
    train(call, tmp_path / "log", before=with_this_score)
    assert (tmp_path / "log").read_text().count("head 1 attends to the first token alone") == warnings
