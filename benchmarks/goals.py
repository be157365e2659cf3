"""The cost of positions beside the goals: the tables of docs/performance.md and README.md, which report.py writes."""

import json

#: encodings, tokens, and the goal in times of SDPA without positions (one thread, tuned allocator, dropout 0)
ATTENTION = [
    (("t5", "at5", "fire"), 128, 1.1),
    (("t5", "at5", "fire"), 512, 1.05),
    (("tupe_a", "tupe_r"), 512, 1.15),
    (("m1", "m2"), 512, 1.15),
    (("alibi",), 512, None),
    (("shaw", "lfhc"), 512, 1.55),
    (("transformer_xl", "gcdf"), 512, 1.65),
    (("m4",), 512, 2.4),
    (("deberta",), 512, 2.6),
    (("m4m",), 512, 2.4),
    (("m3",), 512, 1.5),
    (("t5",), 4096, 1.2),
    (("m4",), 4096, 2.9),
]
#: clipped tables -> the goals by length, on the same terms; t5, which reads no table, for comparison
CLIPPED = {
    "t5": {},
    "shaw:max_distance=16": {128: 1.2, 512: 1.1, 2048: 1.08, 4096: 1.08},
    "lfhc": {512: 1.15},
    "m4:max_distance=32": {512: 1.45, 2048: 1.2, 4096: 1.15},
    "m4m:max_distance=32": {512: 1.5},
    "deberta": {2048: 1.85},
    "deberta:buckets=256": {2048: 1.6},
}
#: architecture -> the goals in times of stock fairseq at T = 512, by dropout
STEPS = {
    "roberta_t5": {0.0: 0.99, 0.1: 0.93},
    "roberta_tupe_r": {0.0: 1.02, 0.1: 0.95},
    "roberta_shaw": {0.0: 1.09, 0.1: 0.98},
    "roberta_m4": {0.0: 1.22, 0.1: 1.08},
}
#: the goal of t5, tupe_r and shaw beside stock, where both have --amp
AMP_STEP = 1.0
#: that of every architecture at T = 128
SHORT_STEP = 1.10
STEP_LENGTHS = (128, 512, 2048)
#: tokens a second of a language model without positions times content, in times of stock fairseq's; and a step with a
#: memory as long as the segment, in times of one without
LANGUAGE_MODEL, MEMORY = 0.95, 1.6
CONTENT_FREE = ("none", "alibi", "t5", "kerple_log", "sandwich")
LANGUAGE_MODEL_LENGTHS = (128, 512)
#: times as fast with two threads as with one; MB above inputs and outputs a thread
TWO_THREADS, SCRATCH = 1.8, 5.0
#: times SDPA, for a layer of 12 that compute once what they share
STACK = 1.08
#: encoding -> the modules of other libraries beside ours
OTHERS = {
    "t5": ("transformers: t5, sdpa", "x-transformers: t5, flash"),
    "alibi": ("x-transformers: alibi, flash",),
    "transformer_xl": ("transformers: wav2vec2_conformer, sdpa",),
    "deberta": ("transformers: deberta_v2",),
}


def goals_table(results):
    """For docs/performance.md."""
    tables = (attention, clipped, further, steps, amp_steps, language_models, beside_others)
    end = "All tables are written by `python benchmarks/report.py`. A dash stands for what was not measured."
    return "\n\n".join([*(table(results) for table in tables), end])


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
    return "\n".join(
        [
            *lines,
            "",
            "Without dropout, and in brackets with 0.1: torch's attention is not fused on a CPU then, so the ratios "
            "are lower. Attention (8 x 512 tokens, width 512) beside torch's `scaled_dot_product_attention`, steps (2 "
            "layers x 512, 4 x 512 tokens) beside stock fairseq: forward and backward, one thread, float32, torch "
            f"{torch}, allocator tuned for both sides. On the EPYC, `fused` takes oneDNN's products, and torch's "
            "attention MKL's, which are slow there.",
        ]
    )


def ratio_in(results, file, name, arch, dropout):
    wanted = {"dropout": dropout, "allocator": "tuned"}
    if file.startswith("attention"):
        wanted |= {"encoding": name, "length": 512, "backend": "auto", "threads": 1}
    else:
        wanted |= {"arch": arch}
    return only(rows_of(results, file), "ratio", **wanted)


def attention(results):
    lines = [
        "| times SDPA without positions | tokens | dropout 0, tuned allocator | default | goal (tuned) | limit "
        "| times limit | dropout 0.1, tuned | default |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for names, length, goal in ATTENTION:
        tuned, default = (ratios(results, names, length, 0.0, x) for x in ("tuned", "default"))
        limits = values(results, names, length, 0.0, "tuned", "limit")
        over = [mine / limit for mine, limit in zip(tuned, limits)] if all(limits) else []
        cells = [
            quoted(names),
            f"{sentences(results, length)} x {length}{elsewhere(results, file_of(length))}",
            between(tuned),
            between(default),
            verdict(max(tuned, default=None), goal),
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
    for name, goals in CLIPPED.items():
        found = {x: rows.get((name, x)) for x in lengths}
        cells = [number(found[x]) + (f" (goal {verdict(found[x], goals[x])})" if x in goals else "") for x in lengths]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"One thread of an {processor(results, files[0])}, dropout 0, allocator tuned."])


def amp_steps(results):
    """Steps with --amp, beside stock's with --amp, and what --amp gains."""
    name = "train_step_cpu_amp"
    rows = {(row["arch"], row["dropout"]): row["ratio"] for row in rows_of(results, name)}
    lines = [
        "| training step with `--amp`, 4 x 512 tokens, times stock fairseq with `--amp` | dropout 0 | dropout 0.1 |",
        "|---|---|---|",
    ]
    for arch in ("roberta_t5", "roberta_tupe_r", "roberta_shaw", "roberta_m4", "roberta, float32"):
        goal = AMP_STEP if arch in ("roberta_t5", "roberta_tupe_r", "roberta_shaw") else None
        cells = []
        for dropout in (0.0, 0.1):
            ratio = rows.get((arch, dropout))
            cells.append(number(ratio) + (f" (goal {verdict(ratio, goal)})" if goal else ""))
        lines.append(f"| `{arch}` | {' | '.join(cells)} |")
    return "\n".join(
        [*lines, "", f"One thread of an {processor(results, name)}, which has units for bfloat16, allocator tuned."]
    )


def elsewhere(results, name):
    """The processor of this file, if it is not the one of most tables."""
    found = processor(results, name)
    return "" if found == processor(results, "attention_cpu") else f" ({found})"


def processor(results, name):
    return read(results, name)["machine"]["cpu"].replace("(R)", "")


def further(results):
    """Threads and memory, in sentences."""
    rows = rows_of(results, "attention_threads_cpu")
    gains = {row["encoding"]: row["speedup"] for row in rows if row["threads"] == 2 and row["backend"] == "auto"}
    scratch, judged = {}, {name for names, *_ in ATTENTION for name in names}
    for name in ("attention_cpu", "attention_threads_cpu", "attention_lengths_cpu", "attention_long_cpu"):
        for row in rows_of(results, name):
            if row["scratch_mib"] is not None and row["encoding"] in judged:
                used = row["scratch_mib"] * 2**20 / 1e6 / row["threads"]
                scratch[row["encoding"]] = max(used, scratch.get(row["encoding"], 0))
    faster = ", ".join(f"`{name}` {gain:.2f}" for name, gain in gains.items())
    least = min(gains.values())
    ordered = sorted(scratch, key=scratch.get, reverse=True)
    most = ", ".join(f"`{name}` {scratch[name]:.1f}" for name in ordered if scratch[name] > SCRATCH)
    stack = {
        row["encoding"]: row["ratio"]
        for row in rows_of(results, "attention_stack_cpu")
        if row["allocator"] == "tuned" and row["dropout"] == 0.0 and row["backend"] == "auto"
    }
    shared = ", ".join(f"`{name}` {ratio:.2f} (goal: {verdict(ratio, STACK)})" for name, ratio in stack.items())
    return (
        f"In a stack of 12 layers, which compute once what they share: {shared}. "
        f"With two threads, times as fast as with one: {faster} (goal: at least {verdict(least, TWO_THREADS, True)}). "
        "Peak memory above inputs and outputs, MB a thread, the most at any length (goal: below "
        f"{SCRATCH:.1f}): {f'**missed** by {most}' if most else 'reached by all'}."
    )


def steps(results):
    archs = list(dict.fromkeys(row["arch"] for x in STEP_LENGTHS for row in rows_of(results, step_file(x))))
    archs.remove("roberta")
    lines = [
        "| training step, times stock fairseq with the same dropout | tokens | dropout 0, tuned allocator | default "
        "| goal (tuned) | dropout 0.1, tuned | default | goal (tuned) |",
        "|---|---:|---:|---:|---|---:|---:|---|",
    ]
    for length in STEP_LENGTHS:
        for arch in archs:
            measured = {(p, x): step(results, arch, length, p, x) for p in (0.0, 0.1) for x in ("tuned", "default")}
            if not any(measured.values()):
                continue
            cells = []
            for dropout in (0.0, 0.1):
                goals = {128: SHORT_STEP, 512: STEPS.get(arch, {}).get(dropout)}
                tuned = measured[dropout, "tuned"]
                cells += [number(tuned), number(measured[dropout, "default"]), verdict(tuned, goals.get(length))]
            size = f"{settings(results, step_file(length))['batch']} x {length}{elsewhere(results, step_file(length))}"
            lines.append(f"| `{arch}` | {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def language_models(results):
    lines = []
    for length in LANGUAGE_MODEL_LENGTHS:
        name = f"train_step_cpu_lm_{length}"
        rows = [row for row in rows_of(results, name) if row["allocator"] == "tuned"]
        for arch in settings(results, name)["archs"]:
            encoding = arch.removeprefix("transformer_lm_").removesuffix("_gpt")
            cells = [f"`{encoding}`", f"{settings(results, name)['batch']} x {length}{elsewhere(results, name)}"]
            for dropout in (0.0, 0.1):
                speed = 1 / only(rows, "ratio", arch=arch, dropout=dropout)
                goal = LANGUAGE_MODEL if encoding in CONTENT_FREE else None
                cells += [number(speed), verdict(speed, goal, True)]
            for dropout in (0.0, 0.1):
                times = only(rows, "times_without", arch=f"{arch}, memory {length}", dropout=dropout)
                cells += [number(times), verdict(times, MEMORY)]
            lines.append(f"| {' | '.join(cells)} |")
    head = (
        "| language model, tuned allocator | tokens | tokens a second, times stock fairseq: dropout 0 | goal "
        "| dropout 0.1 | goal | a step with a memory of as many tokens, times one without: dropout 0 | goal "
        "| dropout 0.1 | goal |"
    )
    return "\n".join([head, "|---|---:|" + "---:|---|" * 4, *lines])


def beside_others(results):
    lines = [
        "| a module with its projections, 8 x 512 tokens, times stock fairseq's | dropout 0, tuned allocator | default "
        "| dropout 0.1, tuned | default |",
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


def verdict(value, goal, at_least=False):
    if goal is None:
        return "-"
    if value is None:
        return f"{goal:.2f}"
    # as printed: a ratio that rounds to the goal has reached it
    reached = round(value, 2) >= goal if at_least else round(value, 2) <= goal
    return f"{goal:.2f}, {'reached' if reached else '**missed**'}"


def quoted(names):
    return ", ".join(f"`{name}`" for name in names)


def between(found):
    if not found:
        return "-"
    low, high = number(min(found)), number(max(found))
    return low if low == high else f"{low} to {high}"


def number(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"
