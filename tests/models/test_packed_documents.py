"""Documents packed into one sequence come out as if each had been computed alone."""

from unittest import mock

import pytest
import torch
from loops import scale_up_positions
from small_models import NO_DROPOUT, decoder, roberta, sentences, stack_of, transformer, translation_batch

from fairseq_relpos.backends.base import Mask
from fairseq_relpos.encodings import ENCODINGS, names_for

PAD = 1
LENGTHS = [[5, 1, 6], [4, 8]]  # of the documents of each row


def packed(left=False):
    """Tokens [2, 14] with pads at the end, or at the beginning, and the document of each."""
    tokens, documents = torch.full((2, 14), PAD), torch.zeros(2, 14, dtype=torch.long)
    for row, lengths in enumerate(LENGTHS):
        start = 14 - sum(lengths) if left else 0
        for number, length in enumerate(lengths):
            tokens[row, start : start + length] = torch.randint(4, 40, (length,))
            tokens[row, start] = 0
            documents[row, start : start + length] = 7 - number
            start += length
    return tokens, documents


def alone(tokens, documents):
    """(row, slots) of each document."""
    for row in range(len(tokens)):
        for number in documents[row][tokens[row].ne(PAD)].unique():
            yield row, (documents[row].eq(number) & tokens[row].ne(PAD)).nonzero()[:, 0]


def assert_exact(run, parameters, tokens, documents, **how):
    """run(tokens, **ids) -> [B, T, E]: outputs, and the gradient of a sum over them, are those of the
    documents alone."""
    out = run(tokens, document_ids=documents, **how)
    weights = torch.randn_like(out)
    together, separate = 0, 0
    for row, slots in alone(tokens, documents):
        expected = run(tokens[row, slots][None])[0]
        assert (out[row, slots] - expected).abs().max() <= 1e-10
        together = together + (weights[row, slots] * out[row, slots]).sum()
        separate = separate + (weights[row, slots] * expected).sum()
    gradients = [torch.autograd.grad(x, parameters, allow_unused=True) for x in (together, separate)]
    for found, wanted in zip(*gradients, strict=True):
        zero = torch.zeros(())
        found, wanted = (zero if x is None else x for x in (found, wanted))
        assert (found - wanted).abs().max() <= 1e-10 * max(1, wanted.abs().max())


def encoder(arch, **settings):
    model = roberta(arch, **NO_DROPOUT, **settings).double()
    model.check_first_token = None
    scale_up_positions(stack_of(model))
    # in evaluation a method may not draw its positions; gradients are the same
    model.eval()
    return lambda tokens, **ids: model(tokens, features_only=True, **ids)[0], list(model.parameters())


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", names_for(causal=False))
def test_in_an_encoder(name, left):
    assert_exact(*encoder(f"roberta_{name}"), *packed(left))


def test_the_layers_share_one_mask():
    run, _ = encoder("roberta_t5", encoder_layers=3, attention_backend="eager")
    made, make = [], Mask.make
    with mock.patch.object(Mask, "make", lambda *call: made.append(call) or make(*call)):
        tokens, documents = packed()
        run(tokens, document_ids=documents)
    assert len(made) == 1


@pytest.mark.parametrize(
    "name, hparams",
    [
        ("at5", "length=input"),
        ("fire", "threshold=3"),
        ("tupe_r", "cls_reset=paper"),
        ("deberta", "buckets=4 max_distance=8"),
    ],
)
def test_with_other_options(name, hparams):
    assert_exact(*encoder(f"roberta_{name}", position_hparams=hparams), *packed())


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_in_a_causal_stack(name):
    stack = decoder(name).double()

    def run(tokens, **ids):
        with stack.embed_positions.given(**ids):
            return stack(tokens, features_only=True)[0]

    assert_exact(run, list(stack.parameters()), *packed())


@pytest.mark.parametrize("backend", ["eager", "lean", "sdpa"])
@pytest.mark.parametrize("name", ["t5", "tupe_r", "none"])
def test_with_every_backend(name, backend):
    assert_exact(*encoder(f"roberta_{name}", attention_backend=backend), *packed())


@pytest.mark.parametrize("settings", [{"checkpoint_activations": True}, {"unpad": True}, {"attention_window": "3 2=4"}])
def test_however_the_layers_run(settings):
    assert_exact(*encoder("roberta_m4", **settings), *packed())


def test_given_ids_that_count_within_documents_say_the_same():
    run, _ = encoder("roberta_tupe_r")
    tokens, documents = packed()
    ids = torch.zeros_like(tokens)
    for row, slots in alone(tokens, documents):
        ids[row, slots] = torch.arange(len(slots))
    assert torch.equal(run(tokens, document_ids=documents), run(tokens, document_ids=documents, position_ids=ids))


def test_together_they_may_be_longer_than_an_absolute_table():
    run, parameters = encoder("roberta_learned", max_positions=8)
    assert_exact(run, parameters, *packed())
    with pytest.raises(ValueError, match="a sequence of 12 tokens, but this position encoding has 8"):
        run(packed()[0])


def test_what_a_task_puts_into_net_input_reaches_the_model():
    model = roberta("roberta_tupe_r", **NO_DROPOUT).eval()
    model.check_first_token = None
    tokens, documents = packed()
    net_input = {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1), "document_ids": documents}
    out = model(**net_input, masked_tokens=tokens.eq(0))[0]
    torch.testing.assert_close(out, model(tokens, document_ids=documents)[0][tokens.eq(0)])


@torch.no_grad()
def test_positions_alone_move_and_documents_still_meet():
    run, _ = encoder("roberta_learned")
    tokens = sentences()
    plain = run(tokens)
    slots = torch.arange(tokens.size(1)).expand_as(tokens)
    torch.testing.assert_close(run(tokens, position_ids=slots), plain)
    assert not torch.allclose(run(tokens, position_ids=slots + 3), plain)


@torch.no_grad()
def test_the_decoder_of_a_translation_model_takes_them_in_a_block():
    model = transformer("transformer_t5", **NO_DROPOUT).eval()
    source, lengths, previous = translation_batch()
    documents = torch.tensor([[1, 1, 1, 2, 2, 2, 2]] * 3)
    plain = model(source, lengths, previous)[0]
    with model.decoder.embed_positions.given(document_ids=documents):
        kept_apart = model(source, lengths, previous)[0]
    torch.testing.assert_close(kept_apart[:, :3], plain[:, :3])
    assert not torch.allclose(kept_apart[:, 3:], plain[:, 3:])
    assert torch.equal(model(source, lengths, previous)[0], plain)


def test_wrong_ids_are_refused_in_one_line():
    tokens = sentences()
    ids = torch.arange(tokens.size(1)).expand_as(tokens)
    run, _ = encoder("roberta_learned")
    for given, line in [
        (
            {"position_ids": ids[:, 1:]},
            r"position ids of shape \(3, 16\): one for each of the 17 keys is needed, .* \(3, 17\)",
        ),
        ({"document_ids": ids[:1]}, r"document ids of shape \(1, 17\): one for each of the 17 keys is needed, .*"),
        ({"position_ids": ids - 1}, "position ids count from 0, but one of these is -1"),
        ({"position_ids": ids.double()}, "position ids of type torch.float64: integers are needed"),
        (
            {"position_ids": ids + 20},
            "position id 36, but this position encoding has 32 absolute positions, 0 to 31: train with "
            "--max-positions 37 or more, give smaller ids, or choose a relative encoding",
        ),
    ]:
        with pytest.raises(ValueError, match=f"^{line}$"):
            run(tokens, **given)
    t5, _ = encoder("roberta_t5")
    assert t5(tokens, position_ids=ids + 20).isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("name", ["none", "learned", "t5", "rope", "transformer_xl", "tupe_a", "fire", "cope"])
def test_a_decoding_step_of_packed_documents_equals_the_full_pass(name):
    stack = decoder(name)
    tokens = torch.randint(4, 40, (2, 9))
    documents = torch.tensor([[1] * 4 + [2] * 5, [3] * 9])
    with stack.embed_positions.given(document_ids=documents):
        full = stack(tokens)[0]
    state = {}
    for step in range(1, 10):
        with stack.embed_positions.given(document_ids=documents[:, :step]):
            last = stack(tokens[:, :step], incremental_state=state)[0]
        torch.testing.assert_close(last[:, 0], full[:, step - 1], atol=1e-5, rtol=1e-5)
