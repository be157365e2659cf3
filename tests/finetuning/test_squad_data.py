"""Offsets of pieces, encoding, windows and answers of reading comprehension."""

import codecs
import json

import numpy as np
import pytest
import tiny_squad
import torch
from glue_files import write_gpt2

from fairseq_relpos.finetuning import squad, squad_data, squad_metrics
from fairseq_relpos.finetuning.squad_answers import answers_of, best_spans
from fairseq_relpos.finetuning.vocabulary import Vocabulary
from fairseq_relpos.tasks import span_windows
from fairseq_relpos.tasks.span_windows import Window


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_squad.data(tmp_path_factory.mktemp("data"))


TEXTS = [*tiny_squad.CONTEXTS, "été ﬁne Ⅻ 战国\u3000x", "  cat\n\tthe cat "]


def need_cover(spans, text):
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    covered = {place for start, end in spans for place in range(start, end)}
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered


def test_pieces_of_sentencepiece_stand_where_they_come_from(folder):
    words = Vocabulary(folder)
    for text in TEXTS:
        pieces, spans = words.placed(text)
        assert pieces == words.tokenizer.processor.encode(text, out_type=str)
        need_cover(spans, text)
        assert all(text[start:end] == text[start:end].strip() for start, end in spans)
    assert ("▁cat", (4, 7)) in zip(*words.placed("Zoë cat"))


def test_pieces_of_gpt2_stand_where_they_come_from(tmp_path):
    words = Vocabulary(write_gpt2(tmp_path))
    for text in TEXTS:
        pieces, spans = words.placed(text)
        assert pieces == [str(number) for number in words.tokenizer.bpe.encode(text)]
        need_cover(spans, text)
    assert words.placed("é cat")[1] == [(0, 1), (0, 1), (2, 2), (2, 5)]


def test_bytes_of_gpt2_can_make_every_answer(tmp_path):
    source = tiny_squad.write(tmp_path / "x.json", tiny_squad.squad())
    told = squad_data.encode(source, str(write_gpt2(tmp_path)), tmp_path / "train")
    assert told["oracle_em"] == told["exact_offsets"] == 100 and told["unknown"] == 0


def test_an_answer_is_the_tokens_that_have_its_characters(folder):
    arrays = span_windows.read_arrays(str(folder), "train")
    begins = np.concatenate([[0], np.cumsum(arrays["context_lengths"])])
    for (_, _, context, answer), (first, last) in zip(tiny_squad.QUESTIONS, arrays["answers"]):
        begin = begins[context]
        text = tiny_squad.CONTEXTS[context][
            arrays["context_starts"][begin + first] : arrays["context_ends"][begin + last]
        ]
        assert answer in text and len(text) <= len(answer) + 1  # 1920, may be one piece


def test_the_oracle_em_and_wrong_offsets_are_told(folder, tmp_path):
    data = tiny_squad.squad()
    answers = data["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    answers[0]["answer_start"] += 1
    told = squad_data.encode(tiny_squad.write(tmp_path / "x.json", data), str(folder), tmp_path / "train")
    assert told["misplaced"] == 1 and told["left_out"] == ["q0"] and told["oracle_em"] > 70
    arrays = span_windows.read_arrays(str(tmp_path), "train")
    windows = list(span_windows.windows_of(arrays, 40, 8, 12))
    assert {window.question for window in span_windows.training_windows(arrays, windows)} == {1, 2, 3, 4}


def test_the_oracle_em_is_the_best_over_all_answers_by_the_metric(folder, tmp_path, monkeypatch):
    data = tiny_squad.squad([("q", "What?", 0, "ed")])  # a part of the token "red"
    source = tiny_squad.write(tmp_path / "x.json", data)
    assert squad_data.encode(source, str(folder), tmp_path / "x")["oracle_em"] == 0
    answers = data["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    answers.append({"text": "red", "answer_start": answers[0]["answer_start"] - 1})
    tiny_squad.write(source, data)
    monkeypatch.setitem(squad_metrics.EXACT, "cmrc", lambda answer, gold: 0.0)
    told = {metric: squad_data.encode(source, str(folder), tmp_path / "x", metric) for metric in ("squad", "cmrc")}
    assert told["squad"]["oracle_em"] == 100 and told["cmrc"]["oracle_em"] == 0


@pytest.mark.parametrize("moses", [False, True])
def test_text_is_changed_as_that_of_the_pretraining_was(folder, tmp_path, moses):
    """Pieces are those of the changed text, and stand in the text itself."""
    for name in ("spm.model", "dict.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    settings = {"lowercase": True, "moses_tokens": moses}
    (tmp_path / "manifest.json").write_text(json.dumps({"settings": settings}))
    words, plain = Vocabulary(tmp_path), Vocabulary(folder)
    for text in [*TEXTS, "ΣΑΣ in İzmir: “İ”, don't"]:
        pieces, spans = words.placed(text)
        assert pieces == plain.pieces(words.changed(text)) == words.pieces(text)
        need_cover(spans, text)
    told = squad_data.encode(tiny_squad.write(tmp_path / "x.json", tiny_squad.squad()), str(tmp_path), tmp_path / "x")
    assert told["oracle_em"] == 100 and not told["left_out"]


def test_windows_cover_each_text_and_overlap(folder):
    arrays = span_windows.read_arrays(str(folder), "train")
    windows = list(span_windows.windows_of(arrays, 32, 8, 12))
    for question, context in enumerate(arrays["question_context"]):
        own = [window for window in windows if window.question == question]
        length = arrays["context_lengths"][context]
        assert [window.start for window in own] == list(range(0, 8 * len(own), 8))
        assert {t for window in own for t in range(window.start, window.start + window.length)} == set(range(length))
        size = min(12, arrays["question_lengths"][question]) + span_windows.SPECIAL
        assert all(window.length + size <= 32 for window in own)
        # each token has the most context in one window
        most = span_windows.with_most_context(own)
        tokens = [window.start + n for window, best in zip(own, most) for n in np.flatnonzero(best)]
        assert sorted(tokens) == list(range(length))
        middle = own[0].length // 2  # of the first window, which is near the end of no other
        assert most[0][: own[0].length // 4].all() and (len(own) == 1 or not most[0][-1]), middle


@pytest.mark.parametrize("window, stride, query", [(20, 8, 12), (40, 0, 12), (40, 25, 12), (40, 8, 0)])
def test_windows_that_would_leave_tokens_out_are_refused(window, stride, query):
    with pytest.raises(ValueError, match="fewer than --doc-stride"):
        span_windows.check_sizes(window, stride, query)


def test_the_best_spans_are_those_of_all_pairs():
    torch.manual_seed(3)
    start, end = torch.randn(2, 9).numpy()
    may_begin = np.array([True] * 6 + [False] * 3)
    pairs = [(float(start[a] + end[b]), a, b) for a in range(6) for b in range(a, min(a + 4, 9))]
    assert best_spans(start, end, may_begin, longest=4, count=7) == sorted(pairs, reverse=True)[:7]
    assert len(best_spans(start, end, may_begin, longest=100, count=1000)) == sum(9 - a for a in range(6))


def test_answers_of_several_windows_are_merged_and_the_null_score_is_the_lowest():
    text = "a bb c dd"
    arrays = {
        "question_context": np.array([0]),
        "context_lengths": np.array([4]),
        "context_starts": np.array([0, 2, 5, 7]),
        "context_ends": np.array([1, 4, 6, 9]),
    }
    windows = [Window(0, 0, 3), Window(0, 1, 3)]
    # <s>, then the tokens; the second window sees "c" with more context
    first = np.array([[1, 1], [0, 0], [5, 0], [0, 3]], np.float32)
    second = np.array([[0, -1], [9, 0], [0, 0], [0, 4]], np.float32)
    found = answers_of(windows, [first, second], arrays, text, longest=2, n=3)
    assert [span.text for span in found.best] == ["bb c", "bb", "c dd"] and found.best[0].score == 8
    assert found.null == -1 and found.null_odds == -9
    assert found.text(None) == found.text(0.0) == "bb c" and found.text(-10.0) == ""
    rows = found.table(with_null=True)
    assert [row["text"] for row in rows] == ["bb c", "bb", "c dd", ""]
    assert sum(row["probability"] for row in rows) == pytest.approx(1)


def test_the_threshold_of_no_answer_is_that_of_valid_on_every_split(tmp_path):
    questions = [("a", "Who?", 0, "red cat of Zoë"), ("b", "Who else?", 0, None)]
    gold = tiny_squad.write(tmp_path / "gold.json", tiny_squad.squad(questions, version="v2.0"))
    for split, odds in {"valid": {"a": 3.0, "b": 5.0}, "test": {"a": 4.0, "b": 5.0}}.items():
        texts = dict.fromkeys(odds, "red cat of Zoë")
        found = {"predictions": texts, "nbest": {name: [{"text": text}] for name, text in texts.items()}}
        for name, content in {**found, "null_odds": odds, "loss": {"loss": 1.0}}.items():
            (tmp_path / f"{split}.{name}.json").write_text(json.dumps(content))
        results = str(tmp_path / "results.json")
        squad.main(["evaluate", str(gold), str(tmp_path / split), "--results", results, "--split", split])
    told = json.loads((tmp_path / "results.json").read_text())
    assert told["metrics"]["best_f1_thresh"] == told["test"]["tuned_thresh"] == 3.0
    # its own would be 4
    assert told["test"]["tuned_f1"] == told["test"]["tuned_exact"] == 50 and told["test"]["best_f1"] == 100


def test_an_update_of_an_epoch_may_have_fewer_windows(folder, capsys):
    sizes = {"window": 32, "doc-stride": 8, "max-query-length": 12}
    count = len(list(span_windows.windows_of(span_windows.read_arrays(str(folder), "train"), *sizes.values())))
    flags = [f"--{name}={value}" for name, value in {**sizes, "batch": count - 1, "epochs": 5, "warmup": 0.3}.items()]
    squad.main(["updates", str(folder), *flags])
    assert capsys.readouterr().out == "10 3\n"


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda data: data.pop("data"), "is not in the form of SQuAD: a part of it has no 'data'"),
        (lambda data: data["data"][0]["paragraphs"][0]["qas"][0].update(answers=[]), "question q0 has no answer"),
        (lambda data: data["data"][0]["paragraphs"][0]["qas"][0].update(id="q2"), "the question q2 twice"),
        (lambda data: data["data"][0].update(paragraphs=[]), "has no questions"),
        (lambda data: data["data"][0]["paragraphs"][0].update(context=3), "a text is no string"),
    ],
)
def test_a_file_in_another_form_is_one_line_and_writes_nothing(folder, tmp_path, change, words):
    data = tiny_squad.squad()
    change(data)
    source = tiny_squad.write(tmp_path / "bad.json", data)
    with pytest.raises(ValueError, match="bad.json") as error:
        squad_data.encode(source, str(folder), tmp_path / "train")
    assert words in str(error.value) and "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_version_2_may_lack_answers(folder, tmp_path):
    questions = [*tiny_squad.QUESTIONS, ("q9", "Who?", 0, None)]
    source = tiny_squad.write(tmp_path / "x.json", tiny_squad.squad(questions, version="v2.0"))
    told = squad_data.encode(source, str(folder), tmp_path / "train")
    assert told["unanswerable"] == 1 and not told["left_out"]
    assert squad_data.read_questions(tmp_path / "train.json").golds()["q9"] == []


def test_a_file_may_begin_with_a_byte_order_mark(folder, tmp_path):
    (tmp_path / "marked.json").write_bytes(codecs.BOM_UTF8 + (folder / "train.json").read_bytes())
    assert squad_data.read_questions(tmp_path / "marked.json") == squad_data.read_questions(folder / "train.json")
    (tmp_path / "predictions.json").write_bytes(codecs.BOM_UTF8 + b'{"q0": "red"}')
    assert squad.read(str(tmp_path / "predictions.json")) == {"q0": "red"}


def test_a_file_cut_short_and_a_vocabulary_of_other_data_are_one_line(folder, tmp_path):
    (tmp_path / "cut.json").write_text('{"data": [')
    with pytest.raises(ValueError, match="cut.json cannot be read: is it cut short"):
        squad_data.read_questions(tmp_path / "cut.json")
    with pytest.raises(FileNotFoundError, match="no file .*missing.json"):
        squad_data.read_questions(tmp_path / "missing.json")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match="no dict.txt in .*other"):
        squad_data.encode(folder / "train.json", str(other), tmp_path / "train")
    (other / "spm.model").write_bytes((folder / "spm.model").read_bytes())
    (other / "dict.txt").write_text("x 1\ny 1\n")
    with pytest.raises(ValueError, match="of the tokens in .* are not in .*dict.txt"):
        squad_data.encode(folder / "train.json", str(other), tmp_path / "train")
    assert not list(tmp_path.glob("train*"))
