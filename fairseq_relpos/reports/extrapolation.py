"""``fairseq-relpos extrapolation``: how far a model reaches beyond the length of its training.

One text is evaluated in blocks of each length: the loss of all its tokens, and of the last tokens of each block,
which have most context. The first alone would hide a failure far from the start of a block. Every length scores the
same tokens, so the numbers differ by the length alone.
"""

import argparse
import logging
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tqdm import tqdm

from ..atomic_files import write_json
from ..command_line import positive
from ..encodings import ENCODINGS, StackPart, parse_hparams
from ..segments import Place, SegmentMemory
from .checkpoint import choose_stack, load_model
from .extrapolation_plot import MASKED, plot, table
from .figures import picture_path

logger = logging.getLogger(__name__)

TOKENS_PER_BATCH = 8192
#: numbers in one tensor of logits; more positions are computed one part after the other
LOGITS_AT_ONCE = 2**24
#: tokens in a piece of the text for fairseq's masks: they are drawn once, for all lengths
MASKED_AT_ONCE = 512

#: how SentencePiece writes one byte of a character that no other piece has
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")

LANGUAGE_MODEL = "language model"


@dataclass
class Measurement:
    """The losses at one length, in nats per scored token."""

    length: int
    #: hidden states of earlier blocks that a block sees
    memory: int = 0
    #: None: blocks side by side; else a window that moves by this many tokens, and scores the new ones
    stride: int | None = None
    loss: float | None = None
    #: of the last tokens of each block
    last_loss: float | None = None
    scored: int = 0
    #: the length at which the encoding's positions end, where this is beyond it: there is no loss
    ends_at: int | None = None
    #: --position-hparams in place of those of the training
    position_hparams: str | None = None


@dataclass
class Reach:
    """The result of the command, as in the JSON file."""

    checkpoint: str
    encoding: str
    #: what --position-hparams changed, as it was given
    changed: str
    #: of the training
    seed: int
    trained_length: int
    kind: str
    data: str
    split: str
    tokens: int
    #: a digest of inputs and targets: two results are comparable only if it is the same
    digest: str
    #: how many tokens of each block are its last ones
    last: int
    #: whether every length has the same last tokens, those of the longest blocks
    same_last: bool
    #: of the text that the tokens spell, with line ends; None where nobody knows
    words: int | None = None
    bytes: int | None = None
    measurements: list[Measurement] = field(default_factory=list)


@dataclass
class Text:
    """A split as one row of tokens, [N] each. ``scored`` marks the targets that count; ``first`` stands in front of
    each block, if anything does."""

    inputs: torch.Tensor
    targets: torch.Tensor
    scored: torch.Tensor
    first: int | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def step(self, length: int) -> int:
        """The tokens of the text in a block of this length."""
        return length - (self.first is not None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "The loss at other lengths than the training's, of all tokens and of the last of each block."
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .pt file: a language model or a masked one")
    parser.add_argument("data", metavar="DATA", help="folder that fairseq-preprocess wrote")
    parser.add_argument(
        "--lengths", required=True, metavar="A,B", help="tokens in a block, such as 128,256,512; <s> counts where it is"
    )
    parser.add_argument("--split", default="valid", help="default: %(default)s")
    parser.add_argument("--tokens", type=positive, metavar="N", help="the first N tokens of the split (default: all)")
    parser.add_argument(
        "--last", type=positive, metavar="N", help="last tokens of a block (default: a quarter of the shortest length)"
    )
    parser.add_argument(
        "--stride",
        type=positive,
        metavar="N",
        help="also a sliding window that moves by N tokens and scores these, of a language model",
    )
    parser.add_argument(
        "--memory",
        default="0",
        metavar="A,B",
        help="hidden states of earlier blocks that a block sees, such as 0,128,384, of a language model that was built "
        "for a memory (default: %(default)s)",
    )
    parser.add_argument(
        "--position-hparams",
        default="",
        metavar='"A=1"',
        help="hyperparameters that may change at evaluation, such as rope's scaling=yarn; what it lacks (factor, "
        "trained_length) follows from each length and memory",
    )
    parser.add_argument(
        "--post-process",
        choices=("none", "sentencepiece", "subword_nmt"),
        help="how tokens make words (none: they are words), for bits per byte and perplexity per word",
    )
    parser.add_argument(
        "--max-tokens", type=positive, default=TOKENS_PER_BATCH, metavar="N", help="in a batch: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the masks (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here, for `plot extrapolation`, too")
    parser.add_argument("--output", metavar="FILE", help="write a picture here, .png or .svg, too")


def run(args: argparse.Namespace) -> None:
    lengths = numbers("--lengths", args.lengths, least=2)
    memories = numbers("--memory", args.memory, least=0)
    files = [Path(path) for path in (args.json, args.output and picture_path(args.output)) if path]
    for path in files:  # before the work
        path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # weights of far keys may be denormal numbers, which x86 CPUs compute slowly
    torch.set_flush_denormal(True)
    flags = ("split", "tokens", "last", "stride", "position_hparams", "post_process", "max_tokens", "seed")

    def keep(found: Reach) -> None:
        if args.json:
            write_json(args.json, asdict(found))

    settings = {name: getattr(args, name) for name in flags}
    found = measure(args.checkpoint, args.data, lengths, memories, **settings, keep=keep)
    print(table(asdict(found)))
    if args.output:
        print(f"\nplot: {plot([asdict(found)], args.output)}")


def numbers(flag: str, text: str, least: int) -> list[int]:
    """Parses "128,256" into increasing numbers."""
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = []
    if not values or values[0] < least:
        raise ValueError(f"{flag} {text!r}: whole numbers of {least} or more, with commas between, such as 128,256")
    return values


def measure(
    checkpoint: str | Path,
    data: str | Path,
    lengths: Sequence[int],
    memories: Sequence[int] = (0,),
    split: str = "valid",
    tokens: int | None = None,
    last: int | None = None,
    stride: int | None = None,
    position_hparams: str = "",
    post_process: str | None = None,
    max_tokens: int = TOKENS_PER_BATCH,
    seed: int = 1,
    keep: Callable[[Reach], None] = lambda found: None,
) -> Reach:
    """Measures the losses of a checkpoint at these lengths and memories; see the command's flags. keep: called after
    each of them, because the longest comes last and may have too little memory."""
    model, settings, task = load_model(checkpoint, data)
    kind = kind_of(model, task, checkpoint)
    given = changes(settings.model, position_hparams)
    text = masked_text(task, split, tokens, seed) if kind == MASKED else text_of(task, split, tokens)
    last = max(1, lengths[0] // 4) if last is None else last
    check_sizes(text, lengths, last, stride, split)
    if kind == MASKED and (stride or memories[-1] or post_process):
        raise ValueError(
            "--stride, --memory and --post-process are for language models: a masked one sees both sides of a token"
        )
    ends = common_ends(text, lengths, last)
    trained_length = settings.task.tokens_per_sample
    if kind == LANGUAGE_MODEL and text.first is not None:
        trained_length += 1  # fairseq puts <s> in front of the tokens of a block; of a masked one it is among them
    memory = getattr(choose_stack(model)[1].embed_positions, "segment_memory", None) or SegmentMemory(0, 0)
    trained = in_sight(trained_length, memory.length, memory.same_length)
    if memories[-1]:
        check_memory(model, memories[-1], text)
    found = Reach(
        checkpoint=str(checkpoint),
        encoding=getattr(settings.model, "position_encoding", None) or f"stock {name_of(settings.model)}",
        changed=position_hparams,
        seed=settings.common.seed,
        trained_length=trained_length,
        kind=kind,
        data=str(data),
        split=split,
        tokens=len(text),
        digest=digest(text),
        last=last,
        same_last=ends is not None,
    )
    if post_process:
        found.words, found.bytes = words_and_bytes(task.source_dictionary, text.targets, post_process)
    hparams, evaluated = None, model
    for plan in plans(lengths, memories, stride):
        length = in_sight(plan.length, plan.memory, memory.same_length)
        plan.position_hparams = for_length(given, settings.model, length, trained)
        if plan.position_hparams != hparams:
            hparams = plan.position_hparams
            evaluated = load_model(checkpoint, data, position_hparams=hparams)[0] if hparams else model
        fill(plan, evaluated, text, last, ends, max_tokens)
        found.measurements.append(plan)
        keep(found)
        logger.info(in_words(plan))
    return found


def check_sizes(text: Text, lengths: Sequence[int], last: int, stride: int | None, split: str) -> None:
    """Raises ValueError for a block that is longer than the text, or shorter than what is asked of it."""
    longest, shortest = len(text) + (text.first is not None), text.step(lengths[0])
    if lengths[-1] > longest:
        raise ValueError(
            f"--lengths {lengths[-1]}: the text has {len(text):,} tokens (--split {split}); give {longest} or less"
        )
    if last > shortest:
        raise ValueError(f"--last {last}: a block of {lengths[0]} tokens has no more than {shortest}")
    if stride is not None and stride > shortest:
        raise ValueError(f"--stride {stride}: more than the shortest window, of {lengths[0]} tokens, would leave gaps")


def plans(lengths: Sequence[int], memories: Sequence[int], stride: int | None) -> Iterator[Measurement]:
    """Yields what is to be measured, the shortest and so fastest first."""
    for length in lengths:
        yield from (Measurement(length, memory) for memory in memories)
        if stride is not None:
            yield Measurement(length, stride=stride)


def in_words(found: Measurement) -> str:
    how = f"sliding by {found.stride}" if found.stride else f"memory {found.memory}" if found.memory else "blocks"
    result = f"ends at {found.ends_at}" if found.loss is None else f"{found.loss:.4f} nats per token"
    return f"length {found.length}, {how}: {result}"


def name_of(model_settings: Any) -> str:
    """The model's name in fairseq: its --arch, or its name where only that is saved."""
    return getattr(model_settings, "arch", None) or model_settings._name


def kind_of(model: Any, task: Any, checkpoint: str | Path) -> str:
    if hasattr(task, "mask_idx") and hasattr(model, "encoder") and not hasattr(model, "decoder"):
        return MASKED
    if getattr(task, "targets", None) == ["future"] and hasattr(model, "decoder") and not hasattr(model, "encoder"):
        return LANGUAGE_MODEL
    raise ValueError(
        f"{checkpoint} is neither a language model nor a masked one (--task language_modeling or masked_lm): "
        "extrapolation needs one of them"
    )


def check_memory(model: Any, length: int, text: Text) -> None:
    """Raises ValueError where the model cannot remember so many tokens."""
    if not hasattr(model, "remember"):
        raise ValueError(f"--memory {length}: a model of stock fairseq has none; --arch transformer_lm_NAME has")
    if text.first is not None:
        raise ValueError(f"--memory {length}: with --add-bos-token each block begins a text anew; leave the memory out")
    try:
        remember(model, length)
    except ValueError as error:
        raise ValueError(f"--memory {length}: {error}") from None


def remember(model: Any, length: int) -> None:
    """Gives the model an empty memory of this length, of the kind that it was trained with."""
    trained = model.decoder.embed_positions.segment_memory
    model.remember(SegmentMemory(0, length, trained is not None and trained.same_length))


def changes(model: argparse.Namespace, text: str) -> dict[str, str]:
    """The hyperparameters in ``text``. Raises ValueError for one that may not change on a trained model."""
    given = parse_hparams(text)
    name = getattr(model, "position_encoding", None)
    allowed = ENCODINGS[name].free_in_evaluation if name in ENCODINGS else ()
    for key in given:
        if key not in allowed:
            raise ValueError(
                f"--position-hparams {key}: at evaluation {name or 'a model of stock fairseq'} may change "
                f"{', '.join(sorted(allowed)) or 'no hyperparameter'}"
            )
    return given


def in_sight(length: int, memory: int, same_length: bool) -> int:
    """How many tokens the last one of a block sees, itself included. same_length: see ``SegmentMemory``."""
    return memory if memory and same_length else length + memory


def for_length(given: dict[str, str], model: argparse.Namespace, length: int, trained: int) -> str | None:
    """The text of --position-hparams at this length; None: those of the training. A scaling without a factor gets that
    of the length, and leaves lengths up to the training's as they are. Both lengths count the memory."""
    if not given:
        return None
    if given.get("scaling", "none") != "none":
        if "factor" not in given and length <= trained:
            return None
        given = {"factor": repr(length / trained), "trained_length": str(trained), **given}
    return " ".join(f"{key}={value}" for key, value in {**parse_hparams(model.position_hparams), **given}.items())


def text_of(task: Any, split: str, tokens: int | None) -> Text:
    """The text for a language model: each token is predicted from all before it in its block, and from the last one of
    the block before, as in fairseq's own blocks."""
    targets = stream(task, split, tokens)
    if not len(targets):
        raise ValueError(f"the split {split} is empty: nothing to evaluate")
    inputs = torch.cat([targets.new_tensor([task.source_dictionary.eos()]), targets[:-1]])
    first = task.source_dictionary.bos() if getattr(task.args, "add_bos_token", False) else None
    return Text(inputs, targets, torch.ones_like(targets, dtype=torch.bool), first)


def masked_text(task: Any, split: str, tokens: int | None, seed: int) -> Text:
    """The text for a masked language model. fairseq draws the masks once, so that every length fills in the same
    tokens."""
    from fairseq.data import ListDataset, MaskTokensDataset
    from fairseq.data.encoders.utils import get_whole_word_mask

    whole = stream(task, split, tokens)
    pieces = whole.split(MASKED_AT_ONCE)
    cfg, pad = task.cfg, task.source_dictionary.pad()
    masked = MaskTokensDataset.apply_mask(
        ListDataset(pieces, [len(piece) for piece in pieces]),
        task.source_dictionary,
        pad_idx=pad,
        mask_idx=task.mask_idx,
        seed=seed,
        mask_prob=cfg.mask_prob,
        leave_unmasked_prob=cfg.leave_unmasked_prob,
        random_token_prob=cfg.random_token_prob,
        freq_weighted_replacement=cfg.freq_weighted_replacement,
        mask_whole_words=get_whole_word_mask(task.args, task.source_dictionary) if cfg.mask_whole_words else None,
        mask_multiple_length=cfg.mask_multiple_length,
        mask_stdev=cfg.mask_stdev,
    )
    inputs, targets = (torch.cat([part[i] for i in range(len(pieces))]) for part in masked)
    return Text(inputs, targets, targets != pad, task.source_dictionary.bos())


def stream(task: Any, split: str, tokens: int | None) -> torch.Tensor:
    """The sentences of the split, one after the other, each with its end."""
    from fairseq import utils
    from fairseq.data import data_utils

    settings = getattr(task, "cfg", None) or task.args
    path = Path(utils.split_paths(str(settings.data))[0]) / split
    sentences = data_utils.load_indexed_dataset(str(path), task.source_dictionary)
    if sentences is None:
        raise ValueError(f"no split {split} in {path.parent}: give one that fairseq-preprocess wrote with --split")
    parts, count = [], 0
    for number in range(len(sentences)):
        if tokens is not None and count >= tokens:
            break
        parts.append(sentences[number])
        count += len(parts[-1])
    if tokens is not None and tokens > count:
        raise ValueError(f"--tokens {tokens}: the split {split} has {count:,}")
    return torch.cat(parts)[:tokens].long() if parts else torch.empty(0, dtype=torch.long)


def digest(text: Text) -> str:
    value = 0
    for tensor in (text.inputs, text.targets):
        value = zlib.crc32(tensor.numpy().tobytes(), value)
    return f"{value:08x}"


def words_and_bytes(dictionary: Any, tokens: torch.Tensor, post_process: str) -> tuple[int, int | None]:
    """How many words and bytes the tokens spell, line ends included. Raises ValueError where a word may be a part of an
    <unk>; bytes are None where a whole word is one."""
    unknown = int(tokens.eq(dictionary.unk()).sum())
    if unknown and post_process != "none":
        raise ValueError(
            f"--post-process {post_process}: {unknown:,} of {len(tokens):,} tokens are <unk>, whose words and bytes "
            "nobody knows; leave the flag out"
        )
    ends = tokens.eq(dictionary.eos())
    words = size = int(ends.sum())
    for line in tokens.tensor_split((ends.nonzero().flatten() + 1).tolist()):
        spelled = dictionary.string(line, bpe_symbol=post_process)
        words += len(spelled.split())
        size += len(spelled.encode())
    if post_process == "sentencepiece":
        is_byte = torch.tensor([BYTE_PIECE.fullmatch(symbol) is not None for symbol in dictionary.symbols])
        size -= int(is_byte[tokens].sum()) * (len("<0x00>") - 1)
    return words, None if unknown else size


def last_position(model: Any) -> int | None:
    """The number of positions that the model has, None where any length has positions."""
    positions = choose_stack(model)[1].embed_positions
    return positions.hard_limit if isinstance(positions, StackPart) else getattr(positions, "max_positions", None)


def common_ends(text: Text, lengths: Sequence[int], last: int) -> torch.Tensor | None:
    """True at the last tokens of the longest blocks, [N], where these are last tokens at every length; else None: then
    each length has its own."""
    longest, *others = (text.step(length) for length in reversed(lengths))
    if any(longest % step for step in others):
        return None
    places = torch.arange(len(text))
    return (places % longest >= longest - last) & (places < len(text) // longest * longest)


def fill(plan: Measurement, model: Any, text: Text, last: int, ends: torch.Tensor | None, max_tokens: int) -> None:
    """Measures what ``plan`` says. ends: see ``common_ends``."""
    limit = last_position(model)
    if limit is not None and plan.length + plan.memory > limit:
        plan.ends_at = limit
        return
    if torch.cuda.is_available():
        model.cuda()
    if plan.memory:
        remember(model, plan.memory)
    step = text.step(plan.length)
    total = last_total = 0.0
    last_scored = 0
    windows = sliding(len(text), step, plan.stride) if plan.stride else side_by_side(len(text), step)
    with tqdm(total=len(text), desc=f"length {plan.length}", unit=" tokens", disable=None, leave=False) as bar:
        # with a memory the text is one stream, block by block
        rows = 1 if plan.memory else max(1, max_tokens // plan.length)
        for number, (begins, width, new) in enumerate(batches(windows, rows)):
            places = begins[:, None] + torch.arange(width)
            inputs, targets, scored = text.inputs[places], text.targets[places], text.scored[places]
            scored[:, : width - new] = False
            place = {"place": Place(0, number, (number > 0,))} if plan.memory else {}
            losses = losses_of(model, inputs, targets, scored, text.first, **place)
            total += float(losses.sum())
            if width == step:  # the last block of the text may be shorter
                at_end = torch.arange(width) >= width - last if ends is None else ends[places]
                last_total += float((losses * at_end).sum())
                last_scored += int((scored & at_end).sum())
            plan.scored += int(scored.sum())
            bar.update(new * len(begins))
    if not plan.scored:
        raise ValueError(
            f"no token of the text is scored at length {plan.length}: give a longer text, or a larger --tokens"
        )
    plan.loss = total / plan.scored
    if plan.stride is None and last_scored:
        plan.last_loss = last_total / last_scored


#: where some windows of one kind begin, their width, and how many of their last tokens are new and so scored
Windows = tuple[torch.Tensor, int, int]


def side_by_side(tokens: int, step: int) -> Iterator[Windows]:
    """Blocks of ``step`` tokens, and what is left."""
    whole = tokens // step
    yield torch.arange(whole) * step, step, step
    if tokens % step:
        yield torch.tensor([whole * step]), tokens % step, tokens % step


def sliding(tokens: int, width: int, stride: int) -> Iterator[Windows]:
    """Windows that move by ``stride`` tokens. All tokens of the first are scored, then the new ones of each."""
    more, left = divmod(tokens - width, stride)
    yield torch.tensor([0]), width, width
    yield torch.arange(1, more + 1) * stride, width, stride
    if left:
        yield torch.tensor([tokens - width]), width, left


def batches(windows: Iterator[Windows], rows: int) -> Iterator[Windows]:
    for begins, width, new in windows:
        yield from ((part, width, new) for part in begins.split(rows) if len(part))


@torch.no_grad()
def losses_of(
    model: Any,
    inputs_BT: torch.Tensor,
    targets_BT: torch.Tensor,
    scored_BT: torch.Tensor,
    first: int | None,
    **place: Any,
) -> torch.Tensor:
    """The loss of each token in nats, [B, T] in float64; 0 where it is not scored. place: see ``segments.Place``."""
    device = next(model.parameters()).device
    losses_BT = torch.zeros(targets_BT.shape, dtype=torch.float64)
    if first is not None:
        inputs_BT = F.pad(inputs_BT, (1, 0), value=first)
        targets_BT, scored_BT = F.pad(targets_BT, (1, 0)), F.pad(scored_BT, (1, 0))
    inputs, targets, scored = (x.to(device) for x in (inputs_BT, targets_BT, scored_BT))
    if hasattr(model, "encoder"):
        found = masked_losses(model, inputs, targets[scored], scored)
    else:
        found = next_losses(model, inputs, targets[scored], scored, **place)
    losses_BT[scored_BT[:, -losses_BT.size(1) :]] = found.double().cpu()
    return losses_BT


def masked_losses(
    model: Any, inputs_BT: torch.Tensor, targets_N: torch.Tensor, scored_BT: torch.Tensor
) -> torch.Tensor:
    if not len(targets_N):  # a short block without a mask
        return targets_N.double()
    logits_NV = model(inputs_BT, masked_tokens=scored_BT)[0]
    return F.cross_entropy(logits_NV.float(), targets_N, reduction="none")


def next_losses(
    model: Any, inputs_BT: torch.Tensor, targets_N: torch.Tensor, scored_BT: torch.Tensor, **place: Any
) -> torch.Tensor:
    features_NE = model(inputs_BT, features_only=True, **place)[0][scored_BT]
    at_once = max(1, LOGITS_AT_ONCE // len(model.decoder.dictionary))
    found = []
    for features, targets in zip(features_NE.split(at_once), targets_N.split(at_once)):
        output = model.decoder.output_layer(features[None])
        sample = {"target": targets[None]}
        log_probabilities = model.get_normalized_probs((output, None), log_probs=True, sample=sample)[0]
        found.append(-log_probabilities.gather(1, targets[:, None])[:, 0])
    return torch.cat(found)
