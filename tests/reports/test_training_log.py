import json
import math

import pytest
from training_logs import finished, inner, log_of, valid

from fairseq_relpos.reports.loss_plot import unit_of
from fairseq_relpos.reports.run_settings import how_alike
from fairseq_relpos.reports.training_log import Run, read_run, tell_variants_apart


def test_losses_are_in_nats_by_split_and_update(tmp_path):
    end_of_epoch = {"epoch": 1, "train_loss": "9", "train_num_updates": "20"}
    run = read_run(
        log_of(tmp_path / "a", inner(10, 2), inner(20, 1), valid(20, 4), valid(20, 3, "valid1"), end_of_epoch)
    )
    assert run.train == {10: 2 * math.log(2), 20: math.log(2)}
    assert run.valid == {"valid": {20: 4 * math.log(2)}, "valid1": {20: 3 * math.log(2)}}
    assert (run.name, run.encoding, run.seed, run.parameters) == ("a", "tupe_r", 3, 12345)
    assert (run.updates, run.max_updates) == (20, 40)


def test_an_order_gap_is_in_nats_and_the_loss_of_electra_that_of_its_discriminator(tmp_path):
    folder = log_of(tmp_path / "a", inner(10, 50) | {"disc_loss": "2"})
    with open(folder / "train.log", "a") as log:
        log.write(json.dumps(valid(10, 60) | {"valid_disc_loss": "3", "valid_order_gap": "0.5"}) + "\n")
    settings = (folder / "train.log").read_text().replace("'model':", "'criterion': {'_name': 'electra'}, 'model':")
    (folder / "train.log").write_text(settings)
    run = read_run(folder)
    assert run.train == {10: 2 * math.log(2)} and run.valid == {"valid": {10: 3 * math.log(2)}}
    assert run.order_gap == {"valid": {10: 0.5 * math.log(2)}}


def test_the_loss_of_a_classification_is_that_of_a_sentence(tmp_path):
    """fairseq divides its nll_loss by the tokens of the input."""
    entries = [valid(10, 0.5) | {"valid_nll_loss": "0.0125"}]
    folder = log_of(tmp_path / "a", *entries)
    settings = (folder / "train.log").read_text()
    assert read_run(folder).losses == {"valid": {10: 0.0125 * math.log(2)}}
    named = settings.replace("'model':", "'criterion': {'_name': 'sentence_prediction'}, 'model':")
    (folder / "train.log").write_text(named)
    run = read_run(folder)
    assert run.losses == {"valid": {10: 0.5 * math.log(2)}} and unit_of(run) == "nats per sentence"


def test_a_resumed_run_goes_on_and_what_it_did_twice_counts_once(tmp_path):
    log_of(tmp_path / "a", inner(10, 2, wall=5), inner(20, 1, wall=9))
    run = read_run(log_of(tmp_path / "a", inner(20, 3, wall=12), inner(30, 1, wall=20)))
    assert run.train == {10: 2 * math.log(2), 20: 3 * math.log(2), 30: math.log(2)}
    assert run.seconds == 20


def test_the_time_of_a_resumed_run_is_that_of_all_its_starts(tmp_path):
    """As fairseq logs it: after a resume its wall stays at 0."""
    log_of(tmp_path / "a", inner(10, 2, wall=5), inner(20, 1, wall=9))
    resumed = [inner(updates, 1, wall=0) | {"train_wall": "4"} for updates in (30, 40)]
    run = read_run(log_of(tmp_path / "a", *resumed))
    assert run.seconds == 9 + 8  # of the second start only the updates are known
    run = log_of(tmp_path / "a", inner(50, 1, wall=0))
    with open(run / "train.log", "a") as log:
        log.write("done training in 40.0 seconds\n")
    assert read_run(run).seconds == 9 + 8 + 40


def test_of_several_trainings_in_one_log_the_last_one_counts(tmp_path):
    log_of(tmp_path / "a", inner(10, 2, wall=5), valid(10, 5), inner(20, 1, wall=90), valid(20, 4, "long-ago"), seed=1)
    run = read_run(log_of(tmp_path / "a", inner(10, 3, wall=12), valid(10, 6), seed=2))
    assert run.train == {10: 3 * math.log(2)}
    assert run.valid == {"valid": {10: 6 * math.log(2)}}
    assert (run.seed, run.seconds, run.earlier_settings) == (2, 12, [])


def test_a_run_that_goes_on_from_an_earlier_checkpoint_forgets_what_came_after_it(tmp_path):
    log_of(tmp_path / "a", inner(10, 2), valid(10, 5), inner(20, 1), inner(30, 1), valid(30, 4))
    run = read_run(log_of(tmp_path / "a", inner(20, 3)))
    assert run.updates == 20 and run.valid == {"valid": {10: 5 * math.log(2)}}
    assert len(run.earlier_settings) == 1


def test_a_split_may_have_any_name(tmp_path):
    folder = log_of(tmp_path / "a", inner(10, 2))
    with open(folder / "train.log", "a") as file:
        file.write("epoch 001 | valid on 'valid-news.en' subset | loss 5 | num_updates 10\n")
    assert read_run(folder).valid == {"valid-news.en": {10: 5 * math.log(2)}}


def test_a_line_that_is_being_written_is_left_for_later(tmp_path):
    folder = log_of(tmp_path / "a", inner(10, 2))
    with open(folder / "train.log", "a") as file:
        file.write('{"epoch": 1, "loss": "1", "num_upd')
    assert read_run(folder).updates == 10


@pytest.mark.parametrize("content", [None, "", "hello\n"])
def test_no_log_of_fairseq_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "train.log").write_text(content)
    with pytest.raises(ValueError, match="train.log.*--log-file"):
        read_run(tmp_path)


def test_runs_with_other_hyperparameters_are_no_seeds_of_one_another(tmp_path):
    def run(name, seed, **settings):
        text = "".join(f"{key}={value!r}, " for key, value in settings.items())
        folder = log_of(tmp_path / name, inner(10, 2), seed=seed)
        log = folder / "train.log"
        log.write_text(log.read_text().replace("position_encoding='tupe_r', ", text))
        return read_run(folder)

    runs = [
        run("a", 1, position_encoding="t5", position_hparams="", position_layers="all"),
        run("b", 1, position_encoding="t5", position_hparams="num_buckets=16", position_layers="first"),
        run("c", 1, position_encoding="encoder=t5,decoder=alibi", position_hparams="", position_layers="all"),
        run("d", 1, position_encoding="t5", attention_window="32;every.2=none", randomized_positions=64),
    ]
    tell_variants_apart(runs)
    assert [r.encoding for r in runs] == [
        "t5 (defaults)",
        "t5 (num_buckets=16 layers first)",
        "encoder=t5,decoder=alibi",
        "t5 (window 32;every.2=none randomized 64)",
    ]
    with pytest.raises(ValueError, match="x and y are both m4 with seed 2"):
        tell_variants_apart([Run("x", "m4", 2), Run("y", "m4", 2)])


def test_what_runs_differ_in_beside_their_encoding():
    command = (
        "'launch' '--nnodes' '{1}' '--' 'd' '--user-dir' '.' '--arch' 'roberta_{0}' '--adam-betas' '(0.9, 0.98)' "
        "'--seed' '{1}' '--lr' '{2}'"
    )
    alike = [command.format("t5", 1, "1e-3"), command.format("shaw", 2, "1e-3") + " '--save-dir' 'x'"]
    alike.append(command.format("sinusoidal", 1, "1e-3") + " '--scale-embedding'")
    assert how_alike(alike, "encoding and seed") == "All runs differ in encoding and seed alone."
    told = how_alike([*alike, command.format("t5", 3, "2e-3") + " '--fp16'"], "encoding and seed")
    assert told == (
        "**The runs differ in more than encoding and seed**: `--fp16` (given, not given), `--lr` (1e-3, 2e-3)."
    )
    other_data = alike[0].replace("'d'", "'e'")
    assert "`--data` (d, e)" in how_alike([alike[0], other_data], "encoding")
    assert "alone" in how_alike([alike[0], command.format("t5", 1, "2e-3")], "encoding", also=["lr"])


#: as --log-format simple prints them, which fairseq takes where there is no terminal
SIMPLE = """\
2026-11-22 19:41:52 | INFO | train_inner | epoch 001:      4 / 7 loss=5.5, wps=4547.6, ups=8.88, num_updates=4, \
lr=0.01, gb_free=9.5, wall=9
2026-11-22 19:41:53 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.25 | nll_loss 5 | num_updates 7
2026-11-22 19:41:53 | INFO | train | epoch 001 | loss 5.563 | num_updates 7 | lr 0.01 | wall 10
rank   0: capabilities =  8.0  ; total memory = 39.500 GB ; name = A GPU
"""


def test_a_log_for_people_says_what_one_in_json_says(tmp_path):
    entries = [inner(4, 5.5, wall=9) | {"wps": "4547.6", "gb_free": "9.5"}]
    entries.append(valid(7, 5.25) | {"valid_nll_loss": "5"})
    one = read_run(log_of(tmp_path / "json", *entries))
    log = log_of(tmp_path / "simple") / "train.log"
    log.write_text(log.read_text() + SIMPLE)
    other = read_run(log)
    for name in ("train", "valid", "losses", "tokens_per_second", "speed", "seconds", "gb_free", "parameters"):
        assert getattr(one, name) == getattr(other, name), name
    assert other.losses == {"valid": {7: pytest.approx(5 * math.log(2))}} and other.gb_total == 39.5


def test_a_run_of_a_gpu_that_goes_on_without_one_keeps_the_least_memory_of_the_gpu(tmp_path):
    of_the_gpu = inner(4, 5.5) | {"gb_free": "9.5"}
    run = read_run(log_of(tmp_path / "run", of_the_gpu, inner(8, 5.4) | {"gb_free": None}))
    assert run.gb_free == 9.5 and sorted(run.train) == [4, 8]


def test_settings_have_the_names_of_flags_and_are_of_the_training_alone(tmp_path):
    found = read_run(finished(tmp_path / "a", "t5", 1, lr="0.001, 0.0005")).settings
    assert found["arch"] == "roberta_t5" and found["criterion"] == "masked_lm" and found["lr"] == "0.001 0.0005"
    assert found["sample-break-mode"] == "none" and found["fp16"] == "False"
    assert not found.keys() & {"user-dir", "device-id"}


def test_a_run_has_ended_when_its_last_start_has(tmp_path):
    folder = finished(tmp_path / "a", "t5", 1)
    assert read_run(folder).ended and read_run(folder).vocabularies == {40}
    log_of(folder, inner(50, 4))
    assert not read_run(folder).ended
