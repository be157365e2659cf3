"""Heads for sentences and answers for Hugging Face transformers: outputs, and a step of fine-tuning as in fairseq."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion
from fairseq.optim.adam import FairseqAdam
from small_models import logits, save, sentences, trained

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402

from fairseq_relpos.criterions.span_prediction import SpanPredictionCriterion  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402
from fairseq_relpos.exchange.from_transformers import import_hf  # noqa: E402
from fairseq_relpos.tasks import span_head  # noqa: E402


def losses_in_fairseq(model, criterion, sample):
    """The mean losses of a sample before and after a step of fairseq's Adam, whose gradients are clipped."""
    eps = 1e-6 * (1 - 0.98) ** 0.5  # in the first step torch's AdamW divides the other root by this
    settings = Namespace(
        **{"lr": [1e-3], "adam_betas": "(0.9, 0.98)", "adam_eps": eps, "weight_decay": 0.01},
        **{"use_old_adam": True, "fp16_adam_stats": False},
    )
    optimizer = FairseqAdam(settings, [parameter for parameter in model.parameters() if parameter.requires_grad])
    loss, size, _ = criterion(model, sample)
    optimizer.backward(loss)
    optimizer.multiply_grads(1 / size)
    optimizer.clip_grad_norm(1.0)
    optimizer.step()
    return torch.stack([loss, criterion(model, sample)[0]]).detach() / size


def losses_in_transformers(model, batch):
    """The same, as a script of transformers trains."""
    for name, parameter in model.named_parameters():  # a vector more than fairseq has
        parameter.requires_grad_("token_type_embeddings" not in name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return torch.stack([loss, model(**batch).loss]).detach()


def loaded_without_dropout(auto, folder):
    model = getattr(transformers, auto).from_pretrained(
        folder, hidden_dropout_prob=0, attention_probs_dropout_prob=0, classifier_dropout=0
    )
    return model.train()


@pytest.mark.parametrize(
    "name, file, classes",
    [("tupe_r", "labels.txt", "bad\ngood\nmixed\n"), ("learned", "label/dict.txt", "bad 3\ngood 2\nmixed 1\n")],
)
def test_a_head_for_sentences_has_fairseqs_outputs_and_training_and_comes_back(
    name, file, classes, tmp_path, monkeypatch
):
    rates = {"dropout": 0.3, "attention_dropout": 0.2, "pooler_dropout": 0.25}
    model = trained(f"roberta_{name}", tmp_path / "a.pt", head=True, **rates)
    (tmp_path / "data/label").mkdir(parents=True)
    (tmp_path / "data" / file).write_text(classes)
    (tmp_path / "data/dict.txt").write_text("".join(f"w{i} 1\n" for i in range(40)))
    result = export(tmp_path / "a.pt", tmp_path / "a", tmp_path / "data")
    assert result.model.endswith("ForSequenceClassification") and result.left_out == ["encoder.lm_head"]
    config = transformers.AutoConfig.from_pretrained(tmp_path / "a")
    theirs = config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.classifier_dropout
    assert theirs == tuple(rates.values())
    loaded = loaded_without_dropout("AutoModelForSequenceClassification", tmp_path / "a")
    assert loaded.config.id2label == {0: "bad", 1: "good", 2: "mixed"}
    tokens, labels = sentences(), torch.tensor([2, 0, 1])
    with torch.no_grad():
        assert torch.equal(logits(loaded, tokens), model(tokens, classification_head_name="mood")[0])
    # no names from the folder that a relative path leads to here
    monkeypatch.chdir(tmp_path)
    state = torch.load(tmp_path / "a.pt", weights_only=False)
    for path, found in ("data", "LABEL_0"), (str(tmp_path / "data"), "bad"):
        state["cfg"]["task"]["data"] = path
        torch.save(state, tmp_path / "b.pt")
        export(tmp_path / "b.pt", tmp_path / found)
        assert transformers.AutoConfig.from_pretrained(tmp_path / found).id2label[0] == found
    args = import_hf(tmp_path / "a", tmp_path / "back").args
    assert {key: getattr(args, key) for key in rates} == rates
    back = torch.load(tmp_path / "back/model.pt", weights_only=False)["model"]
    for key, weight in model.classification_heads["mood"].state_dict().items():
        assert torch.equal(back[f"classification_heads.sentence_classification_head.{key}"], weight), key

    settings = SentencePredictionConfig(classification_head_name="mood")
    criterion = SentencePredictionCriterion(settings, SimpleNamespace(label_dictionary=None))
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": None}, "target": labels, "ntokens": tokens.numel()}
    wanted = losses_in_fairseq(model, criterion, sample)  # its dropout is off, as after loading
    batch = {"input_ids": tokens, "attention_mask": tokens.ne(1).long(), "labels": labels}
    assert wanted[0] - wanted[1] > 0.01  # the step has done something
    torch.testing.assert_close(losses_in_transformers(loaded, batch), wanted, rtol=0, atol=1e-5)


def test_a_head_for_answers_has_fairseqs_outputs_and_training(tmp_path):
    model = trained("roberta_tupe_r", tmp_path / "a.pt")
    span_head.add_span_head(model, 24)
    save(model, tmp_path / "a.pt")
    assert export(tmp_path / "a.pt", tmp_path / "a").model == "RelPosRobertaForQuestionAnswering"
    loaded = loaded_without_dropout("AutoModelForQuestionAnswering", tmp_path / "a")
    tokens = sentences()
    with torch.no_grad():
        out = loaded(input_ids=tokens, attention_mask=tokens.ne(1).long())
        wanted = model(tokens)[tokens.ne(1)]
    assert torch.equal(torch.stack([out.start_logits, out.end_logits], -1)[tokens.ne(1)], wanted)

    tokens = torch.cat([sentences(batch=1), sentences(batch=1).roll(3, 1)])
    answers = torch.tensor([[3, 5], [0, 16]])
    sample = {
        **{"net_input": {"src_tokens": tokens, "src_lengths": None}, "allowed": torch.ones_like(tokens).bool()},
        **{"target": answers, "ntokens": tokens.numel()},
    }
    wanted = losses_in_fairseq(model, SpanPredictionCriterion(SimpleNamespace()), sample)
    batch = {"input_ids": tokens, "start_positions": answers[:, 0], "end_positions": answers[:, 1]}
    assert wanted[0] - wanted[1] > 0.01
    torch.testing.assert_close(losses_in_transformers(loaded, batch), wanted, rtol=0, atol=1e-5)
