"""``fairseq-relpos order-gap``: does a model use the order of the tokens at all, and do all of its heads read them?

The loss on a split, and the loss on the same split with the tokens of each block permuted and
the targets moved along: the same words to fill in from the same words, in no order. A model
that reads a block as a bag of words has a gap of 0, and comparing its position encoding with
another's says nothing.

A head whose attention goes to the first token alone in every layer, whatever the text is, reads nothing: it is lost.
"""

import argparse
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..atomic_files import write_json
from ..encodings import StackPart
from .attention_plot import attention_weights
from .checkpoint import choose_stack, load_model
from .markdown import markdown_table

TOKENS_PER_BATCH = 8192
#: blocks of a split whose attention is looked at
BLOCKS_LOOKED_AT = 50
#: a head is lost where the first token has a larger share of its attention in every layer
LOST = 0.99


@dataclass
class OrderGap:
    """The result for one split; losses are in nats per masked token."""

    checkpoint: str
    split: str
    loss: float
    permuted: float
    blocks: int
    masked_tokens: int
    #: a digest of all inputs and targets: two results are comparable only if it is the same
    digest: str
    #: layer -> head -> share of the attention that the first token has, a mean over the other tokens of some blocks;
    #: empty for stock fairseq's attention
    first_token: list[list[float]]

    @property
    def gap(self) -> float:
        return self.permuted - self.loss


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__.split("\n\n")[1].replace("\n", " ")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .pt file that fairseq-train saved")
    parser.add_argument("data", metavar="DATA", help="folder that fairseq-preprocess wrote")
    parser.add_argument("--split", default="valid", metavar="A,B", help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=1, help="of masks and permutations, whatever the training's (default: %(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the numbers here, too")


def run(args: argparse.Namespace) -> None:
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)  # before the work
    gaps = measure(args.checkpoint, args.data, args.split.split(","), args.seed)
    head = ["split", "loss (nats)", "permuted (nats)", "gap (nats)", "blocks", "masked tokens", "digest"]
    rows = []
    for g in gaps:
        losses = f"{g.loss:.4f}", f"{g.permuted:.4f}", f"{round(g.gap, 4) + 0.0:+.4f}"  # + 0.0: no -0.0000
        rows.append([g.split, *losses, f"{g.blocks:,}", f"{g.masked_tokens:,}", g.digest])
    print(markdown_table(head, rows))
    for gap in gaps:
        for layer, shares in enumerate(gap.first_token, 1):
            print(f"{gap.split}, layer {layer}: attention to the first token {', '.join(f'{x:.1%}' for x in shares)}")
        for head_number in lost_heads(gap.first_token):
            print(f"{gap.split}: head {head_number} is lost: in every layer it attends to the first token alone")
    if args.json:
        write_json(args.json, [asdict(gap) for gap in gaps])


def measure(checkpoint: str | Path, data: str | Path, splits: Sequence[str], seed: int = 1) -> list[OrderGap]:
    """Measures one OrderGap for each split."""
    from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss

    model, _, task = load_model(checkpoint, data, seed)
    if not hasattr(task, "mask_idx"):
        raise ValueError(f"{checkpoint} was not trained with --task masked_lm: order-gap needs masks")
    if torch.cuda.is_available():
        model.cuda()
    criterion = MaskedLmLoss(MaskedLmConfig(tpu=False), task).eval()
    return [gap_of_split(model, task, criterion, split, seed, str(checkpoint)) for split in splits]


def gap_of_split(model: Any, task: Any, criterion: Any, split: str, seed: int, checkpoint: str) -> OrderGap:
    from ..criterions.masked_lm_order_gap import permute_blocks

    _, stack = choose_stack(model, "encoder")
    totals = {"plain": 0.0, "permuted": 0.0}
    shares: list[torch.Tensor] = []
    masked = blocks = digest = 0
    for sample in every_sample(model, task, split):
        permuted = permute_blocks(sample, task.source_dictionary.pad(), seed)
        for kind, batch in (("plain", sample), ("permuted", permuted)):
            loss, count, _ = task.valid_step(batch, model, criterion)
            totals[kind] += float(loss)
        looked_at = BLOCKS_LOOKED_AT - len(shares) if isinstance(stack.embed_positions, StackPart) else 0
        for block in sample["net_input"]["src_tokens"][:looked_at]:
            shares.append(attention_to_first_token(stack, block[block != task.source_dictionary.pad()]))
        masked += int(count)
        blocks += len(sample["id"])
        for tensor in (sample["id"], sample["net_input"]["src_tokens"], sample["target"]):
            digest = zlib.crc32(tensor.cpu().numpy().tobytes(), digest)
    expected = len(task.dataset(split))
    if blocks != expected:
        raise RuntimeError(f"{split}: {blocks} of {expected} blocks were evaluated")
    return OrderGap(
        checkpoint=checkpoint,
        split=split,
        loss=totals["plain"] / masked,
        permuted=totals["permuted"] / masked,
        blocks=blocks,
        masked_tokens=masked,
        digest=f"{digest:08x}",
        first_token=torch.stack(shares).mean(0).tolist() if shares else [],
    )


def attention_to_first_token(stack: Any, tokens_T: torch.Tensor) -> torch.Tensor:
    """Returns the share of its attention that each head of each layer gives to the first token, [N, H]: a mean over the
    other tokens."""
    return attention_weights(stack, tokens_T[None])[:, :, 1:, 0].mean(-1)


def lost_heads(first_token: Sequence[Sequence[float]]) -> list[int]:
    """Returns the numbers, from 1, of the heads that attend to the first token alone in every layer."""
    return [number for number, shares in enumerate(zip(*first_token), 1) if min(shares) > LOST]


def every_sample(model: Any, task: Any, split: str) -> Iterator[Any]:
    """Yields all batches of a split, on the model's device, masked as in every validation. fairseq draws the masks of a
    block from the seed, the epoch (1 in validation) and the number of the block."""
    from fairseq import utils

    task.load_dataset(split)
    batches = task.get_batch_iterator(
        task.dataset(split),
        max_tokens=TOKENS_PER_BATCH,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        # the default, 8, would leave sentences out
        required_batch_size_multiple=1,
        disable_iterator_cache=True,
    ).next_epoch_itr(shuffle=False)
    on_gpu = next(model.parameters()).is_cuda
    for sample in batches:
        yield utils.move_to_cuda(sample) if on_gpu else sample
