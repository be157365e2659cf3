"""Inputs longer than those of the pretraining: hyperparameters from the checkpoint, and tables with more rows."""

import logging

import forked
import pytest
import torch
from fairseq_data import masked_lm
from refusals import assert_refused
from small_models import ABSOLUTE, roberta, sentences, stack_of, trained

from fairseq_relpos.checkpoints.extending import extend
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.checkpoints.warm_start import warm_start
from fairseq_relpos.cli import main
from fairseq_relpos.encodings import names_for


def started(path, name, **settings):
    """The model with 48 positions that a training starts with, and its weights from the checkpoint at ``path``."""
    model = roberta(f"roberta_{name}", max_positions=48, finetune_from_model=str(path), **settings)
    model.load_state_dict(load_checkpoint(path)["model"])
    return model.eval()


@pytest.mark.parametrize("name", sorted(set(names_for(causal=False)) - set(ABSOLUTE)))
def test_a_longer_model_without_a_table_of_positions_starts_as_the_one_in_the_checkpoint(name, tmp_path):
    before = trained(f"roberta_{name}", tmp_path / "start.pt")
    assert stack_of(before).embed_positions.hard_limit is None
    tokens = sentences()
    after = started(tmp_path / "start.pt", name)
    assert torch.equal(after(tokens)[0], before(tokens)[0])
    after(sentences(batch=1, length=45))


@pytest.mark.parametrize("way", ["copy", "interpolate", "random"])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_an_extended_table_serves_longer_inputs_and_copy_and_random_change_nothing_before(name, way, tmp_path):
    before = trained(f"roberta_{name}", tmp_path / "start.pt")
    done = warm_start(tmp_path / "start.pt", tmp_path / "longer.pt", f"roberta_{name}", max_positions=48, way=way)
    assert not done.fresh and not done.left_out and len(done.extended) == 1
    after = started(tmp_path / "longer.pt", name)
    tokens = sentences()
    assert torch.equal(after(tokens)[0], before(tokens)[0]) == (way != "interpolate")
    after(sentences(batch=1, length=48))


def test_rows_up_to_position_0_stay_and_the_others_are_repeated_stretched_or_new():
    table = torch.tensor([[-2.0], [-1.0], [1.0], [2.0], [3.0]])  # theta_1, position 0, positions 1 to 3
    fresh = torch.arange(50.0, 58.0)[:, None]
    rows = {way: extend(table, fresh, 7, way)[:, 0].tolist() for way in ("copy", "interpolate", "random")}
    assert rows["copy"] == [-2, -1, 1, 2, 3, 1, 2, 3]
    assert rows["interpolate"] == pytest.approx([-2, -1, 1, 1.4, 1.8, 2.2, 2.6, 3])
    assert rows["random"] == [-2, -1, 1, 2, 3, 55, 56, 57]


def test_fewer_positions_than_the_table_has_are_one_line_and_write_nothing(tmp_path):
    trained("roberta_tupe_r", tmp_path / "start.pt")
    with pytest.raises(ValueError, match="--max-positions 16: .* has 32 absolute positions already; give more"):
        warm_start(tmp_path / "start.pt", tmp_path / "out.pt", "roberta_tupe_r", max_positions=16)
    assert [path.name for path in tmp_path.iterdir()] == ["start.pt"]


def test_the_command_extends_by_copying_and_says_so(tmp_path, capsys):
    trained("roberta_learned", tmp_path / "start.pt")
    arguments = ["warm-start", f"{tmp_path}/start.pt", f"{tmp_path}/out.pt", "--arch", "roberta_learned"]
    assert main([*arguments, "--max-positions", "48"]) == 0
    printed = capsys.readouterr().out
    assert "extended to 48 positions, copy: 1,200 numbers; tensors: 1" in printed and "--max-positions 48" in printed


def test_a_way_to_extend_without_a_length_is_one_line(tmp_path, capsys):
    command = ["warm-start", "start.pt", tmp_path / "out.pt", "--arch", "roberta_learned", "--extend", "random"]
    assert_refused(command, "--extend random changes nothing without --max-positions N: give both", capsys, tmp_path)


def test_what_is_given_wins_over_the_checkpoint_and_another_encoding_takes_nothing(tmp_path, caplog):
    trained("roberta_shaw", tmp_path / "start.pt", position_hparams="max_distance=5 heads=each")
    caplog.set_level(logging.INFO)
    start = {"max_positions": 48, "finetune_from_model": str(tmp_path / "start.pt")}
    model = roberta("roberta_shaw", position_hparams="max_distance=7", **start)
    assert "max_distance=7" in model.args.position_hparams and "heads=each" in model.args.position_hparams
    assert "position hyperparameters of" in caplog.text and "as they are not given: heads=each" in caplog.text
    other = roberta("roberta_m4", **start)
    assert "max_distance=47" in other.args.position_hparams


def test_settings_of_single_layers_are_taken_too_and_only_where_a_training_starts(tmp_path):
    """Also where a value is given of all that the layers have in common. The model that was fine-tuned is built again
    from its own settings, and so is another one that starts from it."""
    start, tuned = tmp_path / "start.pt", tmp_path / "tuned.pt"
    trained("roberta_rope", start, position_hparams="layer.2.base=70")
    every = "base=50 scaling=none factor=1 trained_length=None fraction=1 kind=partial"
    model = roberta("roberta_rope", position_hparams=every, finetune_from_model=str(start))
    assert model.args.position_hparams.endswith("layer.2.base=70")
    settings = {"position_hparams": "layer.2.base=10000", "finetune_from_model": str(start)}
    model = trained("roberta_rope", tuned, **settings)
    assert "layer.2" not in model.args.position_hparams
    assert "layer.2" not in roberta(**vars(model.args)).args.position_hparams
    assert "layer.2" not in warm_start(tuned, tmp_path / "other.pt", "roberta_rope").args.position_hparams


def test_fairseq_train_takes_the_hyperparameters_again_when_it_resumes(data, tmp_path):
    run = ["--max-update", 1, "--no-epoch-checkpoints"]
    log = tmp_path / "log"
    forked.train(masked_lm(data, tmp_path / "first", *run, arch="roberta_shaw"), log)
    start = tmp_path / "first" / "checkpoint_last.pt"
    longer = [f"--finetune-from-model={start}", "--max-positions=24"]
    forked.train(masked_lm(data, tmp_path / "second", *run, *longer, arch="roberta_shaw"), log)
    assert f"position hyperparameters of {start}, as they are not given: max_distance=15" in log.read_text()
    run[1] = 2
    forked.train(masked_lm(data, tmp_path / "second", *run, *longer, arch="roberta_shaw"), log)
    assert load_checkpoint(tmp_path / "second" / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 2
