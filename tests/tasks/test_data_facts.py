"""Labels and vocabulary of the training, which a checkpoint of fine-tuning keeps."""

import json
from types import SimpleNamespace

import forked
import numpy as np
import pytest
from fairseq.data import Dictionary
from fairseq.tasks.sentence_prediction import SentencePredictionConfig
from fairseq_data import USER_DIR

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.exchange.to_transformers import labels_of
from fairseq_relpos.finetuning import classify
from fairseq_relpos.tasks.sentence_pairs import SentencePairsConfig, SentencePairsTask
from fairseq_relpos.tasks.sequence_labels import SequenceLabelsConfig, SequenceLabelsTask
from fairseq_relpos.tasks.tupe_data import TupeSentencePredictionTask

LABELS, SYMBOLS = ["bad", "good"], list("abcd")


def sequences(folder, labels=LABELS, symbols=SYMBOLS):
    """Data of sequence_labels."""
    folder.mkdir()
    for split in ("train", "valid"):
        inputs, lengths, classes = np.arange(16) % 4, np.full(8, 2), np.arange(8) % 2
        np.savez(folder / f"{split}.npz", inputs=inputs, lengths=lengths, labels=classes, symbols=symbols)
    if labels is not None:
        facts = {"labels": labels, "task": "T", "fold": None, "examples": {"train": 8, "valid": 8}}
        (folder / "facts.json").write_text(json.dumps(facts))
    return folder


def on_sequences(folder, **data):
    return SequenceLabelsTask.setup_task(SequenceLabelsConfig(data=str(sequences(folder, **data))))


def on_sentences(folder, labels=LABELS, symbols=SYMBOLS):
    folder.mkdir()
    (folder / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    if labels is not None:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    return SentencePairsTask.setup_task(SentencePairsConfig(data=str(folder)))


def on_official_data(folder, labels=LABELS, symbols=SYMBOLS):
    def dictionary(words):
        found = Dictionary()
        for word in words:
            found.add_symbol(word)
        return found

    names = None if labels is None else dictionary([*labels, "madeupword0000"])
    return TupeSentencePredictionTask(SentencePredictionConfig(data=str(folder)), dictionary(symbols), names)


@pytest.mark.parametrize("task_on", [on_sequences, on_sentences, on_official_data])
def test_a_trained_model_refuses_data_whose_numbers_mean_something_else(task_on, tmp_path):
    state = task_on(tmp_path / "data").state_dict()
    assert labels_of({"task_state": state, "cfg": None}, None, 2) == LABELS
    task_on(tmp_path / "same").load_state_dict(state)
    task_on(tmp_path / "old").load_state_dict({})
    with pytest.raises(ValueError, match="other has the labels 'good', 'bad', the model .* with 'bad', 'good': give"):
        task_on(tmp_path / "other", labels=LABELS[::-1]).load_state_dict(state)
    with pytest.raises(
        ValueError, match="words has the vocabulary sha256:.{8}, the model .* with sha256:.{8}: give"
    ) as error:
        task_on(tmp_path / "words", symbols=SYMBOLS[::-1]).load_state_dict(state)
    assert "\n" not in str(error.value)


def test_labels_without_names_are_not_compared(tmp_path):
    state = on_sequences(tmp_path / "data", labels=None).state_dict()
    on_sequences(tmp_path / "named").load_state_dict(state)
    assert labels_of({"task_state": {}, "cfg": SimpleNamespace(task=None)}, None, 2) is None


def test_other_labels_are_refused_by_a_resume_and_by_predictions_but_not_by_a_new_training(tmp_path):
    def arguments(data, save_dir, *more):
        return [
            *(data, "--user-dir", USER_DIR, "--task", "sequence_labels", "--criterion", "sequence_labels", "--cpu"),
            *("--arch", "sequence_encoder_none", "--encoder-layers", 1, "--encoder-embed-dim", 8),
            *("--encoder-attention-heads", 2, "--encoder-ffn-embed-dim", 8, "--max-source-positions", 8),
            *("--optimizer", "adam", "--lr", 0.01, "--batch-size", 8, "--num-workers", 0, "--no-epoch-checkpoints"),
            *("--save-dir", tmp_path / save_dir, *more),
        ]

    data, other = sequences(tmp_path / "data"), sequences(tmp_path / "other", labels=LABELS[::-1])
    last = tmp_path / "run/checkpoint_last.pt"
    forked.train(arguments(data, "run", "--max-epoch", 1), tmp_path / "first.log")
    assert load_checkpoint(last)["task_state"]["data_facts"]["labels"] == LABELS

    resumed = forked.Run(arguments(other, "run", "--max-epoch", 2, "--reset-dataloader"), tmp_path / "resumed.log")
    told = forked.error_of(resumed)
    assert f"{other} has the labels 'good', 'bad', {last} was trained with 'bad', 'good': give" in told
    with pytest.raises(ValueError, match="'good', 'bad', the model was trained with 'bad', 'good'"):
        classify.predict(str(tmp_path / "run"), str(last), str(other), "valid", {})
    valid = [other, "--user-dir", USER_DIR, "--task", "sequence_labels", "--path", last, "--batch-size", 8, "--cpu"]
    assert "'good', 'bad', the model was" in forked.error_of(forked.Run(valid, tmp_path / "v.log", command="validate"))

    forked.train(arguments(data, "run", "--max-epoch", 2), tmp_path / "same.log")
    for number, start in enumerate((["--finetune-from-model", last], ["--restore-file", last, "--reset-optimizer"])):
        forked.train(arguments(other, f"start{number}", "--max-epoch", 3, *start), tmp_path / f"{number}.log")
