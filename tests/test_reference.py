"""The reference on the site: every public name has a short example in its docstring, which runs."""

import doctest
import importlib
import json
import runpy
from pathlib import Path

import pytest
import torch
import vocabularies

from fairseq_relpos.encodings import ENCODINGS

ROOT = Path(__file__).parents[1]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "scripts"))  # what the script itself puts there goes with it
    REFERENCE = runpy.run_path(str(ROOT / "scripts/make_site.py"))["REFERENCE"]


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """A working folder with the tokenizers of two models, as export-hf writes them."""
    pytest.importorskip("transformers")
    from fairseq_relpos.hf import RelPosSentencePieceTokenizer, RelPosTranslationTokenizer
    from fairseq_relpos.hf.fast_tokenizer import special_tokens

    vocabularies.sentencepiece_folder(tmp_path / "pieces", "bpe")
    lines = (tmp_path / "pieces/dict.txt").read_text(encoding="utf-8").splitlines()
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(line.split()[0] for line in lines)]
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps({symbol: number for number, symbol in enumerate(symbols)}), encoding="utf-8")
    spm = str(tmp_path / "pieces/spm.model")
    RelPosSentencePieceTokenizer(spm, str(vocabulary), **special_tokens()).save_pretrained(tmp_path / "model")
    RelPosTranslationTokenizer(spm, spm, str(vocabulary)).save_pretrained(tmp_path / "translator")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", REFERENCE)
def test_every_public_name_has_a_short_example_that_runs(name, request, monkeypatch):
    if name == "fairseq_relpos.hf":
        request.getfixturevalue("exported")
    module = importlib.import_module(name)
    names = {public: getattr(module, public) for public in module.__all__}
    documented = {"": module} | {public: x for public, x in names.items() if callable(x)}
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    known, shown, said = dict(ENCODINGS), {}, []
    for public, thing in documented.items():
        (test,) = finder.find(thing, f"{name}.{public}", module=False, globs={"torch": torch, **names})
        shown[public] = [example.source for example in test.examples]
        runner.run(test, out=said.append)
    ENCODINGS.clear()
    ENCODINGS.update(known)  # without those that an example has registered
    assert not said, "".join(said)
    for public in names:
        lines = shown[public] if public in shown else [line for line in shown[""] if public in line]  # data
        assert 0 < len(lines) <= 4, f"{name}.{public} has {len(lines)} lines of examples"
