"""Reading comprehension with any encoding: task, head, criterion and what is predicted afterwards."""

import json
import math
import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import forked
import numpy as np
import pytest
import small_models
import tiny_squad
import torch
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from fairseq_relpos.criterions.span_prediction import SpanPredictionCriterion, logits_of
from fairseq_relpos.finetuning import squad, squad_data
from fairseq_relpos.finetuning.errors import in_one_line
from fairseq_relpos.reports.training_log import read_run
from fairseq_relpos.tasks.span_prediction import SpanPredictionConfig, SpanPredictionTask

WINDOW = 32
SIZES = {
    **{**small_models.SIZES, **small_models.NO_DROPOUT, "max_positions": WINDOW, "max_source_positions": WINDOW},
    **{"encoder_layers": 1, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 32, "encoder_attention_heads": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_squad.data(tmp_path_factory.mktemp("data"))


def task_on(folder, **settings):
    cfg = SpanPredictionConfig(
        data=str(folder), **{"window": WINDOW, "doc_stride": 8, "max_query_length": 12, **settings}
    )
    cfg.seed = 1
    return SpanPredictionTask.setup_task(cfg)


@pytest.fixture(scope="module")
def task(folder):
    task = task_on(folder)
    task.load_dataset("train")
    task.load_dataset("valid")
    return task


def arguments(arch, **settings):
    args = Namespace(**{**SIZES, "arch": arch, "_name": arch, **settings})
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def pretrained(arch, task, seed=3):
    """A RoBERTa without a head for answers, as a masked LM has it."""
    torch.manual_seed(seed)
    words = SimpleNamespace(source_dictionary=task.dictionary)
    return ARCH_MODEL_REGISTRY[arch].build_model(arguments(arch), words)


def batch_of(task, split="valid"):
    data = task.datasets[split]
    return data.collater([data[i] for i in range(len(data))])


def logits(model, task):
    with torch.no_grad():
        return logits_of(model.eval(), batch_of(task))


@pytest.mark.parametrize("arch", ["roberta_base", "roberta_learned", "roberta_tupe_r", "roberta_shaw"])
def test_fine_tuning_starts_from_a_pretraining_and_is_read_again(task, arch):
    """Also fairseq's own RoBERTa."""
    start = pretrained(arch, task)
    model = task.build_model(arguments(arch))
    model.load_state_dict({name: value.clone() for name, value in start.state_dict().items()}, strict=True)
    word = "encoder.sentence_encoder.embed_tokens.weight"
    assert torch.equal(model.state_dict()[word], start.state_dict()[word])
    loss, count, log = SpanPredictionCriterion(task)(model.train(), batch_of(task, "train"))
    loss.backward()
    assert torch.isfinite(loss) and 0 <= log["right"] <= count
    assert all(p.grad is not None for name, p in model.named_parameters() if p.requires_grad), "for DDP"
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5).step()
    again = task.build_model(arguments(arch))
    assert not torch.equal(logits(again, task), logits(model, task))
    again.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(logits(again, task), logits(model, task))


def test_a_sequence_encoder_reads_from_scratch(task):
    model = task.build_model(arguments("sequence_encoder_t5")).train()
    loss, count, _ = SpanPredictionCriterion(task)(model, batch_of(task))
    loss.backward()
    assert torch.isfinite(loss) and count == len(task.datasets["valid"])
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_a_window_has_question_text_and_target(task):
    data = task.datasets["train"]
    words = task.dictionary
    seen = set()
    for index, window in enumerate(data.windows):
        sample, offset = data[index], data.offset(index)
        tokens = sample["tokens"].tolist()
        assert len(tokens) == data.size(index) <= WINDOW
        assert [tokens[0], *tokens[offset - 2 : offset], tokens[-1]] == [words.bos(), *[words.eos()] * 3]
        assert sample["allowed"].nonzero()[:, 0].tolist() == [0, *range(offset, len(tokens) - 1)]
        first, last = sample["target"].tolist()
        assert (first, last) == (0, 0) or sample["allowed"][first] and first <= last
        if first:
            seen.add(window.question)
    assert seen == set(range(5))


def test_a_training_set_of_any_name_is_one(task, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "data")
    (tmp_path / "data/train.npz").rename(tmp_path / "data/train1.npz")
    other = task_on(tmp_path / "data")
    other.cfg.train_subset = "train1"
    other.load_dataset("train1")
    one, theirs = other.datasets["train1"], task.datasets["train"]
    assert len(one) == len(theirs) and list(one.ordered_indices()) == list(theirs.ordered_indices())


def test_padding_and_batches_change_no_answer(task):
    torch.manual_seed(0)
    model = task.build_model(arguments("roberta_tupe_r")).eval()
    one, loss_of_one, _ = squad.logits_of_split(model, task, "valid", batch=1)
    all_, loss, _ = squad.logits_of_split(model, task, "valid", batch=100)
    assert loss == pytest.approx(loss_of_one, abs=1e-5)
    for a, b, window in zip(one, all_, task.datasets["valid"].windows):
        assert a.shape == (1 + window.length, 2)
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_loss_is_a_mean_of_both_ends_over_the_places_of_the_text(task):
    sample = batch_of(task)
    logits_BT2 = torch.randn(*sample["net_input"]["src_tokens"].shape, 2).masked_fill(~sample["allowed"][..., None], 20)
    first, last = sample["target"][:2].tolist()
    logits_BT2[0, first, [0, 1]] = 9  # right at both ends
    logits_BT2[1, last[0], 0], logits_BT2[1, last[1], 1] = 9, -9  # at one
    loss, right = 0.0, []
    for row, allowed, target in zip(logits_BT2, sample["allowed"], sample["target"]):
        places, kept = allowed.nonzero()[:, 0].tolist(), row[allowed]
        ends = [places.index(place) for place in target.tolist()]
        loss -= kept.log_softmax(0)[ends, [0, 1]].mean().item()
        right.append(kept.argmax(0).tolist() == ends)
    found, count, log = SpanPredictionCriterion(task)(lambda **_: logits_BT2, sample)
    assert found.item() == pytest.approx(loss) and right[:2] == [True, False] and log["right"] == sum(right)
    with metrics.aggregate(new_root=True) as meters:
        SpanPredictionCriterion.reduce_metrics([log])
    assert meters["loss"].avg == pytest.approx(loss / count / math.log(2))
    assert meters["exact"].avg == pytest.approx(sum(right) / count)


def test_a_window_longer_than_the_positions_is_refused(folder):
    with pytest.raises(ValueError, match="--window 40 exceeds the model's 32 positions: give --window 32 or less, or"):
        task_on(folder, window=40).build_model(arguments("roberta_learned"))


def test_data_of_another_dictionary_are_refused(folder, tmp_path):
    (tmp_path / "train.npz").write_bytes((folder / "train.npz").read_bytes())
    (tmp_path / "dict.txt").write_text("a 1\n")
    with pytest.raises(ValueError, match="train.npz .* was made with a dictionary of .* prepare the data again"):
        task_on(tmp_path).load_dataset("train")


def training(folder, save, *more, arch="roberta_tupe_r"):
    sizes = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    flags = (
        f"{folder} --user-dir fairseq_relpos --task span_prediction --criterion span_prediction --arch {arch} {sizes} "
        f"--window {WINDOW} --doc-stride 8 --max-query-length 12 --max-positions {WINDOW} --optimizer adam --lr 0.01 "
        f"--max-epoch 2 --cpu --num-workers 0 --save-dir {save} --no-epoch-checkpoints --log-format json --seed 1 "
        f"--dropout 0 --attention-dropout 0 --required-batch-size-multiple 1 --log-file {save}.log --batch-size 4"
    )
    return [*flags.split(), *more]


def last_losses(log):
    return list(read_run(log).valid["valid"].values())[-1]


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """A checkpoint that knows its training data, which are its validation data, too. Beside it: out.log, run.log."""
    place = tmp_path_factory.mktemp("run")
    more = "--max-epoch 80 --validate-interval 80 --save-interval 80 --batch-size 16 --encoder-embed-dim 32".split()
    forked.train(training(folder, place / "run", *more), place / "out.log")
    return place / "run" / "checkpoint_last.pt"


def predicted(checkpoint, folder, prefix, questions):
    """The predictions, checked: one for each question, in order, from its text."""
    squad.main(["predict", str(checkpoint), str(folder), "--output", str(prefix)])
    predictions = json.loads(Path(f"{prefix}.predictions.json").read_text())
    assert list(predictions) == [name for name, *_ in questions]
    contexts = {name: tiny_squad.CONTEXTS[context] for name, _, context, _ in questions}
    assert all(text in contexts[name] for name, text in predictions.items())
    return predictions, json.loads(Path(f"{prefix}.loss.json").read_text())


def test_a_model_that_knows_its_training_data_answers_as_well_as_tokens_can(folder, run, tmp_path):
    """From logits back to characters, through windows that overlap. The loss is that of the training's validation."""
    predictions, loss = predicted(run, folder, tmp_path / "valid", tiny_squad.QUESTIONS)
    assert all(predictions.values())
    assert loss["loss"] == pytest.approx(last_losses(run.parents[1] / "run.log"), abs=2e-5)
    told = squad_data.encode(folder / "valid.json", str(folder), tmp_path / "again")
    gold, prefix = str(folder / "valid.json"), str(tmp_path / "valid")
    assert squad.scores(gold, prefix)["exact_match"] == told["oracle_em"] > 70
    found = squad.scores(gold, prefix, "cmrc")
    assert found["average"] == (found["f1"] + found["exact_match"]) / 2


def test_the_data_that_are_given_are_predicted(folder, run, tmp_path):
    """Not those of the training, which the checkpoint names."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "dict.txt").write_bytes((folder / "dict.txt").read_bytes())
    for kind in ("npz", "json"):
        (data / f"other.{kind}").write_bytes((folder / f"valid.{kind}").read_bytes())
    squad.main(["predict", str(run), str(data), "--split", "other", "--output", str(tmp_path / "other")])
    assert len(json.loads((tmp_path / "other.predictions.json").read_text())) == len(tiny_squad.QUESTIONS)


def test_from_training_to_scores_with_questions_without_an_answer(tmp_path):
    questions = [*tiny_squad.QUESTIONS, ("q5", "Who counted the stars before?", 1, None)]
    folder = tiny_squad.data(tmp_path / "data", "v2.0", train=questions, valid=questions)
    forked.train(training(folder, tmp_path / "run"), tmp_path / "out.log")
    checkpoint, prefix = tmp_path / "run" / "checkpoint_last.pt", tmp_path / "valid"
    _, loss = predicted(checkpoint, folder, prefix, questions)
    assert loss["loss"] == pytest.approx(last_losses(tmp_path / "run.log"), abs=2e-5)
    results = tmp_path / "results.json"
    given = ["evaluate", str(folder / "valid.json"), str(prefix), "--results", str(results), "--fact", "seed=1"]
    squad.main(given)
    found = json.loads(results.read_text())
    assert found["seed"] == "1" and found["metrics"]["loss"] == loss["loss"] and "f1" in found["metrics"]
    squad.main([*given, "--split", "test"])
    told = json.loads(results.read_text())["test"]
    assert told["tuned_f1"] == told["best_f1"] == found["metrics"]["best_f1"] >= told["f1"]
    assert told["tuned_thresh"] == told["best_f1_thresh"] and told["HasAns_total"] == 5


def test_two_ranks_validate_as_one(folder, tmp_path):
    runs = forked.ranks(2, training(folder, tmp_path / "two", "--max-update", "1"), tmp_path / "ranks")
    assert [run.wait() for run in runs] == [0, 0], runs[0].printed()
    checkpoint = tmp_path / "two" / "checkpoint_last.pt"
    _, loss = predicted(checkpoint, folder, tmp_path / "valid", tiny_squad.QUESTIONS)
    assert loss["loss"] == pytest.approx(last_losses(tmp_path / "two.log"), abs=1e-5)


def test_what_cannot_be_predicted_is_one_line(folder, run, tmp_path, capsys):
    def refused(*arguments):
        with pytest.raises(SystemExit) as end, in_one_line():
            squad.main(list(map(str, arguments)))
        line = capsys.readouterr().err.strip() if end.value.code == 76 else end.value.code
        assert "\n" not in line
        return line

    def changed(name, change):
        state = torch.load(run, weights_only=False)
        change(state)
        torch.save(state, tmp_path / name)
        return refused("predict", tmp_path / name, folder, "--output", tmp_path / "x")

    assert "no checkpoint" in refused("predict", tmp_path / "no.pt", folder, "--output", "x")
    line = refused("predict", "x.pt", folder, "--output", "x", "--split", "train")
    assert "--split train: its windows leave questions out" in line
    assert refused("evaluate", folder / "valid.json", tmp_path / "x").endswith("x.predictions.json: predict first")
    line = changed("lm.pt", lambda state: state["cfg"]["task"].update(_name="masked_lm"))
    assert "lm.pt was trained with --task masked_lm: give one of --task span_prediction" in line
    line = changed("nan.pt", lambda state: state["model"]["span_head.weight"].fill_(float("nan")))
    assert "the run has diverged" in line
    (tmp_path / "data").mkdir()
    for name in ("dict.txt", "train.npz", "valid.npz"):
        (tmp_path / "data" / name).write_bytes((folder / name).read_bytes())
    tiny_squad.write(tmp_path / "data" / "valid.json", tiny_squad.squad(tiny_squad.QUESTIONS[1:]))
    line = refused("predict", run, tmp_path / "data", "--output", tmp_path / "x")
    assert "valid.json and valid.npz have other questions" in line
    assert not list(tmp_path.glob("x*"))
