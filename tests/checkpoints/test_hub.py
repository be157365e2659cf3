"""The ways a trained checkpoint is used from Python."""

import hashlib
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import pythons
import torch
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from served import served
from small_models import SIZES, built, save
from vocabularies import sentencepiece_folder

from fairseq_relpos.checkpoints import starting_point
from fairseq_relpos.models.roberta import RelPosRoberta

REPOSITORY = Path(__file__).resolve().parents[2]
SENTENCES = [f"the {a} cat sat on the {b} mat" for a in ("old", "grey", "thin") for b in ("red", "flat")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model as one hands it on: checkpoint, dict.txt, sentencepiece model."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    sentencepiece_folder(folder, "bpe")
    (folder / "spm.model").rename(folder / "sentencepiece.bpe.model")
    words = Dictionary.load(str(folder / "dict.txt"))
    words.add_symbol("<mask>")
    model = built("roberta_tupe_r", SIZES, SimpleNamespace(source_dictionary=words), 1, tokens_per_sample=32)
    save(model, folder / "checkpoint.pt", task="masked_lm", criterion="masked_lm", data="elsewhere")
    return folder


def settings(folder):
    return {
        "checkpoint_file": "checkpoint.pt",
        "data_name_or_path": str(folder),
        "bpe": "sentencepiece",
        "sentencepiece_model": str(folder / "sentencepiece.bpe.model"),
    }


@pytest.fixture(scope="module")
def roberta(folder):
    return RelPosRoberta.from_pretrained(str(folder), **settings(folder)).eval()


def test_sentences_survive_encoding_and_decoding(roberta):
    tokens = roberta.encode(SENTENCES[0])
    assert tokens[0] == 0 and tokens[-1] == 2 and 3 not in tokens
    assert roberta.decode(tokens) == SENTENCES[0]


def test_each_word_in_place_of_a_mask_has_its_own_probability(roberta):
    """</s>, which is no word, is the most likely symbol here, and <s> the third."""
    symbols, bias, word, read = roberta.task.source_dictionary, roberta.model.encoder.lm_head.bias, 10, []
    given = bias.detach().clone()
    with torch.no_grad(), roberta.model.register_forward_pre_hook(lambda _, arguments: read.extend(arguments)):
        bias[[symbols.eos(), word, symbols.bos()]] += torch.tensor([6.0, 5.0, 4.0])
        filled = roberta.fill_mask("the old <mask> sat", topk=len(symbols))
        probability = roberta.model(read[0])[0][read[0] == roberta.task.mask_idx][0].softmax(0).tolist()
        bias.copy_(given)
    assert filled[0][1:] == (pytest.approx(probability[word]), symbols[word].replace("\u2581", " "))
    words = [p for symbol, p in zip(symbols.symbols, probability) if symbol not in ("<s>", "</s>")]
    assert [p for _, p, _ in filled] == pytest.approx(sorted(words, reverse=True))
    with pytest.raises(ValueError, match="one <mask>"):
        roberta.fill_mask("the old cat")


def test_features_of_all_layers_depend_on_the_order_of_the_words(roberta):
    tokens = roberta.encode(SENTENCES[0])
    states = roberta.extract_features(tokens, return_all_hiddens=True)
    assert len(states) == 1 + SIZES["encoder_layers"]
    torch.testing.assert_close(states[-1], roberta.extract_features(tokens))
    swapped = tokens.clone()
    swapped[[2, 4]] = tokens[[4, 2]]
    other = roberta.extract_features(swapped)[0, [0, 1, 4, 3, 2]]
    assert (other - states[-1][0, :5]).abs().max() > 1e-6


def test_a_new_classification_head_predicts(roberta):
    roberta.register_classification_head("mood", num_classes=3)
    with torch.no_grad():
        log_probabilities = roberta.predict("mood", roberta.encode(SENTENCES[0]))
    assert log_probabilities.shape == (1, 3)
    torch.testing.assert_close(log_probabilities.exp().sum(), torch.tensor(1.0))


def test_a_sentence_longer_than_the_model_is_refused(roberta):
    with pytest.raises(ValueError, match="maximum length"):
        roberta.extract_features(torch.full((33,), 5))


def test_saved_classification_heads_come_back(folder, tmp_path):
    first = RelPosRoberta.from_pretrained(str(folder), **settings(folder)).eval()
    first.register_classification_head("mood", num_classes=3)
    starting_point.save(str(tmp_path / "checkpoint.pt"), first.cfg, first.cfg.model, first.model)
    again = RelPosRoberta.from_pretrained(str(tmp_path), **settings(folder)).eval()
    tokens = first.encode(SENTENCES[0])
    assert torch.equal(first.predict("mood", tokens), again.predict("mood", tokens))


def test_a_python_that_cannot_unpack_safely_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with pytest.raises(ValueError, match="cannot unpack an archive safely: update it to 3.10.12"):
        RelPosRoberta.from_pretrained("http://x/m.tar.gz")
    assert not (tmp_path / "hub").exists()


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python refuses archives from the internet")
def test_a_model_is_loaded_from_an_http_address(folder, tmp_path, roberta, monkeypatch):
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(folder, "model")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setenv("no_proxy", "*")
    with served(tmp_path) as address:
        hub = RelPosRoberta.from_pretrained(
            f"{address}/model.tar.gz", checkpoint_file="checkpoint.pt", bpe="sentencepiece"
        ).eval()
    tokens = hub.encode(SENTENCES[1])
    assert torch.equal(hub.extract_features(tokens), roberta.extract_features(tokens))
    # the second time it is there already
    RelPosRoberta.from_pretrained(f"{address}/model.tar.gz", checkpoint_file="checkpoint.pt", bpe="sentencepiece")


def test_an_archive_of_one_file_is_a_folder_of_it(folder, tmp_path, monkeypatch):
    archive = tmp_path / "hub" / "fairseq_relpos" / hashlib.sha256(b"http://x/m.tar.gz").hexdigest()[:16]
    archive.mkdir(parents=True)
    shutil.copy(folder / "checkpoint.pt", archive)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    assert RelPosRoberta.from_pretrained("http://x/m.tar.gz", **settings(folder)).model.encoder


@pytest.mark.slow
def test_fairseqs_own_class_loads_it_with_user_dir(folder, tmp_path):
    """As typed in a fresh interpreter, in a folder where the package cannot be found."""
    given = ", ".join(f"{name}={value!r}" for name, value in settings(folder).items())
    code = (
        f"from {RobertaModel.__module__} import RobertaModel\n"
        f"r = RobertaModel.from_pretrained({str(folder)!r}, {given}, user_dir={str(REPOSITORY / 'fairseq_relpos')!r})\n"
        "print(type(r.model).__name__, len(r.fill_mask('the <mask> mat')))"
    )
    assert pythons.output("-c", code, cwd=tmp_path, PYTHONPATH="").splitlines()[-1] == "RelPosRoberta 5"
