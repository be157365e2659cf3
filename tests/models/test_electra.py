"""electra_NAME: two RoBERTas with one table of embeddings, what is sampled between them, and their losses."""

import math
import pickle
import re

import forked
import pytest
import torch
import torch.nn.functional as F
from fairseq.dataclass.configs import EMAConfig
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.ema.ema import EMA
from fairseq_cli import train, validate  # noqa: F401  forked runs find them imported
from fairseq_data import USER_DIR, masked_lm
from loops import scale_up, scale_up_positions
from scipy.stats import chisquare
from sklearn.metrics import precision_score, recall_score, roc_auc_score
from small_models import Namespace, SimpleNamespace, dictionary, gradients, roberta, sentences, stack_of
from torch.func import functional_call

from fairseq_relpos.criterions.electra import Electra, ElectraConfig, area_under_the_curve, bins_of, histograms
from fairseq_relpos.encodings import names_for
from fairseq_relpos.models import electra
from fairseq_relpos.models.electra import sample

NAMES = names_for(causal=False)
#: one for each way in which positions reach the attention
KINDS = ["learned", "tupe_r", "shaw", "rope"]
PAD, MASK = 1, dictionary().index("<mask>")


def model_of(name, seed=1, **settings):
    """Evaluated, with positions that matter, and scores that vary."""
    model = roberta(f"electra_{name}", seed, **settings).eval()
    for part in (model.discriminator, model.generator):
        scale_up_positions(stack_of(part), 0.3)
    scale_up(model.score_tokens, 0.3)
    return model


def batch(tokens=None, seed=3):
    """A sample of --task masked_lm: a sixth of the tokens is masked."""
    tokens = sentences() if tokens is None else tokens
    chosen = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed)) < 1 / 6
    chosen &= tokens.gt(2)  # <s>, <pad> and </s> are the first three words
    chosen[:, 3] = True
    return {
        "id": torch.arange(len(tokens)),
        "net_input": {"src_tokens": tokens.masked_fill(chosen, MASK), "src_lengths": tokens.ne(PAD).sum(1)},
        "target": tokens.masked_fill(~chosen, PAD),
        "ntokens": int(tokens.ne(PAD).sum()),
    }


def criterion_of(**settings):
    words = dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, mask_idx=MASK)
    return Electra(ElectraConfig(**settings), task)


def by_hand(name, weights, tokens, replaced, masked):
    """The generator's logits and the scores, from two RoBERTas of their own with the weights of an ELECTRA."""
    wide = roberta(f"roberta_{name}").double().eval()
    sizes = {"encoder_attention_heads": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 32}
    narrow = roberta(f"roberta_{name}", **sizes).double().eval()

    def part(prefix):
        return {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}

    def linear(x, prefix):
        return F.linear(x, weights[f"{prefix}.weight"], weights[f"{prefix}.bias"])

    embeddings = "encoder.sentence_encoder.embed_tokens.weight"
    table, head = weights[f"discriminator.{embeddings}"], "generator.encoder.lm_head"
    narrow_table = linear(table, "generator.encoder.sentence_encoder.embed_tokens.project")
    of_generator = {key: value for key, value in part("generator.").items() if ".project." not in key}
    of_generator = {key: value for key, value in of_generator.items() if "lm_head" not in key}
    x = functional_call(narrow, {**of_generator, embeddings: narrow_table}, (tokens, True))[0][masked]
    x = F.gelu(linear(x, f"{head}.dense"))
    x = F.layer_norm(x, (24,), weights[f"{head}.layer_norm.weight"], weights[f"{head}.layer_norm.bias"])
    logits = x @ table.T + weights[f"{head}.bias"]
    x = functional_call(wide, part("discriminator."), (replaced, True))[0]
    return logits, linear(F.gelu(linear(x, "score_tokens.dense")), "score_tokens.project_out")[..., 0]


@pytest.mark.parametrize("name", KINDS)
def test_outputs_losses_and_gradients_are_those_of_two_separate_models_run_by_hand(name):
    model, given = model_of(name, generator_size="2/3").double(), batch()
    tokens, target = given["net_input"]["src_tokens"], given["target"]
    masked, real = target.ne(PAD), tokens.ne(PAD)
    torch.manual_seed(5)
    loss, count, _ = criterion_of().train()(model, given)
    (loss / count).backward()
    torch.manual_seed(5)
    found = model(tokens, target)
    text = torch.where(masked, target, tokens)
    assert found.tokens_BT[~masked].equal(text[~masked]) and found.tokens_BT[masked].equal(found.sampled_M)
    assert not found.tokens_BT.equal(text)

    weights = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    logits, scores = by_hand(name, weights, tokens, found.tokens_BT, masked)
    torch.testing.assert_close(found.generator_MV, logits, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.scores_BT[real], scores[real], atol=1e-6, rtol=0)
    replaced = found.tokens_BT.ne(text).double()
    loss_of_scores = F.binary_cross_entropy_with_logits(scores[real], replaced[real])
    expected = F.cross_entropy(logits, target[masked]) + 50 * loss_of_scores
    torch.testing.assert_close((loss / count).double(), expected, atol=1e-5, rtol=0)
    expected.backward()
    for key, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, weights[key].grad, atol=1e-5, rtol=1e-5, msg=key)


def test_sampled_tokens_follow_the_generators_distribution():
    logits = torch.randn(1, 50) * 2
    drawn = sample(logits.expand(1_000_000, -1), PAD)
    counts = drawn.bincount(minlength=50).numpy()
    logits[0, PAD] = -math.inf
    expected = 1_000_000 * logits.double().softmax(-1)[0].numpy()
    kept = expected > 0
    assert counts[PAD] == 0 and chisquare(counts[kept], expected[kept]).pvalue > 1e-3
    # in half precision, too, where small probabilities would be 0
    few = torch.tensor([[0.0, 0.0, -12.0]]).half().expand(1_000_000, -1)
    assert 1 <= sample(few, PAD).eq(2).sum() <= 20


@pytest.mark.parametrize(
    "middle, spread", [(0, 1), (-8, 3), (-30, 5), (40, 10), (-3, 0.01), (0.1, 1e-3), (0, 1e3)], ids=str
)
def test_the_auc_is_that_of_the_ranks_also_where_probabilities_saturate(middle, spread):
    replaced = torch.rand(20_000) < 0.15
    scores = middle + spread * (torch.randn(20_000) + replaced)
    found = area_under_the_curve(histograms(bins_of(scores, replaced)).double())
    assert found == pytest.approx(roc_auc_score(replaced, scores), abs=5e-4)


def test_figures_are_those_of_all_tokens_of_a_validation_whatever_the_batches():
    model, given = model_of("t5"), batch(sentences(batch=5, length=20))
    criterion = criterion_of(generator_weight=2, discriminator_weight=3, order_gap=True).eval()
    one = [criterion(model, given)[2]]
    with metrics.aggregate(new_root=True) as whole:
        criterion.reduce_metrics(one)
    figures = whole.get_smoothed_values()
    whole.reset()  # an epoch without an update follows
    assert whole.get_smoothed_values()["loss"] == 0

    random = torch.Generator().manual_seed(1)
    tokens, target = given["net_input"]["src_tokens"], given["target"]
    found = model(tokens, target, random)
    real, masked = tokens.ne(PAD), target.ne(PAD)
    replaced = (found.tokens_BT != torch.where(masked, target, tokens))[real]
    scores = found.scores_BT[real].detach()
    share = replaced.double().mean().item()
    generator = F.cross_entropy(found.generator_MV, target[masked]).item() / math.log(2)
    discriminator = F.binary_cross_entropy_with_logits(scores, replaced.float()).item() / math.log(2)
    assert 0 < share < 0.5 and figures["replaced"] == pytest.approx(share, abs=1e-4)
    for name, value in {
        "loss": 2 * generator + 3 * discriminator,
        "masked_lm_loss": generator,
        "disc_loss": discriminator,
        "base_loss": -share * math.log2(share) - (1 - share) * math.log2(1 - share),
        "base_accuracy": 1 - share,
        "disc_accuracy": ((scores > 0) == replaced).double().mean().item(),
        "disc_precision": precision_score(replaced, scores > 0),
        "disc_recall": recall_score(replaced, scores > 0),
        "disc_auc": roc_auc_score(replaced, scores),
        "masked_lm_accuracy": found.generator_MV.argmax(-1).eq(target[masked]).double().mean().item(),
        "sampled_masked_lm_accuracy": found.sampled_M.eq(target[masked]).double().mean().item(),
    }.items():
        assert figures[name] == pytest.approx(value, abs=1e-3 if name == "disc_auc" else 1e-4), name
    assert {"order_gap", "masked_lm_order_gap"} < set(figures) and abs(figures["order_gap"]) > 0.001
    assert criterion(model, given)[2]["discriminator"] == one[0]["discriminator"]  # a validation repeats
    criterion.order_gap = False
    logs = logs_of(criterion, model, given)
    with metrics.aggregate(new_root=True) as each:
        for log in logs:
            criterion.reduce_metrics([log])
    with metrics.aggregate(new_root=True) as together:
        criterion.reduce_metrics(logs)
    assert each.get_smoothed_values() == together.get_smoothed_values()
    wrapped = torch.nn.Sequential(model)  # as on one of several ranks of a training
    wrapped.forward = model.forward
    for kept, tensors in zip(pickle.loads(pickle.dumps(logs)), logs_of(criterion, wrapped, given), strict=True):
        assert len(str(kept["scores"])) < 20 and torch.equal(0 + kept["scores"], tensors["scores"])


def logs_of(criterion, model, given, rows=([0, 1, 2], [3, 4])):
    return [criterion(model, {**pick(given, r), "id": torch.tensor(r)})[2] for r in rows]


def pick(given, rows):
    net_input = {key: value[rows] for key, value in given["net_input"].items()}
    return {**given, "net_input": net_input, "target": given["target"][rows]}


def test_first_and_last_tokens_that_the_task_has_masked_stay_and_count_as_no_masks():
    model, criterion, given = model_of("t5"), criterion_of().eval(), batch()
    everything = {**given, "net_input": {**given["net_input"]}, "target": sentences()}
    everything["net_input"]["src_tokens"] = sentences().masked_fill(sentences().ne(PAD), MASK)
    read = []
    for part in (model.generator, model.discriminator):
        part.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    log = criterion(model, everything)[2]
    for tokens in read:
        assert all(tokens[sentences().eq(special)].eq(special).all() for special in (0, 2))
    assert log["masked"] == sentences().gt(2).sum() and log["sample_size"] == sentences().ne(PAD).sum()
    with criterion.whole_update([everything], lambda counts: counts):
        assert criterion.tokens_a_mask == log["sample_size"] / log["masked"]


def test_packed_documents_and_given_positions_reach_both_parts():
    model, given = model_of("learned"), batch(sentences(batch=2, length=12)[:1])
    documents, positions = torch.tensor([[0] * 6 + [1] * 6]), torch.arange(12).flip(0)[None]
    more = {"document_ids": documents, "position_ids": positions}
    seen = []
    for part in (model.generator, model.discriminator):
        part.register_forward_pre_hook(lambda _, args, given: seen.append(given), with_kwargs=True)
    criterion_of().eval()(model, {**given, "net_input": {**given["net_input"], **more}})
    assert all(given[name] is value for given in seen for name, value in more.items()) and len(seen) == 2


def test_the_generators_token_embeddings_begin_as_large_as_a_robertas():
    model = roberta("electra_learned", encoder_embed_dim=120)
    embeddings = [part.encoder.sentence_encoder.embed_tokens for part in (model.generator, model.discriminator)]
    narrow, wide = [table(torch.arange(4, 40)).std() for table in embeddings]
    assert narrow.item() == pytest.approx(wide.item(), rel=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_reaches_all_parameters_of_both_parts_and_is_rebuilt_from_its_settings(name):
    model = roberta(f"electra_{name}", encoder_layers=1).train()
    loss, _, _ = criterion_of().train()(model, batch())
    loss.backward()
    assert [key for key, gradient in gradients(model).items() if gradient is None] == []
    settings = {key: value for key, value in vars(model.args).items() if key != "arch"}
    again = roberta(f"electra_{name}", seed=2, **{**settings, "tokens_per_sample": 20})
    again.load_state_dict(model.state_dict())
    assert again.args.position_hparams == model.args.position_hparams
    for part in (again.discriminator, again.generator):
        assert {layer.self_attn.position_encoding.name for layer in part.encoder.sentence_encoder.layers} == {name}


def test_the_table_of_embeddings_has_one_name_and_one_average():
    model = roberta("electra_tupe_r")
    wide = [key for key, value in model.state_dict().items() if value.shape == (len(dictionary()), 24)]
    assert wide == ["discriminator.encoder.sentence_encoder.embed_tokens.weight"]
    ema = EMA(model, EMAConfig(ema_decay=0.5))
    for parameter in model.parameters():
        parameter.data.add_(1.0)
    ema.step(model)
    averaged = ema.get_model()
    for one, other in zip(model.parameters(), averaged.parameters(), strict=True):
        torch.testing.assert_close(one - other, torch.full_like(one, 0.5))
    # the copy reads its own table
    given = batch()["net_input"]["src_tokens"], batch()["target"]
    before = model.eval()(*given, random=torch.Generator().manual_seed(1)).generator_MV
    torch.nn.init.zeros_(averaged.discriminator.encoder.sentence_encoder.embed_tokens.weight)
    assert averaged.eval()(*given).generator_MV.unique().numel() < before.unique().numel()
    assert model(*given, random=torch.Generator().manual_seed(1)).generator_MV.equal(before)


@pytest.mark.parametrize("name", ["learned", "tupe_r"])
def test_unpadded_and_recomputed_layers_give_the_same_gradients(name):
    found = []
    for settings in ({}, {"unpad": True}, {"checkpoint_activations": True}):
        model = roberta(f"electra_{name}", dropout=0.0, attention_dropout=0.0, **settings).train()
        torch.manual_seed(3)
        criterion_of().train()(model, batch())[0].backward()
        found.append(gradients(model))
    for other in found[1:]:
        for key, gradient in found[0].items():
            torch.testing.assert_close(other[key], gradient, atol=1e-5, rtol=1e-4)


def test_half_precision_trains_with_losses_in_full_precision():
    model, exact = model_of("tupe_r").half(), model_of("tupe_r")
    loss, count, log = criterion_of().train()(model, batch())
    loss.backward()
    assert loss.dtype == torch.float32 and all(g.isfinite().all() for g in gradients(model).values())
    expected = criterion_of().eval()(exact, batch())[2]["generator"]
    assert float(log["generator"]) == pytest.approx(float(expected), rel=0.02)


def test_text_without_a_masked_token_trains_the_discriminator_alone():
    given = batch()
    given["net_input"]["src_tokens"], given["target"] = sentences(), torch.full_like(sentences(), PAD)
    model = roberta("electra_t5").train()
    loss, _, log = criterion_of().train()(model, given)
    loss.backward()
    assert loss.isfinite() and log["replaced"] == 0
    assert all(gradient is not None for gradient in gradients(model).values())


def test_a_first_token_that_the_generator_replaces_is_no_error():
    model = model_of("tupe_a")
    tokens = sentences(batch=1)
    target = torch.full_like(tokens, PAD)
    target[:, 0], tokens[:, 0] = tokens[:, 0], MASK
    for seed in range(3):
        model(tokens, target, random=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "ending, sizes, generator",
    [
        ("", (12, 768, 3072, 12), (256, 1024, 4)),
        ("_small", (12, 256, 1024, 4), (64, 256, 1)),
        ("_large", (24, 1024, 4096, 16), (256, 1024, 4)),
    ],
)
def test_sizes_are_those_of_google_research_electra(ending, sizes, generator):
    args = Namespace()
    ARCH_CONFIG_REGISTRY[f"electra_tupe_r{ending}"](args)
    names = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")
    assert tuple(getattr(args, name) for name in names) == sizes
    small = electra.narrower(args, electra.generator_heads(args.generator_size, args.encoder_attention_heads))
    assert tuple(getattr(small, name) for name in names[1:]) == generator


def test_a_rounded_share_is_taken_for_the_whole_heads_that_it_means():
    assert [electra.generator_heads(text, 12) for text in ("0.333", "1/3", "0.25", "1", "1/12")] == [4, 4, 3, 12, 1]


@pytest.mark.parametrize("flag", ["generator_weight", "discriminator_weight"])
def test_a_weight_that_trains_nothing_is_refused(flag):
    with pytest.raises(ValueError, match=f"--{flag.replace('_', '-')} 0: give a number above 0"):
        criterion_of(**{flag: 0})


def test_weights_of_other_models_are_refused_with_what_to_do():
    plain, both = roberta("roberta_t5"), roberta("electra_t5")
    with pytest.raises(ValueError, match="the checkpoint has no discriminator.*warm-start IN OUT --arch electra_NAME"):
        both.load_state_dict(plain.state_dict())
    with pytest.raises(ValueError, match="the checkpoint is one of ELECTRA: .*export-discriminator"):
        plain.load_state_dict(both.state_dict())
    with pytest.raises(ValueError, match="the checkpoint's discriminator was trained with .pe:t5"):
        roberta("electra_shaw").load_state_dict(both.state_dict())


def test_a_criterion_or_a_task_of_another_model_is_one_line():
    given = batch()
    with pytest.raises(ValueError, match="--criterion electra trains a generator and a .*: use --arch electra_NAME"):
        criterion_of()(roberta("roberta_t5"), given)
    with pytest.raises(ValueError, match="electra_NAME trains with --criterion electra"):
        roberta("electra_t5")(**given["net_input"], masked_tokens=given["target"].ne(PAD))
    task = SimpleNamespace(source_dictionary=dictionary(), target_dictionary=dictionary())
    with pytest.raises(ValueError, match="--criterion electra needs a text with masks: use --task masked_lm"):
        Electra(ElectraConfig(), task)
    task.cfg = SimpleNamespace(skip_masking=True)
    with pytest.raises(ValueError, match="--criterion electra needs a text with masks: leave --skip-masking out"):
        Electra(ElectraConfig(), task)


# --- with fairseq's commands ---


def training(data, save_dir, *more, arch="electra_tupe_r"):
    flags = "--criterion electra --generator-size 1/2 --required-batch-size-multiple 1 --no-epoch-checkpoints"
    return masked_lm(data, save_dir, *flags.split(), *more, arch=arch)


def take_the_likeliest():
    electra.sample = lambda logits, pad, random=None: logits.index_fill(1, torch.tensor(pad), -1e9).argmax(-1)


def test_two_ranks_and_two_passes_train_as_one_rank_with_twice_the_batch(data, tmp_path):
    """The masked tokens of the two halves differ in number, so this takes the means over the whole update."""
    more = ["--max-update", 2, "--batch-size"]
    forked.train(training(data, tmp_path / "one", *more, 64), tmp_path / "log", before=take_the_likeliest)
    halves = training(data, tmp_path / "passes", *more, 32, "--update-freq", 2)
    forked.train(halves, tmp_path / "log", before=take_the_likeliest)
    halves = training(data, tmp_path / "ranks", *more, 32, "--ddp-backend", "pytorch_ddp")
    for rank in forked.ranks(2, halves, tmp_path / "logs", before=lambda rank: take_the_likeliest()):
        assert rank.wait() == 0, rank.printed()
    expected = forked.weights(tmp_path / "one")
    for other in ("passes", "ranks"):
        found = forked.weights(tmp_path / other)
        for key, value in expected.items():
            assert torch.allclose(found[key], value, atol=1e-5, rtol=1e-5), (other, key)


def test_a_run_with_ema_and_order_gap_resumes_as_if_it_had_not_stopped_and_validates(data, tmp_path):
    more = ["--store-ema", "--ema-fp32", "--order-gap", "--dropout", 0.1, "--log-format", "json"]
    whole = forked.train(training(data, tmp_path / "whole", *more, "--max-update", 4), tmp_path / "log")
    forked.train(training(data, tmp_path / "parts", *more, "--max-update", 2), tmp_path / "log")
    forked.train(training(data, tmp_path / "parts", *more, "--max-update", 4), tmp_path / "log")
    found, expected = forked.weights(tmp_path / "parts"), forked.weights(tmp_path / "whole")
    assert all(found[key].equal(value) for key, value in expected.items())
    (loss,) = re.findall(r'"valid_disc_loss": "([\d.]+)".*"valid_num_updates": "4"', whole)
    assert '"valid_order_gap"' in whole and '"valid_disc_auc"' in whole and '"valid_base_loss"' in whole
    validation = [data, "--user-dir", USER_DIR, "--cpu", "--path", tmp_path / "parts" / "checkpoint_last.pt"]
    validation += "--task masked_lm --batch-size 4 --required-batch-size-multiple 1 --log-format json".split()
    assert f'"valid_disc_loss": "{loss}"' in forked.run("validate", validation, tmp_path / "log")
