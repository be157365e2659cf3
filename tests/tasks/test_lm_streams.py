"""--task lm_streams: every token once, in the order of its stream, through fairseq's commands."""

import collections
import re

import forked
import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm, train, validate  # noqa: F401  forked runs find them imported
from fairseq_data import USER_DIR, WORDS, fairseq_ok, language_modeling

from fairseq_relpos import segments
from fairseq_relpos.models.language_model import RelPosLanguageModel

DOCUMENTS = [
    "w1 w2 w3\nw4 w5 w6 w7\n",
    "w8 w9 w10 w11 w12 w13 w14 w15 w16\nw17 w18 w19 w20\nw21 w22\n",
    "w23\n",
    "w24 w25 w26 w27 w28 w29\n" * 2,
]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Documents with an empty line between two of them; ``test`` has two empty lines somewhere."""
    folder = tmp_path_factory.mktemp("documents")
    for split, between in (("train", "\n"), ("valid", "\n"), ("test", "\n\n")):
        (folder / split).write_text(between.join(DOCUMENTS), encoding="utf-8")
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS), encoding="utf-8")
    texts = [text for split in ("train", "valid", "test") for text in (f"--{split}pref", folder / split)]
    fairseq_ok("preprocess", "--only-source", "--srcdict", folder / "dict.txt", *texts, "--destdir", folder / "bin")
    return folder / "bin"


def training(data, save_dir, *more, arch="transformer_lm_transformer_xl", streams=4):
    of_streams = ["--tokens-per-sample", 8, "--batch-size", streams, "--dropout", 0]
    return language_modeling(data, save_dir, *of_streams, *more, arch=arch, task="lm_streams")


def task_of(data, *more):
    """The task as fairseq-train sets it up, with its datasets."""
    arguments = training(data, "nowhere", *more)
    arguments = [a for i, a in enumerate(arguments) if "--user-dir" not in arguments[max(0, i - 1) : i + 1]]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    task.load_dataset("valid")
    return task


def dealt(task, split, ranks, rows, epoch=1, **how):
    """The batches of an epoch for each rank."""
    found = []
    for rank in range(ranks):
        batches = task.get_batch_iterator(
            task.dataset(split), max_sentences=rows, num_shards=ranks, shard_id=rank, epoch=epoch, **how
        )
        found.append(list(batches.next_epoch_itr(shuffle=True)))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_every_token_is_a_target_once_and_streams_keep_their_order(data, ranks, rows):
    task = task_of(data)
    text = torch.cat([task.dataset("valid").dataset.dataset[i] for i in range(24)]).tolist()
    batches = dealt(task, "valid", ranks, rows)
    assert len({len(mine) for mine in batches}) == 1, "a rank would wait for the others"
    targets = {}
    for mine in batches:
        last = collections.defaultdict(lambda: None)
        for batch in filter(None, mine):
            place = batch["net_input"]["place"]
            ids = batch["id"].tolist()
            for row, (segment, tokens) in enumerate(zip(ids, batch["target"])):
                stream = place.stream, row
                before = last[stream]
                assert place.goes_on[row] == (before is not None) == (place.step > 0)
                assert before is None or segment == before + 1
                last[stream] = segment
                assert segment not in targets
                targets[segment] = tokens[tokens.ne(1)].tolist()
    assert sum((targets[segment] for segment in sorted(targets)), []) == text


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_update_freq_splits_the_streams_and_not_the_time(data, passes):
    task = task_of(data, "--update-freq", passes)
    (batches,) = dealt(task, "train", ranks=1, rows=4)
    (whole,) = dealt(task_of(data), "train", ranks=1, rows=4)
    assert len(batches) == passes * len(whole)
    for update, expected in enumerate(whole):
        parts = [part for part in batches[update * passes : (update + 1) * passes] if part]
        assert torch.equal(torch.cat([part["id"] for part in parts]), expected["id"])
        assert len({part["net_input"]["place"].step for part in parts}) == 1


def test_update_freq_may_change_from_epoch_to_epoch(data):
    task = task_of(data, "--update-freq", "1,2")
    first, second, third = (dealt(task, "train", ranks=1, rows=4, epoch=epoch)[0] for epoch in (1, 2, 3))
    assert len(second) == len(third) == 2 * len(first)


def test_documents_begin_a_segment_and_remember_nothing(documents):
    task = task_of(documents, "--reset-at-document", "--batch-size", 2)
    whole = task_of(documents, "--batch-size", 2)
    text = torch.cat([whole.dataset("train")[i]["target"] for i in range(len(whole.dataset("train")))])
    blocks = task.dataset("train")
    assert torch.equal(torch.cat([blocks[i]["target"] for i in range(len(blocks))]), text)
    # 3 + 1 + 4 + 1 words and line ends, and the end of the empty line
    assert [len(blocks[i]["target"]) for i in range(len(blocks))] == [8, 2, 8, 8, 3, 3, 8, 6]
    begins = [True, False, True, False, False, True, True, False]
    assert blocks.dataset.begins_document.tolist() == begins
    (batches,) = dealt(task, "train", ranks=1, rows=2)
    going_on = {}
    for batch in batches:
        going_on |= dict(zip(batch["id"].tolist(), batch["net_input"]["place"].goes_on))
    # the second stream begins at segment 4
    assert going_on == {i: not begins[i] and i != 4 for i in range(8)}
    # the first token of a document is predicted from the end of the empty line before it
    assert blocks[2]["source"][0] == 2


def test_one_line_says_what_cannot_be(data, documents, tmp_path):
    for more, what in (
        (["--update-freq", 3], "--update-freq 3: it splits the 4 streams of a rank (--batch-size)"),
        (["--update-freq", "1,3"], "--update-freq 3: it splits the 4 streams"),
        (["--batch-size", 9999], "train has 78 segments of --tokens-per-sample tokens, fewer than the 9,999 streams"),
        (["--batch-size-valid", 50], "give --batch-size-valid (outside of a training: --batch-size) 29 or less"),
        (["--max-tokens", 100], "--max-tokens 100: a batch of --task lm_streams has a segment"),
        (["--max-tokens-valid", 99], "--max-tokens-valid 99: a batch of --task lm_streams has a segment"),
        (["--sample-break-mode", "eos"], "--sample-break-mode eos: --task lm_streams cuts the text"),
        (["--add-bos-token"], "--add-bos-token puts a token between the segments"),
        (["--memory-length", -1], "--memory-length -1: give 0 or more"),
        (["--arch", "transformer_lm"], "--arch transformer_lm has no segment memory: --task lm_streams needs"),
    ):
        assert what in forked.error_of(forked.Run(training(data, tmp_path, *more), tmp_path / "log"))
    task = task_of(documents, "--reset-at-document")
    with pytest.raises(ValueError, match=r"test has an empty document, for lines 3 and 4 are both empty"):
        task.load_dataset("test")


MEMORY = ["--memory-length", 8, "--eval-memory-length", 16]


def loss_of(printed):
    return float(re.search(r"Loss \(base 2\): ([\d.]+)", printed)[1])


def weights(folder):
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A training of an epoch with a memory, its folder and what it printed."""
    folder = tmp_path_factory.mktemp("trained")
    more = [*MEMORY, "--max-epoch", 1]
    return folder, forked.train(training(data, folder, *more), folder / "log")


def test_validation_and_eval_lm_score_the_same_with_the_same_memory(data, trained, tmp_path):
    folder, printed = trained
    (validated,) = re.findall(r"epoch 001 \| valid on 'valid' subset \| loss ([\d.]+)", printed)
    common = [data, "--user-dir", USER_DIR, "--cpu", "--num-workers", 0, "--path", folder / "checkpoint_last.pt"]
    common += ["--gen-subset", "valid", "--batch-size", 4, "--tokens-per-sample", 8]
    streams = [*common, "--task", "lm_streams"]
    log = tmp_path / "log"

    def loss_with(*more):
        return loss_of(forked.run("eval_lm", [*streams, *more], log))

    of_memory = {length: loss_with("--eval-memory-length", length) for length in (0, 8, 16)}
    assert loss_with() == of_memory[16] == pytest.approx(float(validated), abs=2e-3)
    assert len(set(of_memory.values())) == 3
    blocks = forked.run("eval_lm", [*common, "--required-batch-size-multiple", 1], log)
    assert loss_of(blocks) == of_memory[0] and "the segment memory of 16 tokens is not in use: --task" in blocks
    validation = [*common[:8], "--task", "lm_streams", "--valid-subset", "valid", "--batch-size", 4]
    printed = forked.run("validate", validation, log)
    assert f"| loss {validated} |" in printed
    for more, what in {
        ("--context-window", 4): "--context-window 4 and the segment memory of",
        ("--max-tokens", 100): "--max-tokens 100: a batch of --task lm_streams has",
        ("--tokens-per-sample", 99): "--tokens-per-sample 99: the model has 16 positions",
    }.items():
        assert what in forked.error_of(forked.Run([*streams, *more], log, command="eval_lm"))


def test_a_model_with_a_memory_continues_a_text_without_it(data, trained):
    hub = RelPosLanguageModel.from_pretrained(str(trained[0]), "checkpoint_last.pt", str(data))
    assert hub.sample("w1 w2", beam=2, max_len_b=12).startswith("w1 w2")
    scored = hub.score(["w1 w2 w3", "w4 w5"])
    assert [len(each["positional_scores"]) for each in scored] == [3, 2]
    # a batch of another shape may be multiplied in another order, on some processors
    torch.testing.assert_close(scored[0]["positional_scores"], hub.score("w1 w2 w3")["positional_scores"])


@pytest.mark.parametrize("flag", ["--fp16", "--bf16"])
def test_a_training_in_half_precision_remembers_in_half_precision(flag, data, tmp_path):
    more = [*MEMORY, flag, "--max-update", 3, "--disable-validation", "--no-save"]
    printed = forked.train(training(data, tmp_path, *more), tmp_path / "log", before=say_the_type)
    assert f"remembered as {'torch.float16' if flag == '--fp16' else 'torch.bfloat16'}" in printed


def say_the_type():
    """Prints the type of what the first layer remembers."""
    stock = segments.Segment.enter

    def enter(self, layer, x_TBE, norm):
        past = stock(self, layer, x_TBE, norm)
        print("remembered as", None if past is None else self.past[layer].dtype)
        return past

    segments.Segment.enter = enter


@pytest.mark.slow
def test_two_ranks_update_freq_and_recomputation_train_as_one_rank(data, tmp_path):
    # Adam would make numbers of the noise in what has no gradient, such as a bias of the keys
    more = [*MEMORY, "--max-epoch", 2, "--store-ema", "--ema-decay", 0.5, "--optimizer", "sgd", "--lr", 0.5]
    more += ["--disable-validation"]
    forked.train(training(data, tmp_path / "one", *more), tmp_path / "log")
    expected = weights(tmp_path / "one")
    recomputed = training(data, tmp_path / "two", *more, "--checkpoint-activations", streams=2)
    runs = forked.ranks(2, recomputed, tmp_path / "two")
    assert [each.wait() for each in runs] == [0, 0], runs[0].printed()
    forked.train(training(data, tmp_path / "four", *more, "--update-freq", 4), tmp_path / "four.log")
    for name in ("two", "four"):
        found = weights(tmp_path / name)
        for part in (found["model"], found["extra_state"]["ema"]):
            of = expected["model"] if part is found["model"] else expected["extra_state"]["ema"]
            for key, weight in of.items():
                torch.testing.assert_close(part[key], weight, atol=1e-5, rtol=1e-4)


def test_a_resume_inside_an_epoch_says_that_the_memory_is_empty_or_has_another_length(data, tmp_path):
    common = [*MEMORY, "--disable-validation", "--max-update"]
    forked.train(training(data, tmp_path, *common, 6), tmp_path / "log")
    printed = forked.train(training(data, tmp_path, *common, 9), tmp_path / "log")
    assert "the segment memory is empty in the middle of a text, as after a resume inside an epoch" in printed
    length = "resuming with --memory-length 5, the checkpoint was trained with 8"
    assert length not in printed
    assert length in forked.train(training(data, tmp_path, *common, 10, "--memory-length", 5), tmp_path / "log")
    other = forked.Run(training(data, tmp_path, *common, 12, "--update-freq", 2), tmp_path / "log")
    assert "--update-freq [1], now [2]" in forked.error_of(other)
