"""Models for CTranslate2 against fairseq's: log-probabilities, and what is refused."""

from pathlib import Path

import pytest
import torch
from small_models import language_model, save, transformer

pytest.importorskip("ctranslate2", reason='needs ctranslate2: pip install "fairseq_relpos[ct2]"')

from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.exchange import to_ctranslate2  # noqa: E402

LENGTHS = {"max_source_positions": 200, "max_target_positions": 200}
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}


def folder_of(path, model, task):
    """A checkpoint a.pt of the model, whose positions matter, and the folder data."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "position" in name:
                parameter.normal_(0, 1)
            elif parameter.dim() > 1:
                parameter.mul_(1.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    languages = {"source_lang": "en", "target_lang": "de"} if task == "translation" else {}
    save(model, path / "a.pt", task=task, criterion="cross_entropy", data="elsewhere", **languages)
    (path / "data").mkdir()
    for name in ("dict.en.txt", "dict.de.txt", "dict.txt"):
        lines = "".join(f"w{i} 1\n" for i in range(40))
        (path / "data" / name).write_text(lines + "<mask> 1\n", encoding="utf-8")


@pytest.mark.parametrize(
    "name, hparams, settings",
    [
        ("none", "", {}),
        ("none", "", {"share_all_embeddings": True}),
        ("none", "", PRE_NORM),
        ("learned", "", {"share_all_embeddings": True, **PRE_NORM}),
        ("sinusoidal", "", {"layernorm_embedding": True}),
        ("t5", "num_buckets=12 max_distance=20 scale=none", PRE_NORM),
        ("at5", "per_layer=false", {}),
        ("shaw", "max_distance=4", PRE_NORM),
        ("rope", "", {"activation_fn": "gelu"}),
        ("rope", "fraction=0.5 kind=proportional", PRE_NORM),
        ("rope", "scaling=interpolation factor=2 trained_length=30", {}),
        ("alibi", "", PRE_NORM),
        ("none", "", {"position_encoding": "encoder=t5,decoder=rope"}),
    ],
)
def test_log_probabilities_are_fairseqs(name, hparams, settings, tmp_path):
    model = transformer(f"transformer_{name}", position_hparams=hparams, **settings, **LENGTHS)
    folder_of(tmp_path, model, "translation")
    done = to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data")
    assert done.kind == "Translator" and done.difference < 1e-4


@pytest.mark.parametrize("name", ["learned", "t5", "rope", "alibi"])
def test_a_language_model_becomes_a_generator(name, tmp_path):
    folder_of(tmp_path, language_model(f"transformer_lm_{name}", max_target_positions=200), "language_modeling")
    done = to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data")
    assert done.kind == "Generator" and done.difference < 1e-4


@pytest.mark.parametrize(
    "name, settings, what",
    [
        ("tupe_r", {}, "tupe_r in the encoder"),
        ("cope", {}, "cope in the decoder"),
        ("rope", {"position_hparams": "scaling=yarn factor=2 trained_length=30"}, "scaling=yarn"),
        ("shaw", {"position_hparams": "heads=each"}, "heads=each"),
        ("t5", {"copy_from_source": True}, "--copy-from-source"),
    ],
)
def test_what_it_cannot_hold_is_refused_by_name(name, settings, what, tmp_path, capsys):
    folder_of(tmp_path, transformer(f"transformer_{name}", **settings), "translation")
    before = sorted(tmp_path.rglob("*"))
    assert main(["export-ct2", *(str(tmp_path / part) for part in ("a.pt", "out")), "--data", f"{tmp_path}/data"]) == 1
    error = capsys.readouterr().err
    assert what in error and "CTranslate2" in error and len(error.splitlines()) == 1
    assert sorted(Path(tmp_path).rglob("*")) == before


def test_other_scores_end_in_an_error_and_nothing_is_written(tmp_path, monkeypatch):
    folder_of(tmp_path, transformer("transformer_rope", **LENGTHS), "translation")
    monkeypatch.setattr(to_ctranslate2, "put_positions", lambda spec, *_: [None] * len(spec.layer))
    with pytest.raises(ValueError, match="differ by .* from fairseq's"):
        to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data")
    assert not (tmp_path / "out").exists()
