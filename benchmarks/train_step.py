"""Time of one training step of roberta_NAME, transformer_NAME or transformer_lm_NAME against stock fairseq's
architecture of the same size.

    python benchmarks/train_step.py --archs roberta_learned roberta_t5 roberta_tupe_r
    python benchmarks/train_step.py --dim 512 --heads 8 --length 128 --batch 16 \\
        --archs roberta_t5 roberta_shaw roberta_m4 roberta_m4m roberta_m3
    python benchmarks/train_step.py --stock transformer_iwslt_de_en --heads 4 \\
        --archs transformer_t5_iwslt_de_en --layers 6 --dim 512 --ffn 1024 --length 32 --batch 32
    python benchmarks/train_step.py --stock transformer_lm_gpt --archs transformer_lm_t5_gpt \\
        transformer_lm_transformer_xl_gpt --layers 2 --dim 512 --heads 8 --batch 4 --memory-length 512
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

gpu_steps.py times steps on a GPU.
Each allocator (allocators.py) has one process, in which all models are stepped in turn, round after round, in another
order each time, so that a noisy machine slows all of them alike; the ratio of a round is taken within that round,
and the median over rounds is printed. Stock has the same dropout. The processes take turns, too, and "times tuned"
compares with the same step and the tuned allocator. A step is forward, loss (of masked tokens, of the next tokens, or
of a translation whose sources are padded to the left), backward, clipping, AdamW. With --memory-length, language models
also make steps with a full segment memory, and "times without" compares them with their own steps without one. Seconds
are CPU time (user and system) with one thread, so that a busy machine counts for less. --amp computes the products of
all of them in bfloat16, as fairseq does on a CPU with units for it. Memory is the peak of one step, gradients included,
beyond the model, its optimizer and the batch (Linux only). MFU (model FLOPs utilisation) is the floating-point
operations of the stock model's matrix products, forward and backward, a second of the step, over what one large product
in float32 reached in the same run; there is none with --amp. Positions count as time, not as work.
"""

import argparse
import functools
import statistics
from argparse import Namespace
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from allocators import add_allocators
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from result_file import add_result, save
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from turns import LargeProduct, Processes, clock_of, compared, median_ratio

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.segments import Place

PRODUCT = "one large product"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stock", default="roberta", help="fairseq's own architecture")
    parser.add_argument("--archs", nargs="+", default=["roberta_learned", "roberta_tupe_r"])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--ffn", type=int, help="default: 4 times --dim")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--torch-compile", action="store_true", help="with this flag of the plugin")
    parser.add_argument("--unpad", action="store_true", help="with this flag of the plugin")
    parser.add_argument(
        "--padding",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the positions of a masked-LM batch that are pads, at most 0.5 (default: 0)",
    )
    parser.add_argument(
        "--memory-length",
        type=int,
        default=0,
        metavar="M",
        help="also steps of each language model that remembers this many tokens (default: none)",
    )
    parser.add_argument("--amp", action="store_true", help="products in bfloat16 by autocast; also stock in float32")
    add_allocators(parser)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    add_result(parser)
    args = parser.parse_args()
    args.ffn = args.ffn or 4 * args.dim
    if args.padding and not args.stock.startswith("roberta"):
        parser.error("--padding is for a masked LM; the sources of a translation have lengths of their own")
    if not 0 <= args.padding <= 0.5:
        parser.error(f"--padding {args.padding}: a share from 0 to 0.5")
    if args.memory_length and kind_of(args) is not LanguageModelStep:
        parser.error("--memory-length is for language models: --stock transformer_lm_...")
    if args.memory_length < 0:
        parser.error(f"--memory-length {args.memory_length}: give 0 or more")

    few = argparse.Namespace(**{**vars(args), "batch": 2})
    flops = kind_of(args)(args.stock, 0.0, few).flops() * args.batch / few.batch
    with Processes(args.allocators) as processes:
        rows = [row for dropout in args.dropout for row in measure(processes, dropout, flops, args)]
    save("train_step", args, rows)


def measure(processes, dropout, flops, args):
    seconds = processes.in_turns(steps_of, (dropout, args), args.rounds, desc=f"dropout {dropout}")
    memory = processes.memory(steps_of, (dropout, args))
    for allocator, times in seconds.items():
        reached = LargeProduct.flops() / min(times[PRODUCT])
        for arch in (args.stock, *args.archs, *remembering(args), *in_float32(args)):
            without = remembering(args).get(arch)
            step = statistics.median(times[arch])
            yield {
                "allocator": allocator,
                "dropout": dropout,
                "arch": arch,
                "seconds": step,
                **compared(times[arch], times[args.stock]),
                "tokens_per_second": args.batch * args.length / step,
                "mfu": None if args.amp else flops / reached / step,
                "times_tuned": median_ratio(times[arch], seconds["tuned"][arch]) if "tuned" in seconds else None,
                "peak_mib": memory[arch] / 2**20,
                "memory": memory[arch] / memory[args.stock],
                "times_without": without and median_ratio(times[arch], times[without]),
            }


def kind_of(args):
    kinds = {"roberta": MaskedLMStep, "transformer_lm": LanguageModelStep}
    return next((kind for start, kind in kinds.items() if args.stock.startswith(start)), TranslationStep)


def remembering(args):
    """{name of the steps with a segment memory: architecture}"""
    return {f"{arch}, memory {args.memory_length}": arch for arch in args.archs if args.memory_length}


def in_float32(args):
    """{name of stock's step without --amp: architecture}"""
    return {f"{args.stock}, float32": args.stock} if args.amp else {}


def steps_of(dropout, args):
    """{architecture: step}"""
    torch.set_num_threads(args.threads)
    kind = kind_of(args)
    steps = {arch: kind(arch, dropout, args) for arch in (args.stock, *args.archs)}
    steps |= {name: kind(arch, dropout, args, args.memory_length) for name, arch in remembering(args).items()}
    without_amp = argparse.Namespace(**{**vars(args), "amp": False})
    steps |= {name: kind(arch, dropout, without_amp) for name, arch in in_float32(args).items()}
    steps[PRODUCT] = LargeProduct(clock_of(args.threads), args.threads)
    return steps


def vocabulary(size, *more):
    """fairseq's dictionary with so many words, its four special symbols among them, and with ``more`` at the end."""
    words = Dictionary()
    for word in range(size - words.nspecial - len(more)):
        words.add_symbol(str(word))
    for word in more:
        words.add_symbol(word)
    return words


class TrainingStep:
    def __init__(self, arch, dropout, args, memory_length=0, hparams="", device="cpu", dtype=torch.float32):
        self.memory_length = memory_length
        self.symbols = vocabulary(args.vocabulary, "<mask>")
        settings = Namespace(
            arch=arch,
            dropout=dropout,
            attention_dropout=dropout,
            attention_backend=args.backend,
            torch_compile=args.torch_compile,
            unpad=args.unpad,
            max_positions=args.length,
            max_source_positions=args.length,
            max_target_positions=args.length + memory_length,
            memory_length=memory_length,
            position_hparams=hparams,
            decoder_input_dim=args.dim,
            decoder_output_dim=args.dim,
            encoder_layerdrop=0.0,
            quant_noise_pq=0,
            quant_noise_pq_block_size=8,
            quant_noise_scalar=0,
            share_decoder_input_output_embed=True,
        )
        for stack in ("encoder", "decoder"):
            setattr(settings, f"{stack}_layers", args.layers)
            setattr(settings, f"{stack}_embed_dim", args.dim)
            setattr(settings, f"{stack}_ffn_embed_dim", args.ffn)
            setattr(settings, f"{stack}_attention_heads", args.heads)
        ARCH_CONFIG_REGISTRY[arch](settings)
        torch.manual_seed(1)
        task = SimpleNamespace(source_dictionary=self.symbols, target_dictionary=self.symbols)
        self.model = ARCH_MODEL_REGISTRY[arch].build_model(settings, task)
        self.device = device
        self.model.to(device, dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.clock = clock_of(args.threads)
        self.autocast = functools.partial(torch.autocast, "cpu", torch.bfloat16, enabled=args.amp)
        self.tokens = torch.randint(5, args.vocabulary, (args.batch, args.length), device=device)
        self.prepare(args)

    def prepare(self, args):
        """Make the batch."""
        raise NotImplementedError

    def loss(self):
        raise NotImplementedError

    def __call__(self):
        start = self.clock()
        with self.autocast():
            self.loss().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.clock() - start

    def flops(self):
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self.loss().backward()
        return counter.get_total_flops()


class MaskedLMStep(TrainingStep):
    def prepare(self, args):
        self.tokens[:, 0] = self.symbols.bos()
        self.masked = torch.rand(args.batch, args.length, device=self.device) < 0.15
        # from the longest sentence down to one as much below the mean as that is above
        lengths = torch.linspace(1, 1 - 2 * args.padding, args.batch, device=self.device) * args.length
        pads = torch.arange(args.length, device=self.device) >= lengths.round()[:, None]
        self.tokens[pads] = self.symbols.pad()
        self.masked &= ~pads

    def loss(self):
        logits = self.model(self.tokens, masked_tokens=self.masked)[0]
        return F.cross_entropy(logits.float(), self.tokens[self.masked])


class TranslationStep(TrainingStep):
    def prepare(self, args):
        lengths = torch.randint(args.length // 2, args.length + 1, (args.batch, 1), device=self.device)
        self.source, self.previous = self.tokens.clone(), self.tokens.roll(1, 1)
        self.source[torch.arange(args.length, device=self.device) < args.length - lengths] = self.symbols.pad()
        self.previous[:, 0] = self.symbols.eos()

    def loss(self):
        logits = self.model(self.source, None, self.previous)[0]
        return F.cross_entropy(logits.float().flatten(0, 1), self.tokens.flatten())


class LanguageModelStep(TrainingStep):
    def prepare(self, args):
        self.previous = self.tokens.roll(1, 1)
        self.segment = 0

    def loss(self):
        place = {}
        if self.memory_length:  # the first segment remembers nothing: it is the round that warms up
            rows = len(self.tokens)
            place = {"place": Place(0, self.segment, (self.segment > 0,) * rows)}
            self.segment += 1
        logits = self.model(self.previous, **place)[0]
        return F.cross_entropy(logits.float().flatten(0, 1), self.tokens.flatten())


if __name__ == "__main__":
    main()
