"""roberta_NAME inside fairseq: what must stay stock, what must be the encoding's."""

import copy
import pickle
import re
import threading
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.roberta import roberta_base_architecture
from loops import scale_up, scale_up_positions
from small_models import ABSOLUTE, KINDS, NO_DROPOUT, SIZES, dictionary, gradients, moved, roberta, sentences, stack_of

from fairseq_relpos.encodings import names_for
from fairseq_relpos.models.roberta import FirstTokenCheck
from fairseq_relpos.once import log_once
from fairseq_relpos.signature import SignatureMismatch

NAMES = names_for(causal=False)


def loss_of(model, tokens, seed=3):
    torch.manual_seed(seed)
    logits = model(tokens)[0].float()
    targets = tokens.roll(1, 1)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize("left", [False, True])
def test_pads_may_lie_beyond_the_absolute_positions(name, left):
    """--required-seq-len-multiple makes such batches."""
    model = moved(roberta(f"roberta_{name}", max_positions=14)).eval()
    lengths = (14, 5, 9)
    rows = [torch.tensor([0, *range(5, 3 + n), 2]) for n in lengths]
    batches = [torch.full((3, 14), 1), torch.full((3, 16), 1)]
    for batch in batches:
        for place, row in enumerate(rows):
            batch[place, batch.size(1) - len(row) if left else 0 :][: len(row)] = row
    exact, padded = (model(batch)[0] for batch in batches)
    for place, n in enumerate(lengths):
        ours, theirs = (x[place, -n:] if left else x[place, :n] for x in (padded, exact))
        torch.testing.assert_close(ours, theirs, atol=3e-6, rtol=1e-5)
    padded.sum().backward()
    with pytest.raises(ValueError, match="a sequence of 15 tokens"):
        model(torch.randint(4, 40, (1, 15)))


def test_quantisation_noise_is_added_once_where_positions_use_the_projections_of_the_words():
    model = roberta("roberta_deberta", position_hparams="share_att_key=True", quant_noise_pq=0.5, **NO_DROPOUT).train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(sentences())
    for name, p in model.named_parameters():
        if re.search(r"layers\.0\.self_attn\.[qk]_proj\.weight", name):
            kept = p != 0
            torch.testing.assert_close(p[kept], 2 * before[name][kept])
            assert not kept.all() and kept.any()


def test_an_architecture_of_ones_own_has_to_name_an_encoding_and_nothing_else():
    for encoding, given in (("rope", {}), ("rope", {"position_hparams": "base=10000"}), (None, {})):
        args = Namespace(**SIZES, **given, arch="own", position_encoding=encoding)
        roberta_base_architecture(args)
        task = SimpleNamespace(source_dictionary=dictionary())
        if encoding:
            assert "base=10000" in ARCH_MODEL_REGISTRY["roberta_t5"].build_model(args, task).args.position_hparams
        else:
            with pytest.raises(ValueError, match="--arch own names no position encoding"):
                ARCH_MODEL_REGISTRY["roberta_t5"].build_model(args, task)


@pytest.mark.parametrize("flag", ["checkpoint_activations", "torch_compile", "unpad"])
def test_a_model_whose_layers_run_otherwise_can_be_pickled(flag):
    model = roberta("roberta_t5", **{flag: True}).eval()
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(again(sentences())[0], model(sentences())[0])
        layer = stack_of(again).layers[0]
        assert layer.forward.args == (layer,)


@pytest.mark.parametrize("flags", [{}, {"unpad": True}])
def test_a_pass_of_another_thread_changes_nothing(flags):
    model = roberta("roberta_t5", **flags).eval()
    ours, others = sentences(), sentences().flip(0)
    with torch.no_grad():
        alone = model(ours)[0]
        other = torch.no_grad()(lambda: model(others))

        def meanwhile(*unused):
            handle.remove()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

        handle = stack_of(model).layers[1].fc1.register_forward_pre_hook(meanwhile)
        assert torch.equal(model(ours)[0], alone) and not torch.equal(alone, other()[0])


def test_token_embeddings_are_scaled_on_request():
    plain, scaled = (stack_of(roberta("roberta_sinusoidal", no_scale_embedding=no)).eval() for no in (True, False))
    scaled.load_state_dict(plain.state_dict())
    tokens = sentences()
    (_, words), (_, times) = plain.forward_embedding(tokens), scaled.forward_embedding(tokens)
    assert torch.allclose(times, words * SIZES["encoder_embed_dim"] ** 0.5)
    assert not torch.equal(scaled.forward_embedding(tokens)[0], plain.forward_embedding(tokens)[0])


@pytest.mark.parametrize("name", NAMES)
def test_what_layers_share_is_evaluated_once_per_pass_and_stored_once(name):
    model = roberta(f"roberta_{name}")
    part = stack_of(model).embed_positions
    evaluations = []
    share = part.share
    part.share = lambda pos: evaluations.append(pos) or share(pos)
    model(sentences())
    assert len(evaluations) == 1
    in_layers = [k for k in model.state_dict() if re.search(r"layers\.\d+.*position_encoding", k)]
    layer_part = stack_of(model).layers[0].self_attn.position_encoding
    assert len(in_layers) == 3 * len(layer_part.state_dict())
    assert layer_part.per_layer or not any(".stack." in key for key in in_layers)
    del part.share


def test_a_dense_bias_is_one_tensor_for_all_layers_and_the_whole_batch():
    model = roberta("roberta_tupe_r")
    model(sentences())
    pos = stack_of(model).embed_positions.current_pass.positions
    assert pos.shared.bias.shape == (1, 3, 17, 17)
    q = torch.randn(3, 3, 17, 8)
    biases = [layer.self_attn.position_encoding.terms(q, q, pos).bias for layer in stack_of(model).layers]
    assert all(bias is pos.shared.bias for bias in biases)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("layerdrop", [0.0, 0.5])
def test_checkpointed_activations_give_the_same_gradients(name, layerdrop):
    """Also with two forward passes before the backward, of different lengths."""
    results = []
    for recompute in (False, True):
        model = roberta(f"roberta_{name}", checkpoint_activations=recompute, encoder_layerdrop=layerdrop).train()
        scale_up_positions(stack_of(model), 0.2)
        first, second = sentences(), sentences(batch=2, length=9)
        (loss_of(model, first) + loss_of(model, second)).backward()
        results.append(gradients(model))
    plain, recomputed = results
    for key in plain:
        if plain[key] is None:  # a dropped layer
            assert recomputed[key] is None, key
        else:
            torch.testing.assert_close(recomputed[key], plain[key], atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("recompute", [False, True])
def test_distributed_data_parallel_with_gradient_accumulation(name, recompute, tmp_path):
    """torch's own DistributedDataParallel fails where a parameter is used outside of the
    graph that it watches, or is marked ready twice."""
    import torch.distributed as dist

    model = roberta(f"roberta_{name}", checkpoint_activations=recompute)
    plain = copy.deepcopy(model)
    dist.init_process_group("gloo", f"file://{tmp_path}/store", world_size=1, rank=0)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        batches = [sentences(), sentences(batch=2, length=9)]
        with wrapped.no_sync():
            loss_of(wrapped, batches[0]).backward()
        loss_of(wrapped, batches[1]).backward()
    finally:
        dist.destroy_process_group()
    for batch in batches:
        loss_of(plain, batch).backward()
    for key, grad in gradients(plain).items():
        torch.testing.assert_close(gradients(model)[key], grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_finite_and_keeps_positions_in_float32(name, dtype):
    model = roberta(f"roberta_{name}").eval()
    expected = model(sentences())[0]
    model = model.to(dtype)
    model.load_state_dict(copy.deepcopy(model.state_dict()))  # the signature survives
    found = model(sentences())[0]
    assert found.dtype == dtype and found.isfinite().all()
    error = (found.float() - expected).abs().max() / expected.abs().max()
    assert error < (0.01 if dtype == torch.float16 else 0.05)
    shared = stack_of(model).embed_positions.current_pass.positions.shared
    if shared is not None:
        tensors = shared if isinstance(shared, tuple) else [getattr(shared, "bias", shared)]
        assert all(tensor.dtype == torch.float32 for tensor in tensors)


@pytest.mark.parametrize("name", KINDS)
def test_a_copy_of_a_used_model_is_independent(name):
    """EMA and ensembles: the copy's layers must follow the copy's stack."""
    model = roberta(f"roberta_{name}").eval()
    tokens = sentences()
    expected = model(tokens)[0].clone()
    other = copy.deepcopy(model)
    scale_up_positions(stack_of(other))
    changed = other(tokens)[0]
    assert torch.equal(model(tokens)[0], expected)
    assert not torch.equal(changed, expected)
    parts = {id(layer.self_attn.current_pass) for layer in stack_of(other).layers}
    assert parts == {id(stack_of(other).embed_positions.current_pass)}


@pytest.mark.parametrize("name", KINDS)
def test_averaged_checkpoints_load(name):
    states = [roberta(f"roberta_{name}", seed=seed).state_dict() for seed in (1, 2, 3)]
    mean = {key: torch.stack([s[key] for s in states]).sum(0) / 3 for key in states[0]}
    roberta(f"roberta_{name}").load_state_dict(mean)


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_that_is_not_chosen_computes_nothing_but_content(name):
    """Whatever the layers of the encoding share."""
    model = roberta(f"roberta_{name}", position_layers="first").eval()
    stack = stack_of(model)
    scale_up_positions(stack_of(model))
    model(sentences())
    q = torch.randn(3, 3, 17, 8)
    for layer in stack.layers[1:]:
        attention = layer.self_attn
        terms = attention.position_encoding.terms(q, q, attention.current_pass.positions)
        assert terms.tensors().keys() == {"q_BHTD", "k_BHSD"}


def test_per_layer_moves_the_table_into_each_layer():
    model = roberta("roberta_t5", position_hparams="per_layer=True")
    keys = [k for k in model.state_dict() if k.endswith(".b")]
    assert len(keys) == 3 and all("self_attn.position_encoding.stack.b" in k for k in keys)
    loss_of(model, sentences()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_attention_weights_can_be_read():
    model = roberta("roberta_tupe_r").eval()
    stack = stack_of(model)
    tokens = sentences()
    stack.embed_positions(tokens)
    x = torch.randn(17, 3, 24)
    attention = stack.layers[0].self_attn
    _, mean = attention(x, x, x, key_padding_mask=tokens.eq(1), need_weights=True)
    _, each = attention(x, x, x, key_padding_mask=tokens.eq(1), need_head_weights=True)
    assert mean.shape == (3, 17, 17) and each.shape == (3, 3, 17, 17)
    torch.testing.assert_close(each.mean(0), mean)
    torch.testing.assert_close(mean.sum(-1), torch.ones(3, 17))
    assert mean[2][:, tokens[2].eq(1)].abs().max() == 0


def test_a_layer_called_without_its_stack_says_so():
    layer = stack_of(roberta("roberta_t5")).layers[0]
    x = torch.randn(5, 1, 24)
    with pytest.raises(RuntimeError, match="embed_positions on the same tokens first"):
        layer(x, None)


@pytest.mark.parametrize(
    "other, settings",
    [
        ("roberta_t5", {"position_hparams": "max_distance=64"}),
        ("roberta_t5", {"position_layers": "first"}),
        ("roberta_bert_ad", {}),
    ],
)
def test_weights_of_another_encoding_are_refused(other, settings):
    """Shapes agree in the first two; only the signature can tell."""
    state = roberta("roberta_t5").state_dict()
    with pytest.raises(SignatureMismatch, match=r"trained with \[pe:t5\|.*asked for \[pe:"):
        roberta(other, **settings).load_state_dict(copy.deepcopy(state))


def test_weights_of_the_same_function_load_whatever_the_dropout():
    state = roberta("roberta_at5", position_hparams="mlp_dropout=0.1").state_dict()
    roberta("roberta_at5").load_state_dict(state)


def test_rope_is_rescaled_on_a_trained_model_and_the_log_says_so(caplog):
    log_once.cache_clear()
    trained = scale_up(roberta("roberta_rope"), 0.2).eval()
    known = "base=10000 scaling=none factor=1 trained_length=None fraction=1 kind=partial"
    assert trained.args.position_hparams == known
    tokens = torch.arange(4, 30)[None]
    for hparams in ("scaling=interpolation factor=2", "scaling=ntk factor=2", "scaling=yarn factor=2 trained_length=9"):
        with caplog.at_level("INFO"):
            other = roberta("roberta_rope", seed=2, position_hparams=hparams).eval()
        other.load_state_dict(trained.state_dict())
        assert not torch.equal(other(tokens)[0], trained(tokens)[0])
        assert f"rope: angles are rescaled for longer inputs ({hparams.split(' trained')[0]})" in caplog.text
        trained.load_state_dict(other.state_dict())
    with pytest.raises(SignatureMismatch, match=r"\[pe:rope\|base:10000\|layers:all\], asked for \[pe:rope\|base:50\|"):
        roberta("roberta_rope", position_hparams="base=50").load_state_dict(trained.state_dict())


def test_a_file_without_signature_is_named_in_the_log(caplog):
    state = roberta("roberta_t5").state_dict()
    del state["encoder.sentence_encoder.embed_positions.encoding_version"]
    log_once.cache_clear()
    with caplog.at_level("INFO"):
        roberta("roberta_t5").load_state_dict(state)
    assert "without a position-encoding signature" in caplog.text


@pytest.mark.parametrize("name", ["learned", "bert_r", "tupe_a", "tupe_r_tie_cls", "bert_ad"])
def test_sequences_beyond_an_absolute_table_are_refused(name):
    model = roberta(f"roberta_{name}")
    tokens = sentences(batch=1, length=33)
    with pytest.raises(ValueError, match="33 tokens.*32 absolute positions.*--max-positions 33"):
        model(tokens)
    with pytest.raises(ValueError, match="--tokens-per-sample 64 exceeds the 32"):
        roberta(f"roberta_{name}", tokens_per_sample=64)


@pytest.mark.parametrize("name", ["learned", "bert_r", "abs_m4m", "tupe_a", "tupe_r_tie_cls", "bert_ad"])
def test_a_trained_models_positions_end_where_they_do(name):
    # a signature has k, which follows from the length unless it is given
    settings = {"position_hparams": "max_distance=16"} if name == "abs_m4m" else {}
    trained = roberta(f"roberta_{name}", **settings).state_dict()
    for asked_for in (64, 16):
        other = roberta(f"roberta_{name}", max_positions=asked_for, **settings)
        message = f"positions end at 32, {asked_for} are asked for .*--max-positions 32"
        with pytest.raises(ValueError, match=message) as error:
            other.load_state_dict(dict(trained), model_cfg=other.args)
        assert ("and no longer input" in str(error.value)) == (asked_for == 64)
        assert "not of this model" not in str(error.value)


@pytest.mark.parametrize("name", ["none", "sinusoidal", "t5", "t5_nob", "at5", "at5_nob"])
def test_relative_encodings_take_longer_sequences(name):
    model = roberta(f"roberta_{name}", tokens_per_sample=64).eval()
    assert model(sentences(batch=1, length=50))[0].isfinite().all()


class TestFirstToken:
    WITHOUT = torch.tensor([[5, 6, 2], [7, 8, 2]])
    WITH = torch.tensor([[5, 6, 2], [0, 8, 2]])

    def test_sentences_without_cls_are_refused_by_who_reads_it(self):
        model = roberta("roberta_tupe_a")
        with pytest.raises(ValueError, match="'w1' instead of <s>.*--init-token 0"):
            model(self.WITHOUT, features_only=True)
        model(self.WITH, features_only=True)
        roberta("roberta_tupe_a_tie_cls")(self.WITHOUT, features_only=True)

    def test_masked_batches_need_some_sentences_before_the_verdict(self):
        check = FirstTokenCheck(dictionary())
        check(self.WITHOUT, unmasked=False)
        with pytest.raises(ValueError, match="instead of <s>"):
            check(self.WITHOUT, unmasked=False)

    def test_one_cls_ends_the_watch_over_masked_batches(self):
        check = FirstTokenCheck(dictionary())
        check(self.WITH, unmasked=False)
        for _ in range(9):
            check(self.WITHOUT, unmasked=False)

    def test_a_masked_cls_counts_for_nothing(self):
        check = FirstTokenCheck(dictionary())
        masked = torch.full((9, 3), dictionary().index("<mask>"))
        check(masked, unmasked=False)

    def test_padding_to_the_left_is_skipped(self):
        FirstTokenCheck(dictionary())(torch.tensor([[1, 1, 0, 5]]), unmasked=True)


def test_no_layer_may_take_the_fused_path_of_fairseq_0_12_2():
    assert all(layer.can_use_fastpath is False for layer in stack_of(roberta("roberta_t5")).layers)
