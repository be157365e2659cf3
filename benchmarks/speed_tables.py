"""The cost of positions: the tables of docs/performance.md and README.md, which report.py writes."""

import json

#: encodings of a row of the first table, and tokens
ATTENTION = [
    (("t5", "at5", "fire"), 128),
    (("t5", "at5", "fire"), 512),
    (("tupe_a", "tupe_r"), 512),
    (("m1", "m2"), 512),
    (("alibi",), 512),
    (("shaw", "lfhc"), 512),
    (("transformer_xl", "gcdf"), 512),
    (("m4",), 512),
    (("deberta",), 512),
    (("m4m",), 512),
    (("m3",), 512),
    (("t5",), 4096),
    (("m4",), 4096),
]
#: clipped tables; and t5, which reads no table, for comparison
CLIPPED = ("t5", "shaw:max_distance=16", "lfhc", "m4:max_distance=32", "m4m:max_distance=32")
CLIPPED += ("deberta", "deberta:buckets=256")
#: the architectures of README's table, and with --amp
STEPS = ("roberta_t5", "roberta_tupe_r", "roberta_shaw", "roberta_m4")
#: encodings of README's sentence on a GPU
ON_A_GPU = ("alibi", "shaw:max_distance=16", "tupe_r", "t5", "shaw", "m4")
STEP_LENGTHS = (128, 512, 2048)
LANGUAGE_MODEL_LENGTHS = (128, 512)
#: encodings of the table of kernels on a GPU
KERNELS = ("learned", "t5", "shaw:max_distance=16", "lfhc", "shaw")
KERNELS += ("m4m:max_distance=32", "m4:max_distance=32", "m4", "deberta")
#: MB a thread above inputs and outputs, from which an encoding is named
SCRATCH = 30.0
#: encoding -> the modules of other libraries beside ours
OTHERS = {
    "t5": ("transformers: t5, sdpa", "x-transformers: t5, flash"),
    "alibi": ("x-transformers: alibi, flash",),
    "transformer_xl": ("transformers: wav2vec2_conformer, sdpa",),
    "deberta": ("transformers: deberta_v2",),
}


def cost_tables(results):
    """For docs/performance.md."""
    start = f"Rows that name no machine are from an {processor(results, 'attention_cpu')}. A dash: not measured."
    tables = (attention, clipped, further, steps, amp_steps, language_models, beside_others)
    return "\n\n".join([start, *(table(results) for table in tables)])


#: the ends of the names of two machines' results: the tables of docs/performance.md have the first one's
MACHINES = ("", "_intel")


def overview(results):
    """For README.md: the four kinds of encoding on two processors, attention alone and whole training steps."""
    names = [processor(results, f"attention_cpu{end}") for end in MACHINES]
    lines = [
        f"| times the same without positions | {' | '.join(f'one attention, {name}' for name in names)} "
        f"| {' | '.join(f'a training step, {name}' for name in names)} |",
        f"|---|{'---:|' * 2 * len(MACHINES)}",
    ]
    for arch in STEPS:
        name = arch.removeprefix("roberta_")
        files = [f"{kind}{end}" for kind in ("attention_cpu", step_file(512)) for end in MACHINES]
        cells = [
            "{} ({})".format(*(number(ratio_in(results, file, name, arch, dropout)) for dropout in (0.0, 0.1)))
            for file in files
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    torch = read(results, "attention_cpu")["machine"]["torch"]
    on_a_gpu = steps_on_a_gpu(results)
    costs = [f"{in_words(name)} {between(on_a_gpu[name][:2])}" for name in ON_A_GPU if name in on_a_gpu]
    return "\n".join(
        [
            "A training step of RoBERTa-base on an H100 (32 x 512 tokens, bfloat16, dropout 0.1) takes these multiples "
            f"of stock fairseq's: {', '.join(costs)} (relative to the stock step timed beside it, and to the "
            "fastest stock step of the run; [all figures](docs/performance.md#on-an-h100-and-an-h200)). On CPUs:",
            "",
            *lines,
            "",
            "Without dropout, and in brackets with 0.1: torch's attention is not fused on a CPU then, so the ratios "
            "are lower. Attention (8 x 512 tokens, width 512) beside torch's `scaled_dot_product_attention`, steps (2 "
            "layers x 512, 4 x 512 tokens) beside stock fairseq: forward and backward, one thread, float32, torch "
            f"{torch}, allocator tuned for both sides. On the EPYC, `fused` takes oneDNN's products, and torch's "
            "attention MKL's, which are slow there.",
        ]
    )


def gpu_rows(results):
    """The steps of one model without torch.compile that came to their end."""
    rows = [row for row in rows_of(results, "gpu_steps") if row["compile"] == "no" and "error" not in row]
    return [row for row in rows if (row["model"], row["dtype"]) == ("roberta_512", "bfloat16")]


def steps_on_a_gpu(results):
    """encoding -> a step's time, as a multiple of stock's beside it and of the fastest of stock's; and its memory"""
    rows = gpu_rows(results)
    fastest = min(row["stock_milliseconds"] for row in rows)
    return {row["encoding"]: (row["ratio"], row["milliseconds"] / fastest, row["memory"]) for row in rows}


def gpu_tables(results):
    """For docs/performance.md: whole steps, and the kernels of one attention."""
    lines = [
        f"| a training step on an {gpu_of(results, 'gpu_steps')}, times stock fairseq's | time "
        "| against the fastest of stock's | memory |",
        "|---|---:|---:|---:|",
    ]
    for name, (ratio, against_fastest, memory) in steps_on_a_gpu(results).items():
        lines.append(f"| {in_words(name)} | {ratio:.2f} | {against_fastest:.2f} | {memory:.2f} |")
    stock = [row["stock_milliseconds"] for row in gpu_rows(results)]
    lines += ["", f"Stock's step took {min(stock):.0f} to {max(stock):.0f} ms beside these rows.", ""]
    files = [rows_of(results, name) for name in ("gpu_clipped", "gpu_kernels")]
    lines += [
        f"| the kernels of one attention on an {gpu_of(results, 'gpu_clipped')}, times those of torch's | T = 512 "
        "| T = 2,048 |",
        "|---|---:|---:|",
    ]
    for name in KERNELS:
        ratios = [kernels_ratio(files, name, length) for length in (512, 2048)]
        lines.append(f"| {in_words(name)} | {' | '.join(map(number, ratios))} |")
    return "\n".join(lines)


def gpu_of(results, name):
    return read(results, name)["machine"]["gpu"].removeprefix("NVIDIA ").split()[0]  # "H100" of "H100 80GB HBM3"


def in_words(encoding):
    name, *hparams = encoding.split(":")
    return " with ".join(f"`{x}`" for x in (name, *hparams))


def kernels_ratio(files, encoding, length):
    """The ratio in the first file that has this encoding, with dropout 0.1."""
    for rows in files:
        profiled = [row for row in rows if (row["length"], row["dropout"]) == (length, 0.1) and "kernels" in row]
        found = {row["encoding"]: in_kernels(row) for row in profiled}
        if encoding in found and "none (sdpa)" in found:
            return found[encoding] / found["none (sdpa)"]
    return None


def in_kernels(row):
    """The sum of the times of a layer's kernels, in seconds."""
    return sum(row["kernels"].values()) / 1e6


def ratio_in(results, file, name, arch, dropout):
    wanted = {"dropout": dropout, "allocator": "tuned"}
    if file.startswith("attention"):
        wanted |= {"encoding": name, "length": 512, "backend": "auto", "threads": 1}
    else:
        wanted |= {"arch": arch}
    return only(rows_of(results, file), "ratio", **wanted)


def attention(results):
    lines = [
        "| times SDPA without positions | tokens | dropout 0, tuned allocator | default | limit | times limit "
        "| dropout 0.1, tuned | default |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for names, length in ATTENTION:
        tuned, default = (ratios(results, names, length, 0.0, x) for x in ("tuned", "default"))
        limits = values(results, names, length, 0.0, "tuned", "limit")
        over = [mine / limit for mine, limit in zip(tuned, limits)] if all(limits) else []
        cells = [
            quoted(names),
            f"{sentences(results, length)} x {length}{elsewhere(results, file_of(length))}",
            between(tuned),
            between(default),
            between(limits if all(limits) else []),
            between(over),
            *(between(ratios(results, names, length, 0.1, x)) for x in ("tuned", "default")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def clipped(results):
    """Clipped tables at all lengths; on another machine than the table before, where the machine says so."""
    files = "attention_clipped_cpu", "attention_clipped_long_cpu"
    rows = {(row["encoding"], row["length"]): row["ratio"] for name in files for row in rows_of(results, name)}
    lengths = sorted({length for _, length in rows})
    batches = {x: settings(results, name)["batch"] for name in files for x in settings(results, name)["lengths"]}
    lines = [
        f"| clipped tables, times SDPA without positions | {' | '.join(f'{batches[x]} x {x}' for x in lengths)} |",
        f"|---|{'---:|' * len(lengths)}",
    ]
    for name in CLIPPED:
        lines.append(f"| `{name}` | {' | '.join(number(rows.get((name, x))) for x in lengths)} |")
    return "\n".join([*lines, "", f"One thread of an {processor(results, files[0])}, dropout 0, allocator tuned."])


def amp_steps(results):
    """Steps with --amp, beside stock's with --amp, and what --amp gains."""
    name = "train_step_cpu_amp"
    rows = {(row["arch"], row["dropout"]): row["ratio"] for row in rows_of(results, name)}
    lines = [
        "| training step with `--amp`, 4 x 512 tokens, times stock fairseq with `--amp` | dropout 0 | dropout 0.1 |",
        "|---|---:|---:|",
    ]
    for arch in (*STEPS, "roberta, float32"):
        lines.append(f"| `{arch}` | {' | '.join(number(rows.get((arch, dropout))) for dropout in (0.0, 0.1))} |")
    return "\n".join(
        [*lines, "", f"One thread of an {processor(results, name)}, which has units for bfloat16, allocator tuned."]
    )


def elsewhere(results, name):
    """The processor of this file, if it is not the one of most tables."""
    found = processor(results, name)
    return "" if found == processor(results, "attention_cpu") else f" ({found.removesuffix(' Processor')})"


def processor(results, name):
    return read(results, name)["machine"]["cpu"].replace("(R)", "")


def further(results):
    """Threads and memory, in sentences."""
    rows = rows_of(results, "attention_threads_cpu")
    gains = {row["encoding"]: row["speedup"] for row in rows if row["threads"] == 2 and row["backend"] == "auto"}
    scratch = {}
    for file in ("attention_cpu", "attention_threads_cpu", "attention_lengths_cpu", "attention_long_cpu"):
        for row in rows_of(results, file):
            if row["scratch_mib"] is not None and not row["dropout"] and row["backend"] != "-":
                used = row["scratch_mib"] * 2**20 / 1e6 / row["threads"]
                scratch[row["encoding"]] = max((used, row["length"]), scratch.get(row["encoding"], (0, 0)))
    faster = ", ".join(f"`{name}` {gain:.2f}" for name, gain in gains.items())
    most = ", ".join(
        f"`{name}` {used:.1f} (T = {length:,})"
        for name, (used, length) in sorted(scratch.items(), key=lambda item: item[1], reverse=True)
        if used > SCRATCH
    )
    stack = {
        row["encoding"]: row["ratio"]
        for row in rows_of(results, "attention_stack_cpu")
        if row["allocator"] == "tuned" and row["dropout"] == 0.0 and row["backend"] == "auto"
    }
    shared = ", ".join(f"`{name}` {ratio:.2f}" for name, ratio in stack.items())
    return (
        f"In a stack of 12 layers, which compute once what they share, times SDPA: {shared}. "
        f"With two threads, times as fast as with one: {faster}. "
        f"Peak memory above inputs and outputs, without dropout: at most {SCRATCH:.0f} MB a thread, but {most}."
    )


def steps(results):
    archs = list(dict.fromkeys(row["arch"] for x in STEP_LENGTHS for row in rows_of(results, step_file(x))))
    archs.remove("roberta")
    lines = [
        "| training step, times stock fairseq with the same dropout | tokens | dropout 0, tuned allocator | default "
        "| dropout 0.1, tuned | default |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for length in STEP_LENGTHS:
        for arch in archs:
            measured = [step(results, arch, length, p, x) for p in (0.0, 0.1) for x in ("tuned", "default")]
            if not any(measured):
                continue
            size = f"{settings(results, step_file(length))['batch']} x {length}{elsewhere(results, step_file(length))}"
            lines.append(f"| `{arch}` | {size} | {' | '.join(map(number, measured))} |")
    return "\n".join(lines)


def language_models(results):
    lines = []
    for length in LANGUAGE_MODEL_LENGTHS:
        name = f"train_step_cpu_lm_{length}"
        rows = [row for row in rows_of(results, name) if row["allocator"] == "tuned"]
        for arch in settings(results, name)["archs"]:
            encoding = arch.removeprefix("transformer_lm_").removesuffix("_gpt")
            cells = [f"`{encoding}`", f"{settings(results, name)['batch']} x {length}{elsewhere(results, name)}"]
            cells += [number(1 / only(rows, "ratio", arch=arch, dropout=dropout)) for dropout in (0.0, 0.1)]
            remembering = f"{arch}, memory {length}"
            cells += [number(only(rows, "times_without", arch=remembering, dropout=dropout)) for dropout in (0.0, 0.1)]
            lines.append(f"| {' | '.join(cells)} |")
    head = (
        "| language model, tuned allocator | tokens | tokens a second, times stock fairseq: dropout 0 | dropout 0.1 "
        "| a step with a memory of as many tokens, times one without: dropout 0 | dropout 0.1 |"
    )
    return "\n".join([head, f"|---|{'---:|' * 5}", *lines])


def beside_others(results):
    machine = elsewhere(results, "public_code_cpu")
    lines = [
        f"| a module with its projections, 8 x 512 tokens{machine}, times stock fairseq's "
        "| dropout 0, tuned allocator | default | dropout 0.1, tuned | default |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, others in OTHERS.items():
        for module in (f"fairseq_relpos: {name}", *others):
            cells = []
            for dropout in (0.0, 0.1):
                for allocator in ("tuned", "default"):
                    wanted = {"encoding": module, "length": 512, "dropout": dropout, "allocator": allocator}
                    cells.append(number(only(rows_of(results, "public_code_cpu"), "ratio", **wanted)))
            lines.append(f"| {module} | {' | '.join(cells)} |")
    return "\n".join(lines)


def file_of(length):
    return "attention_long_cpu" if length > 2048 else "attention_cpu"


def sentences(results, length):
    return settings(results, file_of(length))["batch"]


def ratios(results, names, length, dropout, allocator):
    return values(results, names, length, dropout, allocator, "ratio")


def values(results, names, length, dropout, allocator, key):
    """The rows of these encodings, as far as they were measured."""
    rows = rows_of(results, file_of(length))
    wanted = {"length": length, "dropout": dropout, "allocator": allocator, "backend": "auto", "threads": 1}
    found = (only(rows, key, encoding=name, **wanted) for name in names)
    return [value for value in found if value is not None]


def step(results, arch, length, dropout, allocator):
    return only(rows_of(results, step_file(length)), "ratio", arch=arch, dropout=dropout, allocator=allocator)


def step_file(length):
    return f"train_step_cpu_2x512_{length}"


def only(rows, key, **wanted):
    return next((row[key] for row in rows if all(row[name] == value for name, value in wanted.items())), None)


def rows_of(results, name):
    return read(results, name)["rows"]


def settings(results, name):
    return read(results, name)["settings"]


def read(results, name):
    return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))


def quoted(names):
    return ", ".join(f"`{name}`" for name in names)


def between(found):
    if not found:
        return "-"
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"
