"""``fairseq-relpos export-hf`` of a RoBERTa: what it writes, says and refuses."""

import shutil
import socket
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from refusals import assert_refused
from small_models import trained

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402

from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.exchange import to_transformers  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402
from fairseq_relpos.exchange.words import Words  # noqa: E402
from fairseq_relpos.tasks import data_facts  # noqa: E402


def test_the_command_exports_what_fills_a_mask_and_says_what_to_do(with_words, capsys, monkeypatch):
    def connect(*unused):
        raise AssertionError("something tries to reach a network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    command = ["export-hf", str(with_words / "a.pt"), str(with_words / "out"), "--data", str(with_words / "data")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "RelPosRobertaForMaskedLM" in printed and "differ from fairseq's by 0 " in printed
    card = (with_words / "out/README.md").read_text()
    assert "`tupe_r`" in card and "FILL IN" in card and "pe:tupe_r" in card
    fill = transformers.pipeline("fill-mask", model=str(with_words / "out"))
    answers = fill("w3 <mask> w5")
    assert len(answers) == 5 and all(answer["token_str"] for answer in answers)


def test_a_dictionary_that_is_not_the_trainings_is_refused(with_words, monkeypatch, capsys):
    monkeypatch.chdir(with_words)
    shutil.copytree("data", "elsewhere")  # the folder of the training, by its saved settings
    assert main(["export-hf", "a.pt", "right", "--data", "data"]) == 0
    words = Path("data/dict.txt").read_text().splitlines(keepends=True)
    Path("data/dict.txt").write_text("".join(reversed(words)))
    assert main(["export-hf", "a.pt", "wrong", "--data", "data"]) == 1
    assert "trained with the dictionary elsewhere/dict.txt" in capsys.readouterr().err and not Path("wrong").exists()


def change(path, **changes):
    state = torch.load(path, weights_only=False)
    for name, settings in changes.items():
        state.setdefault(name, {}).update(settings)
    torch.save(state, path)


def test_the_dictionary_in_the_checkpoint_is_compared_where_the_trainings_folder_is_gone(with_words, capsys):
    words = Dictionary.load(str(with_words / "data/dict.txt"))
    words.add_symbol("<mask>")
    facts = {"task": "SentencePairsTask", "labels": None, "vocabulary": data_facts.digest(words)}
    change(with_words / "a.pt", task_state={"data_facts": facts})
    command = ["export-hf", with_words / "a.pt", with_words / "right", "--data", with_words / "data"]
    assert main(list(map(str, command))) == 0
    path = with_words / "data/dict.txt"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    command[2] = with_words / "wrong"
    assert_refused(list(map(str, command)), "was trained with another dictionary (sha256:", capsys)
    assert not command[2].exists()


def test_inputs_that_no_tokenizer_of_transformers_writes_are_refused_with_data(with_words, capsys):
    def export_it(*flags, **settings):
        task = {"_name": "sentence_prediction", "data": "elsewhere", "init_token": 0, "separator_token": 2, **settings}
        state = torch.load(with_words / "a.pt", weights_only=False)
        state["cfg"]["task"] = task
        torch.save(state, with_words / "b.pt")
        shutil.rmtree(with_words / "out", ignore_errors=True)
        return ["export-hf", str(with_words / "b.pt"), str(with_words / "out"), *flags]

    data = ("--data", str(with_words / "data"))
    assert main(export_it(*data)) == 0 and main(export_it(init_token=None)) == 0
    assert main(export_it(*data, separator_token=None)) == 0
    assert_refused(export_it(*data, init_token=None), "without --init-token 0,", capsys)
    (with_words / "data/input1").mkdir()
    assert_refused(export_it(*data, separator_token=None), "without --separator-token 2,", capsys)


def test_wrong_input_of_the_export_is_one_line_and_writes_nothing(with_words, capsys, monkeypatch):
    monkeypatch.chdir(with_words)
    trained("roberta_tupe_r", "heads.pt", head=True)
    state = torch.load("heads.pt", weights_only=False)
    state["model"].update({k.replace("mood", "other"): v for k, v in state["model"].items() if "mood" in k})
    torch.save(state, "heads.pt")
    trained("roberta_tupe_r", "mean.pt", head=True, pooling="mean")
    trained("roberta_tupe_r", "pq.pt", quant_noise_pq=0.1)
    trained("roberta_learned", "scalar.pt", quant_noise_scalar=0.1)
    Path("small").mkdir()
    Path("small/dict.txt").write_text("w0 1\n")
    Path("there").mkdir()
    for arguments, what in {
        "none.pt out": "none.pt is no file",
        "a.pt there": "there is there already",
        "a.pt no/where": "there is no folder no",
        "a.pt out --data there": "no dict.txt in there",
        "a.pt out --data small": "make 6 words, a.pt has 45",
        "heads.pt out": "has the heads mood, other: choose one by --head",
        "heads.pt out --head third": "no classification head third",
        "mean.pt out": "its head reads by --pooling mean",
        "data/dict.txt out": "no checkpoint",
        "pq.pt out": "trained with --quant-noise-pq 0.1, which has no counterpart",
        "scalar.pt out": "trained with --quant-noise-scalar 0.1, which has no counterpart",
    }.items():
        assert_refused(["export-hf", *arguments.split()], what, capsys)


def test_an_export_that_differs_is_not_written(with_words, monkeypatch):
    as_it_is = to_transformers.as_transformers

    def moved(*arguments):
        model = as_it_is(*arguments)
        with torch.no_grad():
            model.roberta.encoder.layers[0].fc1.bias.add_(0.01)
        return model

    monkeypatch.setattr(to_transformers, "as_transformers", moved)
    with pytest.raises(ValueError, match="differ by .* from fairseq's"):
        export(with_words / "a.pt", with_words / "out")
    monkeypatch.undo()
    monkeypatch.setattr(Words, "ids", lambda *unused: [0, 2])
    with pytest.raises(ValueError, match="other ids"):
        export(with_words / "a.pt", with_words / "out", with_words / "data")
    assert sorted(path.name for path in with_words.iterdir()) == ["a.pt", "data"]


def test_weights_of_another_encoding_are_refused(with_words):
    export(with_words / "a.pt", with_words / "out")
    config = with_words / "out/config.json"
    config.write_text(config.read_text().replace("num_buckets=32", "num_buckets=16"))
    with pytest.raises(ValueError, match="restore the config.json"):
        transformers.AutoModel.from_pretrained(with_words / "out")
