"""The task, criterion and model for one answer per sequence."""

from argparse import Namespace

import numpy as np
import preloaded
import pytest
import pythons
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq_data import error_line, fairseq

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.criterions.sequence_labels import SequenceLabelsCriterion
from fairseq_relpos.encodings import names_for
from fairseq_relpos.reports.training_log import read_run
from fairseq_relpos.tasks.sequence_labels import SequenceLabelsConfig, SequenceLabelsTask

LENGTHS = [3, 7, 1, 7, 5, 2, 4, 7]
VECTORS = "vectors"


def write(folder, split="train", kind="symbols", **replace):
    random = np.random.default_rng(len(split))
    total = sum(LENGTHS)
    arrays = {
        "inputs": random.integers(0, 4, total),
        "lengths": np.array(LENGTHS),
        "labels": np.arange(len(LENGTHS)) % 3,
        "symbols": np.array(list("abcd")),
    }
    if kind == VECTORS:
        arrays["inputs"] = random.normal(size=(total, 2)).astype(np.float32)
        arrays["labels"] = random.normal(size=len(LENGTHS)).astype(np.float32)
        arrays["symbols"] = np.array([], dtype=str)
    arrays.update(replace)
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{split}.npz", **arrays)
    return folder


def task_on(folder):
    cfg = SequenceLabelsConfig(data=str(folder))
    cfg.seed = 1
    return SequenceLabelsTask.setup_task(cfg)


def small_model(task, name="shaw", **settings):
    args = Namespace(
        encoder_embed_dim=16, encoder_ffn_embed_dim=32, encoder_attention_heads=2, max_source_positions=8, **settings
    )
    ARCH_CONFIG_REGISTRY[f"sequence_encoder_{name}"](args)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[f"sequence_encoder_{name}"].build_model(args, task).eval()


def batch_of(task, ids, split="train"):
    data = task.datasets[split]
    return data.collater([data[i] for i in ids])


@pytest.fixture(params=["symbols", VECTORS])
def task(request, tmp_path):
    task = task_on(write(tmp_path, kind=request.param))
    task.load_dataset("train")
    return task


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_padding_changes_no_answer(task, pooling):
    model = small_model(task, pooling=pooling)
    together = model(**batch_of(task, range(8))["net_input"])
    assert together.shape == (8, task.num_labels)
    for i in range(8):
        alone = model(**batch_of(task, [i])["net_input"])
        torch.testing.assert_close(together[i : i + 1], alone, atol=1e-5, rtol=1e-5)


def test_vectors_enter_the_layers_as_they_are_projected(tmp_path):
    """Without the factor of fairseq's token embeddings."""
    task = task_on(write(tmp_path, kind=VECTORS))
    task.load_dataset("train")
    model, given, entered = small_model(task, "none"), batch_of(task, [1])["net_input"], []
    model.encoder.layers[0].register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    model(**given)
    torch.testing.assert_close(entered[0].transpose(0, 1), model.project_values(given["values"]))


@pytest.mark.parametrize("name", names_for(causal=False))
def test_every_encoding_trains_on_sequences(task, name):
    model = small_model(task, name).train()
    loss, count, log = SequenceLabelsCriterion(task, 0.04)(model, batch_of(task, range(8)))
    loss.backward()
    assert count == 8 and torch.isfinite(loss) and 0 <= log["right"] <= 8
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_a_number_is_right_within_the_tolerance(tmp_path):
    task = task_on(write(tmp_path, kind=VECTORS))
    task.load_dataset("train")
    sample = batch_of(task, range(8))
    offsets = torch.tensor([0.0, 0.039, -0.039, 0.041, -0.041, 1.0, 0.01, 0.02])
    answers = (sample["target"] + offsets).float()[:, None]
    loss, _, log = SequenceLabelsCriterion(task, 0.04)(lambda **_: answers, sample)
    assert log["right"] == 5
    assert loss.item() == pytest.approx(offsets.square().sum().item(), abs=1e-6)


def test_the_loss_of_classes_is_the_sum_of_their_cross_entropies(tmp_path):
    task = task_on(write(tmp_path))
    task.load_dataset("train")
    sample, answers = batch_of(task, range(8)), torch.randn(8, 3)
    loss, _, log = SequenceLabelsCriterion(task, 0.04)(lambda **_: answers, sample)
    assert loss.item() == pytest.approx(-answers.log_softmax(-1)[range(8), sample["target"]].sum().item())
    assert log["right"] == answers.argmax(-1).eq(sample["target"]).sum()


def test_symbols_keep_their_names(tmp_path):
    task = task_on(write(tmp_path))
    task.load_dataset("train")
    with np.load(tmp_path / "train.npz") as arrays:
        expected = arrays["symbols"][arrays["inputs"][3:10]].tolist()
    assert [task.dictionary[number] for number in task.datasets["train"][1]["inputs"]] == expected


def test_numbers_stay_what_they_are_in_half_precision(tmp_path):
    """fairseq halves every float32 tensor of a batch."""
    task = task_on(write(tmp_path, kind=VECTORS, labels=np.full(8, 300.7)))
    task.load_dataset("train")
    assert batch_of(task, range(8))["target"].dtype == torch.float64


def test_each_epoch_has_another_order_and_the_same_seed_the_same(task):
    data = task.datasets["train"]
    first = data.ordered_indices().tolist()
    assert sorted(first) == list(range(8))
    assert data.ordered_indices().tolist() == first
    orders = set()
    for epoch in range(2, 8):
        data.set_epoch(epoch)
        orders.add(tuple(data.ordered_indices()))
    assert len(orders) > 1


@pytest.mark.parametrize(
    "replace, words",
    [
        ({"lengths": np.array([1, 2])}, "2 lengths and 8 labels"),
        ({"lengths": np.array(LENGTHS) + 1}, "lengths (each at least 1) that add up to 44"),
        ({"symbols": np.array(["a", "b"])}, "names for 2 of them"),
        ({"labels": np.array([0, 1, -1, 0, 0, 0, 0, 0])}, "the label -1"),
        ({"symbols": np.array(["a", "b", "a", "c"])}, "the symbol 'a' twice"),
        ({"symbols": np.array(["a", "<pad>", "b", "c"])}, "the symbol '<pad>' twice, or one that is fairseq's own"),
        ({"symbols": np.array(["a", "<unk>", "b", "c"])}, "the symbol '<unk>' twice"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, replace, words):
    write(tmp_path, **replace)
    with pytest.raises(ValueError, match="train.npz") as error:
        task_on(tmp_path)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "kind, replace",
    [
        (VECTORS, {"inputs": np.zeros((36, 2)), "labels": np.zeros(8)}),
        ("symbols", {"labels": np.zeros(8, np.int32), "inputs": np.zeros(36, np.uint8)}),
        ("symbols", {"labels": np.zeros(8, bool)}),
        ("symbols", {"lengths": np.array(LENGTHS, np.uint8)}),
        ("symbols", {"lengths": np.array(LENGTHS, np.uint64)}),
    ],
)
def test_numpys_own_types_are_taken(tmp_path, kind, replace):
    task = task_on(write(tmp_path, kind=kind, **replace))
    task.load_dataset("train")
    model = small_model(task)
    loss, _, _ = SequenceLabelsCriterion(task, 0.1)(model, batch_of(task, [0, 1]))
    loss.backward()


def test_an_empty_file_is_named(tmp_path):
    (tmp_path / "train.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="train.npz cannot be read"):
        task_on(tmp_path)


def test_another_split_must_fit_to_train(tmp_path):
    task = task_on(write(tmp_path))
    write(tmp_path, "valid", symbols=np.array(list("abcde")))
    with pytest.raises(ValueError, match="valid.npz .* has symbols"):
        task.load_dataset("valid")
    write(tmp_path, "valid", labels=np.arange(8))
    with pytest.raises(ValueError, match="labels up to 7, train.npz up to 2"):
        task.load_dataset("valid")


def train(folder, *more):
    return fairseq(
        *f"train {folder} --user-dir fairseq_relpos --task sequence_labels --criterion sequence_labels".split(),
        *"--arch sequence_encoder_learned --encoder-embed-dim 16 --encoder-attention-heads 2".split(),
        *"--optimizer adam --lr 0.01 --batch-size 4 --max-epoch 1 --num-workers 0 --cpu".split(),
        *f"--save-dir {folder}/save".split(),
        *more,
    )


def test_bad_data_ends_fairseq_train_with_one_line(tmp_path):
    assert "give a folder with train.npz" in error_line(train(tmp_path))
    (tmp_path / "train.npz").write_bytes(b"PK cut short")
    assert "cannot be read" in error_line(train(tmp_path))


def test_a_sequence_longer_than_the_table_is_an_error(tmp_path):
    write(write(tmp_path), "valid")
    output = error_line(train(tmp_path, "--max-source-positions", 6))
    assert "invalid" in output and "6" in output


def test_a_trained_model_is_shown_without_the_end_of_a_sentence(tmp_path):
    """Also: the commands know the task, and its losses are what the log says."""
    write(write(tmp_path), "valid")
    more = "--arch", "sequence_encoder_t5", "--log-format", "json", "--log-file", tmp_path / "train.log"
    done = train(tmp_path, *more)
    assert done.returncode == 0, done.stdout
    shown = [tmp_path / "save" / "checkpoint_last.pt", "--text", "a b d", "--output", tmp_path / "a.png"]
    command = ["-m", "fairseq_relpos", "plot", "attention", *shown]
    assert "heads x 3 tokens" in pythons.output(*command, **preloaded.environment())
    (loss,) = read_run(tmp_path / "train.log").valid["valid"].values()
    assert f'"valid_loss": "{loss:g}"' in (tmp_path / "train.log").read_text()
