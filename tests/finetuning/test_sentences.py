"""Fine-tuning on sentences and pairs: data, training on one and two ranks, predictions."""

import argparse
import json
import shlex
import shutil
from pathlib import Path

import forked
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from fairseq_data import USER_DIR
from glue_files import sentence, write_gpt2, write_tsv, write_vocabulary
from small_models import roberta, trained

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.checkpoints.tupe import import_tupe
from fairseq_relpos.criterions.metrics import check_names
from fairseq_relpos.criterions.sentence_scores import SentenceScores, SentenceScoresConfig
from fairseq_relpos.encodings import names_for
from fairseq_relpos.finetuning import predict as predicting
from fairseq_relpos.finetuning.glue import CONVENTIONS, TASKS, metric_of, task_of
from fairseq_relpos.finetuning.prepare import main, prepare, prepare_own
from fairseq_relpos.finetuning.start import flags, settings_of, task_on
from fairseq_relpos.finetuning.tables import Table
from fairseq_relpos.finetuning.vocabulary import Vocabulary
from fairseq_relpos.reports.training_log import read_run
from fairseq_relpos.tasks.cut_sentences import longest_first
from fairseq_relpos.tasks.sentence_pairs import SentencePairsConfig, SentencePairsTask
from fairseq_relpos.tasks.sequence_labels import read_split

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "golden"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """The data folder of a pretraining."""
    return write_vocabulary(tmp_path_factory.mktemp("pretraining"))


@pytest.fixture(scope="module")
def data(vocabulary, tmp_path_factory):
    """Prepared folders by task."""
    folder = tmp_path_factory.mktemp("glue")
    for name in ("CoLA", "RTE", "STS-B", "MNLI"):
        told = prepare(task_of(name), write_tsv(folder / "tsv" / name, name), vocabulary, folder / name)
        assert told.startswith(f"{name}: 24 train, 24 valid")
    return folder


def test_data_of_the_removed_flag_are_refused(tmp_path):
    write_vocabulary(tmp_path)
    (tmp_path / "manifest.json").write_text('{"settings": {"tupe_compat": true, "lowercase": true}}')
    with pytest.raises(ValueError, match="was prepared with --tupe-compat.*: prepare the text again"):
        Vocabulary(tmp_path)


def test_another_number_of_classes_than_the_data_have_is_refused(data):
    def classes(number):
        config = SentencePairsConfig(data=str(data / "MNLI"), num_classes=number)
        return SentencePairsTask.setup_task(config).cfg.num_classes

    assert classes(-1) == classes(3) == 3
    with pytest.raises(ValueError, match="--num-classes 5, but .* makes 3"):
        classes(5)


def training(data, save_dir, *more, metric="accuracy"):
    arguments = [
        *(data, "--user-dir", USER_DIR, "--task", "sentence_pairs", "--criterion", "sentence_scores", "--cpu"),
        *("--metrics", metric, "--best-checkpoint-metric", metric, "--maximize-best-checkpoint-metric"),
        *("--optimizer", "adam", "--lr", 0.01, "--batch-size", 8, "--required-batch-size-multiple", 1),
        *("--save-dir", save_dir, "--num-workers", 0, "--no-epoch-checkpoints", "--log-format", "json", *more),
    ]
    return [str(argument) for argument in arguments]


TINY = "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2".split()
TINY += "--dropout 0 --attention-dropout 0 --max-positions 32 --max-epoch 2".split()


def test_a_checkpoint_has_the_predictions_of_one_validation(data, tmp_path):
    more = ("--arch", "roberta_t5", *TINY, "--validate-interval-updates", 2)
    log = tmp_path / "log"
    forked.train(training(data / "RTE", tmp_path, *more), log)
    assert len(validations(log.read_text(), "accuracy")) > 2
    saved = load_checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]["metrics"]["valid"]
    kept = [meter["tensor"] for _, name, kind, meter in saved if kind == "ConcatTensorMeter"]
    assert [len(tensor) for tensor in kept] == [24, 24, 24]


def validations(log, metric):
    found = [json.loads(line[line.index("{") :]) for line in log.splitlines() if f'"valid_{metric}"' in line]
    return [float(entry[f"valid_{metric}"]) for entry in found]


@pytest.mark.parametrize(
    "first, second, room, kept",
    [
        *((3, 4, 10, (3, 4)), (9, 4, 10, (6, 4)), (2, 20, 10, (2, 8)), (9, 8, 10, (5, 5))),
        *((9, 8, 9, (5, 4)), (8, 9, 9, (5, 4)), (9, 3, 9, (6, 3))),
    ],
)
def test_of_a_pair_the_longer_sentence_is_cut(first, second, room, kept):
    assert longest_first(first, second, room) == kept
    while first + second > room:  # one token at a time
        first, second = (first - 1, second) if first > second else (first, second - 1)
    assert (first, second) == kept


def test_a_sample_is_what_the_pretraining_has_read_and_none_is_left_out(data):
    task = task_on(str(data / "RTE"), 1, 12)
    words, valid = task.dictionary, task.load_dataset("valid")
    samples = [valid[number]["net_input.src_tokens"].tolist() for number in range(len(valid))]
    assert len(samples) == 24 and all(len(tokens) <= 12 for tokens in samples)
    assert [words[token] for token in samples[0]] == [
        *("<s>", *(f"▁{word}" for word in sentence(0, 3).split())),
        *("</s>", "</s>", *(f"▁{word}" for word in sentence(1, 5 + 1).split()[: 12 - 7]), "</s>"),
    ]
    assert all(tokens.count(words.eos()) == 3 and tokens[-1] == words.eos() for tokens in samples)


def need_predictions_of_the_training(folder, data, log, metric, out):
    checkpoint = folder / "checkpoint_best.pt"
    found = predicting.run(str(checkpoint), str(data), out, ["valid", "test"])[0]["valid"]
    assert found[metric] == load_checkpoint(checkpoint)["extra_state"]["best"]
    assert found[metric] == pytest.approx(max(validations(log, metric)), abs=1e-5)


def test_results_of_a_training_that_the_loss_chose_name_the_scores_that_there_are(data):
    with pytest.raises(ValueError, match="metric 'loss' is none for labels that are classes: give accuracy"):
        predicting.majority(str(data / "RTE"), "valid", "loss")


def test_two_ranks_have_the_metrics_of_one_process_and_predictions_are_those_of_the_training(data, tmp_path):
    """The second rank has one batch less in each validation."""
    data, metric = data / "STS-B", "pearson"
    arguments = ["--arch", "roberta_t5", *TINY, "--batch-size-valid", "5", "--ddp-backend", "legacy_ddp"]
    runs = forked.ranks(2, training(data, tmp_path / "2", *arguments, metric=metric), tmp_path / "ranks")
    assert [rank.wait() for rank in runs] == [0, 0], runs[0].printed()
    need_predictions_of_the_training(tmp_path / "2", data, runs[0].printed(), metric, tmp_path)
    lines = [line.split("\t") for line in (tmp_path / "predictions.valid.tsv").read_text().splitlines()[1:]]
    assert [line[0] for line in lines] == [str(number) for number in range(24)]
    assert [float(line[2]) * 5 for line in lines] == [row % 6 for row in range(24)]
    server = [line.split("\t") for line in (tmp_path / "STS-B.tsv").read_text().splitlines()]
    assert server[0] == ["index", "prediction"] and [line[0] for line in server[1:]] == [line[0] for line in lines]
    assert all(0 <= float(line[1]) <= 5 for line in server[1:])


def test_the_server_gets_labels_by_name_and_numbers_of_its_own_range(tmp_path):
    def written(name, outputs, **task):
        predicting.write_for_server(tmp_path / name, task_of(name), argparse.Namespace(**task), torch.tensor(outputs))
        return [line.split("\t") for line in (tmp_path / name).read_text().splitlines()]

    numbers = written("STS-B", [[0.5], [-0.1], [1.2]], regression=True)
    assert numbers == [["index", "prediction"], ["0", "2.500"], ["1", "0.000"], ["2", "5.000"]]
    classes = written("RTE", [[1.0, 2.0], [0.5, 0.25]], regression=False, labels=["entailment", "not_entailment"])
    assert classes[1:] == [["0", "not_entailment"], ["1", "entailment"]]


@pytest.mark.parametrize("name", ["stock", "official", *names_for(causal=False)])
def test_every_encoding_is_fine_tuned_and_predicts_what_its_training_has_validated(name, data, tmp_path):
    """From a checkpoint of this encoding, of stock fairseq, or of the official TUPE code."""
    data = data / "RTE"
    if name == "official":
        data = shutil.copytree(data, tmp_path / "data")
        import_tupe(f"{GOLDEN}/tupe_r/checkpoint.pt", f"{tmp_path}/start.pt", f"{GOLDEN}/tupe_dict.txt")
        shutil.copy(tmp_path / "dict.txt", data)  # which the import has written
    else:
        trained("roberta" if name == "stock" else f"roberta_{name}", tmp_path / "start.pt")
    name = {"stock": "learned", "official": "tupe_r"}.get(name, name)
    given = argparse.Namespace(checkpoint=f"{tmp_path}/start.pt", data=str(data), **SCHEDULE)
    lines = flags(given)
    assert "--encoder-layers 3" in lines and f"--arch roberta_{name}" in lines
    words = shlex.split(" ".join(lines))
    more = [*words, "--max-update", 1, "--finetune-from-model", tmp_path / "start.pt"]
    more += ["--lr-scheduler", "polynomial_decay"]
    log = forked.train(training(data, tmp_path / "run", *more), tmp_path / "log")
    need_predictions_of_the_training(tmp_path / "run", data, log, "accuracy", tmp_path)


SCHEDULE = {"seed": 1, "batch": 8, "max_tokens": None, "max_positions": None}
SCHEDULE |= {"epochs": 2, "warmup": 0.5, "validations": 2}


def test_unpadded_layers_predict_the_same(data, tmp_path):
    arguments = ["--arch", "roberta_tupe_r", *TINY, "--log-file", tmp_path / "train.log"]
    log = forked.train(training(data / "RTE", tmp_path, *arguments), tmp_path / "log")
    assert not read_run(tmp_path / "train.log").in_nats  # the loss of this criterion may be a squared error
    paths = [str(tmp_path / "checkpoint_best.pt")]
    outputs = []
    for unpad in (False, True):
        overrides = {"unpad": unpad, "finetune_from_model": None}
        (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides=overrides)
        outputs.append(predicting.predict(model.eval(), cfg, task, "valid"))
    assert log and torch.allclose(*outputs, atol=1e-5) and not torch.equal(outputs[0][0], outputs[0][1])


@pytest.mark.parametrize("pooling", ["cls", "last", "mean", "max"])
def test_a_head_reads_the_vectors_of_the_real_tokens_that_pooling_names(pooling):
    model = roberta("roberta_t5", pooling=pooling).eval()
    model.register_classification_head("head", 3)
    words = model.encoder.dictionary
    tokens = torch.full((2, 7), words.pad())
    tokens[0], tokens[1, :4] = torch.arange(4, 11), torch.arange(6, 10)
    with torch.no_grad():
        found, vectors = (
            model(tokens, features_only=True, classification_head_name=name)[0] for name in ("head", None)
        )
        for row, length in enumerate((7, 4)):
            real = vectors[row, :length]
            one = {"cls": real[0], "last": real[-1], "mean": real.mean(0), "max": real.amax(0)}[pooling]
            expected = model.classification_heads["head"](one[None, None])[0]
            torch.testing.assert_close(found[row], expected)


def test_scores_of_classes_that_are_not_finite_are_predictions_of_no_class():
    task = argparse.Namespace(regression=False)
    criterion = SentenceScores(SentenceScoresConfig(metrics="accuracy"), task).eval()
    outputs = torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])
    sample = {"net_input": {}, "target": torch.tensor([1, 0]), "id": torch.arange(2), "ntokens": 2}
    predictions = criterion(lambda **_: (outputs, None), sample)[2]["predictions"]
    assert predictions[0] == 1 and predictions[1].isnan()


@pytest.mark.parametrize("regression", [False, True])
def test_the_loss_is_the_mean_over_the_samples_whatever_the_batches(regression):
    criterion = SentenceScores(SentenceScoresConfig(), argparse.Namespace(regression=regression))
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    each = -outputs.log_softmax(-1)[torch.arange(5), targets]
    if regression:
        outputs, targets = torch.randn(5, 1), torch.randn(5).double()
        each = (outputs[:, 0] - targets) ** 2
    with metrics.aggregate(new_root=True) as found:
        for rows in ([0, 1, 2, 3], [4]):
            sample = {"net_input": {}, "target": targets[rows], "ntokens": 9}
            loss, count, log = criterion(lambda outputs=outputs[rows], **_: (outputs, None), sample)
            assert loss.item() == pytest.approx(each[rows].sum().item()) and count == len(rows)
            criterion.reduce_metrics([log])
    assert found["loss"].avg == pytest.approx(each.mean().item())


def test_the_schedule_is_computed_from_the_batches_of_all_epochs(data, tmp_path):
    trained("roberta", tmp_path / "start.pt")  # of stock fairseq
    given = argparse.Namespace(checkpoint=f"{tmp_path}/start.pt", data=str(data / "RTE"), **SCHEDULE)
    assert flags(given)[:2] == ["--arch roberta_learned", "--encoder-layers 3"]
    ends = ["--max-epoch 2", "--total-num-update 6", "--warmup-updates 3"]
    assert flags(given)[-5:] == [*ends, "--validate-interval-updates 2", "--save-interval-updates 2"]
    given.max_tokens = 33  # batches of two or three samples
    assert flags(given)[-4] != ends[1]


def test_another_dictionary_than_that_of_the_checkpoint_is_an_error(data, tmp_path):
    (tmp_path / "pretraining").mkdir()
    trained("roberta_t5", tmp_path / "start.pt")
    folder = tmp_path / "other"
    shutil.copytree(data / "RTE", folder)
    (folder / "dict.txt").write_text("one 1\n")
    with pytest.raises(ValueError, match="has a dictionary of 45 words, .* has one of 6: prepare the data with"):
        settings_of(f"{tmp_path}/start.pt", str(folder))


@pytest.mark.parametrize(
    "name, replace, message",
    [
        ("RTE", {"dev": "index\tsentence1\tlabel\n1\ta\tentailment\n"}, "dev.tsv has no column sentence2: it has"),
        ("RTE", {"dev": "index\tsentence1\tsentence2\tlabel\n1\ta\tb\tmaybe\n"}, "line 2: the label 'maybe' is not"),
        ("STS-B", {"dev": "sentence1\tsentence2\tscore\na\tb\tx\n"}, "line 2: the label 'x' is not a number"),
        ("RTE", {"train": 'index\tsentence1\tsentence2\tlabel\n1\t"a\tb\n'}, "line 2: 3 values for 4 columns: mend"),
        ("RTE", {"train": ""}, "train.tsv is empty: get it again"),
    ],
)
def test_a_broken_file_is_one_line_and_nothing_is_written(name, replace, message, vocabulary, tmp_path):
    write_tsv(tmp_path / "tsv", name, **replace)
    with pytest.raises(ValueError, match=message):
        prepare(task_of(name), tmp_path / "tsv", vocabulary, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["tsv"]


def test_a_missing_file_and_a_missing_vocabulary_are_named(vocabulary, tmp_path):
    write_tsv(tmp_path / "tsv", "MNLI")
    with pytest.raises(ValueError, match=f"no dict.txt in {tmp_path}: give the folder of the pretraining's data"):
        prepare(task_of("MNLI"), tmp_path / "tsv", tmp_path, tmp_path / "out")
    for name in ("dev_matched", "dev_mismatched"):
        (tmp_path / f"tsv/{name}.tsv").unlink()
    with pytest.raises(ValueError, match="MNLI: no dev_matched.tsv, dev_mismatched.tsv in .*: get them first"):
        prepare(task_of("MNLI"), tmp_path / "tsv", vocabulary, tmp_path / "out")


def test_sentences_become_pieces_of_gpt2(tmp_path):
    words = Vocabulary(write_gpt2(tmp_path))
    symbols = [words.dictionary[number] for number in words.encode("cat he")]
    assert symbols == ["257", "220", str(ord("h") - 33), str(ord("e") - 33), "</s>"]
    told = prepare(task_of("STS-B"), write_tsv(tmp_path / "tsv", "STS-B"), tmp_path, tmp_path / "out")
    assert told == "STS-B: 24 train, 24 valid, 24 test"
    sample = task_on(str(tmp_path / "out"), 1, 32).load_dataset("train")[0]
    assert (sample["net_input.src_tokens"] != words.dictionary.unk()).all()


def test_quotation_marks_are_text_and_join_no_lines(tmp_path):
    (tmp_path / "a.tsv").write_text('sentence\tlabel\n"one\t1\ntwo" \u2028 three\t0\n', encoding="utf-8")
    assert Table(tmp_path / "a.tsv").column(["sentence"]) == ['"one', 'two" \u2028 three']


def test_files_without_a_header_are_read_by_their_place(tmp_path):
    (tmp_path / "a.tsv").write_text("gj04\t1\t\tThe sailors rode.\n", encoding="utf-8")
    table = Table(tmp_path / "a.tsv", task_of("CoLA").without_header)
    assert table.column(["sentence"]) == ["The sailors rode."] and table.column(["label"]) == ["1"]


LABELS = ["bad", "good"]
TABLE = "label\tsentence\nbad\tw1 w2\ngood\tw3\n"


def own_files(folder, **tables):
    """The flags of ``prepare own`` for these tables, train and valid by default."""
    for split, table in {"train": TABLE, "valid": TABLE, **tables}.items():
        (folder / f"{split}.tsv").write_text(table, encoding="utf-8-sig")
    return {split: folder / f"{split}.tsv" for split in ("train", "valid", *tables)}


def test_a_task_of_ones_own_is_read_as_single_sentences_pairs_or_numbers(vocabulary, tmp_path, capsys):
    files = own_files(tmp_path, test="more\tsentence\nx\tw5 w6 w7\n")
    flags_of_files = [word for split, path in files.items() for word in (f"--{split}", path)]
    words = [tmp_path / "one", "--vocabulary", vocabulary, *flags_of_files, "--labels", *LABELS]
    main(["own", *map(str, words)])
    assert capsys.readouterr().out == "own: 2 train, 2 valid, 1 test\n"
    task = task_on(str(tmp_path / "one"), 1, 32)
    valid, test = task.load_dataset("valid"), task.load_dataset("test")
    assert task.labels == LABELS and [valid[n]["target"] for n in (0, 1)] == [0, 1] and "target" not in test[0]
    assert task.dictionary.string(test[0]["net_input.src_tokens"]) == "▁w5 ▁w6 ▁w7"

    pair = "sentence2\tlabel\tsentence1\nw2 w3\t-1.5\tw1\n"
    assert prepare_own(tmp_path / "two", vocabulary, own_files(tmp_path, train=pair, valid=pair), None)
    task = task_on(str(tmp_path / "two"), 1, 32)
    (sample,) = task.load_dataset("train")
    assert task.regression and sample["target"] == -1.5
    words = [task.dictionary[token] for token in sample["net_input.src_tokens"]]
    assert words == "<s> ▁w1 </s> </s> ▁w2 ▁w3 </s>".split()


def test_a_table_of_ones_own_without_a_pretraining_becomes_words(tmp_path):
    files = own_files(tmp_path, valid=TABLE.replace("w3", "W2, w9"))
    assert prepare_own(tmp_path / "out", None, files, LABELS).startswith("own: 2 train, 2 valid;")
    valid = read_split(str(tmp_path / "out"), "valid")
    assert [str(valid["symbols"][n]) for n in valid["inputs"]] == ["w1", "w2", "w2", "[UNK]", "[UNK]"]
    assert valid["labels"].tolist() == [0, 1] and valid["lengths"].tolist() == [2, 3]
    with pytest.raises(ValueError, match="--numbers needs --vocabulary"):
        prepare_own(tmp_path / "out", None, files, None)


@pytest.mark.parametrize(
    "table, labels, message",
    [
        (TABLE, ["bad", "fine"], "train.tsv, line 3: the label 'good' is not bad, fine"),
        (TABLE, None, "train.tsv, line 2: the label 'bad' is not a number"),
        (TABLE.replace("bad", "nan"), None, "train.tsv, line 2: the label 'nan' is not a number"),
        (TABLE, ["bad"], "--labels bad: give two or more"),
        (TABLE, ["bad", "bad"], "--labels bad bad: give two or more, each once"),
        (TABLE.replace("\t", ","), LABELS, "train.tsv has no column sentence: it has label,sentence .*tabs"),
        (TABLE.replace("sentence", "sentence1"), LABELS, "train.tsv has no column sentence2: it has label, sentence1"),
        ("label\tsentence\n", LABELS, "train.tsv has no line after"),
        (TABLE.replace("w", "v"), LABELS, "100% of the tokens of train are not in .*dict.txt: give the vocabulary"),
    ],
)
def test_a_wrong_table_of_ones_own_is_one_line_and_nothing_is_written(table, labels, message, vocabulary, tmp_path):
    files = own_files(tmp_path, train=table)
    with pytest.raises(ValueError, match=message):
        prepare_own(tmp_path / "out", vocabulary, files, labels)
    assert {path.suffix for path in tmp_path.iterdir()} == {".tsv"}


def test_only_earlier_data_of_this_kind_are_replaced(vocabulary, tmp_path):
    files = own_files(tmp_path)
    with pytest.raises(ValueError, match=f"{vocabulary} has other files than prepared data.*: give a new folder"):
        prepare_own(vocabulary, vocabulary, files, LABELS)
    for _ in range(2):
        assert prepare_own(tmp_path / "out", vocabulary, files, LABELS) == "own: 2 train, 2 valid"
    inside = Path(shutil.copy(files["train"], tmp_path / "out" / "label" / "train.label"))
    with pytest.raises(ValueError, match=f"{inside} is in {tmp_path / 'out'}, which is written anew"):
        prepare_own(tmp_path / "out", vocabulary, {**files, "train": inside}, LABELS)
    with pytest.raises(ValueError, match="train.tsv is a file: give a new folder"):
        prepare_own(files["train"], vocabulary, files, LABELS)
    with pytest.raises(ValueError, match="no nowhere.tsv: correct the name"):
        prepare_own(tmp_path / "out", vocabulary, {**files, "valid": "nowhere.tsv"}, LABELS)
    assert inside.exists() and (vocabulary / "dict.txt").exists()


@pytest.mark.parametrize(
    "names, other",
    [
        (("task.json", "src/thesis.tex"), "src"),
        (("facts.json", "src/thesis.tex"), "src"),
        (("task.json", "dict.txt", "label/train.label", "label/checkpoint_best.pt"), "label/checkpoint_best.pt"),
        (("facts.json", "train.npz", "task.md"), "task.md"),
        (("dict.txt",), "dict.txt"),
    ],
)
def test_a_folder_with_any_other_file_is_not_replaced(names, other, vocabulary, tmp_path):
    """Neither by tables of one's own, for a pretraining or from scratch, nor by a task of GLUE."""
    files, out = own_files(tmp_path), tmp_path / "project"
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("mine")
    tsv = write_tsv(tmp_path / "tsv", "RTE")
    for write in (
        lambda: prepare_own(out, vocabulary, files, LABELS),
        lambda: prepare_own(out, None, files, LABELS),
        lambda: prepare(task_of("RTE"), tsv, vocabulary, out),
    ):
        with pytest.raises(ValueError, match=f"{out} has other files .*such as {other}: .*OUT"):
            write()
    assert all((out / name).read_text() == "mine" for name in names)
    assert not list(tmp_path.glob("*.part*"))


def test_prepared_data_are_replaced_and_what_killed_processes_left_is_removed(vocabulary, tmp_path):
    files, out = own_files(tmp_path), tmp_path / "new" / "out"
    for words in (vocabulary, vocabulary, None, None, vocabulary):
        prepare_own(out, words, files, LABELS)
        (out.parent / "out.part0123456789ab").mkdir()
    prepare_own(out, vocabulary, own_files(tmp_path, test=TABLE), LABELS)
    assert (out / "input0" / "test.idx").exists() and [*out.parent.iterdir()] == [out]


def test_each_paper_has_its_metrics():
    assert metric_of("CoLA", "tupe") == "mcc" and metric_of("STS-B", "tupe") == "pearson"
    assert metric_of("QQP", "huang") == "f1" and metric_of("QQP", "tupe") == "accuracy"
    assert metric_of("STS-B", "m4m") == "spearman" and metric_of("MRPC", "m4m") == "f1"
    for name, task in TASKS.items():
        for convention in CONVENTIONS:
            check_names([metric_of(name, convention)], task.regression)
    with pytest.raises(ValueError, match="no task 'SICK': give CoLA, "):
        task_of("SICK")
