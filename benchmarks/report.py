"""Write benchmarks/RESULTS.md, and the marked parts of README.md and docs/performance.md, from the JSON files in
benchmarks/results/.

    python benchmarks/report.py
"""

import json
import logging
import shlex
from pathlib import Path

from speed_tables import cost_tables, gpu_tables, in_kernels, number, overview

from fairseq_relpos.reports import figures

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"
#: the results that also have a picture
PICTURE = "attention_lengths_cpu"
#: the encodings in the picture; the table has every row
DRAWN = ("naive [T,S,D]", "plain", "m4m", "m4", "tupe_r", "shaw", "t5")


def section(path):
    result = json.loads(path.read_text())
    machine = result["machine"]
    note = f" {result['settings']['note']}." if result["settings"].get("note") else ""
    others = "".join(f"{name} {machine[name]}, " for name in ("transformers", "x-transformers") if name in machine)
    title, lines = SECTIONS[result["benchmark"]](result["settings"], result["rows"])
    if path.stem == PICTURE:
        lines += ["", f"![time and memory against T]({path.stem}.png)"]
    if result.get("missing"):
        lines += ["", result["missing"]]
    return "\n".join(
        [
            f"## {path.stem}",
            "",
            title,
            "",
            *lines,
            "",
            f"`{command(path, result)}`",
            "",
            f"{machine.get('gpu') or machine['cpu']}; Python {machine['python']}, torch {machine['torch']}, fairseq "
            f"{machine['fairseq']}, {others}fairseq_relpos {machine['fairseq_relpos']} at {machine['commit']}.{note}"
            f"{tuned(result)}",
            "",
        ]
    )


def tuned(result):
    """The settings of the tuned allocator, if it was used."""
    if "tuned" not in result["settings"].get("allocators", []):
        return ""
    return f" glibc {result['machine']['glibc']}; tuned allocator: {result['machine']['tuned_allocator']}."


def plot(path):
    """Plots time with each allocator, and memory, over T without dropout, only for the encodings in DRAWN, so that the
    lines can be distinguished."""
    result = json.loads(path.read_text())
    rows = [row for row in result["rows"] if row["dropout"] == 0]
    allocators = result["settings"]["allocators"]
    panels = [
        (f"{name} allocator: times SDPA without positions", "ratio", of(rows, allocator=name)) for name in allocators
    ]
    if all(row["scratch_mib"] is not None for row in rows):
        title = "peak memory above inputs and outputs (MiB)"
        panels.append((title, "scratch_mib", of(rows, allocator=allocators[0])))
    figure, axes = figures.new_figure(columns=len(panels), width=5)
    for axis, (title, key, shown) in zip(axes, panels):
        lines = by_line(shown, DRAWN)
        drawn = [("SDPA", of(shown, encoding="sdpa"), "black")]
        drawn += [(line[0]["encoding"], line, colour) for line, colour in zip(lines, figures.line_colours(len(lines)))]
        for label, line, colour in drawn:
            axis.plot(
                [row["length"] for row in line],
                [row[key] for row in line],
                color=colour,
                marker="o",
                markersize=4,
                linestyle="--" if label == "SDPA" else "-",
            )
        axis.set(xscale="log", yscale="log", xlabel="T (tokens)", title=title)
        axis.set_xticks(sorted({row["length"] for row in rows}))
        low, high = axis.get_ylim()
        steps = (1, 2, 5) if key == "ratio" else (1,)
        axis.set_yticks([y for power in range(-2, 5) for step in steps if low <= (y := step * 10**power) <= high])
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        name_at_the_end(axis, [(label, line[-1][key], colour) for label, line, colour in drawn])
    return figures.save(figure, HERE / f"{path.stem}.png")


def of(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def by_line(rows, encodings):
    """The rows of each of these encodings that were measured."""
    lines = ([row for row in rows if row["encoding"] == name] for name in encodings)
    return [line for line in lines if line]


def name_at_the_end(panel, ends):
    """Labels each (name, last value, colour) to the right of its line, without overlaps."""
    ends = sorted(ends, key=lambda end: end[1])
    to_height = panel.transScale + panel.transLimits
    heights = [to_height.transform((1, value))[1] for _, value, _ in ends]
    for _ in range(100):  # neighbours that are too close move apart, by half of what is lacking each
        for upper in range(1, len(heights)):
            lacking = max(0, 0.065 - heights[upper] + heights[upper - 1])
            heights[upper - 1] -= lacking / 2
            heights[upper] += lacking / 2
    for (name, value, colour), height in zip(ends, heights):
        panel.annotate(name, (1.08, height), xycoords="axes fraction", color=colour, va="center")
        end = to_height.transform((1, value))[1]
        panel.plot([0.98, 1.07], [end, height], transform=panel.transAxes, color=colour, linewidth=0.8, clip_on=False)


def table(heads, rows):
    """The lines of a table. heads: a column with ">" before its name is aligned to the right."""
    rule = "".join("---:|" if head.startswith(">") else "---|" for head in heads)
    lines = [[head.removeprefix(">") for head in heads], *rows]
    head, *body = (f"| {' | '.join(map(str, line))} |" for line in lines)
    return [head, f"|{rule}", *body]


def quartiles_of(row):
    return " to ".join(f"{quartile:.2f}" for quartile in row.get("quartiles", []))


def train_step(settings, rows):
    flags = [f"--{flag}" for flag in ("torch-compile", "unpad") if settings.get(flag.replace("-", "_"))]
    with_flags = f", the others have {' and '.join(flags)}" if flags else ""
    pads = f", {settings['padding']:.0%} of them pads" if settings.get("padding") else ""
    amp = " with --amp" if settings.get("amp") else ""
    title = (
        f"Training step: {settings['layers']} layers x {settings['dim']}, {settings['heads']} heads, "
        f"{settings['batch']} x {settings['length']} tokens{pads}, "
        f"attention backend {settings['backend']}, float32{amp}, "
        f"{settings['threads']} thread(s), {settings['rounds']} rounds. `{rows[0]['arch']}` is stock fairseq"
        f"{with_flags} and with the same dropout. Times tuned: the step's time divided by that with the tuned "
        "allocator. MFU: relative to the speed of one large matrix product in the same run."
    )
    remembered = settings.get("memory_length")
    if remembered:
        title += f" Memory {remembered}: a segment memory of {remembered} tokens, and the same step without it."
    heads = ["allocator", ">dropout", "architecture", ">step (s)", ">tokens/s", ">MFU", ">times stock"]
    heads += ["quartiles of the ratio", ">times tuned", ">memory, times stock"]
    heads += [">times without segment memory"] if remembered else []
    tokens = settings["batch"] * settings["length"]
    lines = []
    for row in rows:
        line = [row["allocator"], row["dropout"], row["arch"], f"{row['seconds']:.3f}"]
        line += [f"{tokens / row['seconds']:,.0f}", number(row["mfu"]), f"{row['ratio']:.3f}", quartiles_of(row)]
        line += [number(row.get("times_tuned")), number(row.get("memory"))]
        lines.append([*line, *([number(row["times_without"])] if remembered else [])])
    return title, table(heads, lines)


def decode(settings, rows):
    title = (
        f"Decoding with fairseq's generator: {settings['batch']} sentences, beam {settings['beam']}, "
        f"sources of up to {settings['source_length']} tokens padded to the left, outputs of "
        f"{settings['length']}, attention backend {settings['backend']}, {settings['threads']} "
        f"thread(s), {settings['rounds']} rounds, CPU time. `{rows[0]['arch']}` is stock fairseq."
    )
    heads = ["architecture", ">tokens per second", ">times stock's speed", "quartiles"]
    lines = [[row["arch"], f"{row['tokens_per_second']:.0f}", f"{row['ratio']:.3f}", quartiles_of(row)] for row in rows]
    return title, table(heads, lines)


def serving(settings, rows):
    title = (
        f"Translating with CTranslate2 and with fairseq's generator: the first {settings['sentences']} sentences, beam "
        f"{settings['beam']}, batches of {settings['batch']}, {settings['threads']} thread(s), {settings['rounds']} "
        "rounds. Same: the share of sentences that become the same words as with fairseq. Others: their number, and "
        "the largest difference of their scores (mean log-probabilities)."
    )
    heads = ["translator", ">tokens per second", ">times fairseq's speed", "quartiles", ">same", ">others"]
    lines = []
    for row in rows:
        speed = [f"{row['tokens_per_second']:.0f}", f"{row['ratio']:.3f}", quartiles_of(row)]
        others = f"{len(row['others'])}, up to {max(row['others'].values()):.1e}" if row["others"] else "none"
        lines.append([row["translator"], *speed, f"{row['same']:.1%}", others])
    return title, table(heads, lines)


def attention(settings, rows):
    threads = " and ".join(map(str, settings["threads"]))
    layers = settings.get("layers", 1)
    title = (
        f"One attention{f' of {layers} layers, which compute shared parts once' if layers > 1 else ''}, forward and "
        f"backward, float32: B={settings['batch']}, H={settings['heads']}, d={settings['head_dim']}, "
        f"backend {' '.join(settings['backends'])}, {threads} thread(s), "
        f"{settings['rounds']} rounds. `sdpa` is torch's fused attention without positions, `plain` two products and a "
        "softmax; both have the dropout of the table. Limit: the exact matrix products at this machine's peak, as a "
        "multiple of `sdpa`. MiB: peak memory above inputs and outputs."
    )
    lines = []
    for length in settings["lengths"]:
        for dropout in settings["dropout"]:
            shown = of(rows, length=length, dropout=dropout)
            peaks = ", ".join(
                f"{row['gflops']:.0f} GFLOP/s ({row['allocator']} allocator, {row['threads']} thread(s))"
                for row in of(shown, encoding="sdpa", backend="-")
                if row["gflops"]
            )
            lines += ["", f"T={length}, dropout {dropout}{f', one large product {peaks}' if peaks else ''}:", ""]
            lines += attention_table(shown, settings)
    return title, lines[1:]


def attention_table(rows, settings):
    allocators, several = settings["allocators"], len(settings["threads"]) > 1
    heads = ["encoding", "backend", *(["threads"] if several else [])]
    heads += [f">times {other}, {x}" for other in ("sdpa", "plain") for x in allocators]
    heads += [">limit", ">MiB", *([">times as fast as with 1 thread"] if several else [])]
    found = {}
    for row in rows:
        found.setdefault((row["encoding"], row["backend"], row["threads"]), []).append(row)
    lines = []
    for (name, backend, threads), line in found.items():
        cells = [number(row["ratio"]) for row in line] + [number(row["plain_ratio"]) for row in line]
        cells += [number(line[0]["limit"] or None), number(line[0]["scratch_mib"], 1)]
        cells += [number(line[0]["speedup"])] if several else []
        lines.append([name, backend, *([threads] if several else []), *cells])
    return table(heads, lines)


def times_and_memory(rows, lengths):
    cells = {(row["encoding"], row["length"]): row for row in rows}
    lines = []
    for name in dict.fromkeys(name for name, _ in cells):
        found = [cells.get((name, length)) for length in lengths]
        pairs = [(f"{cell['ratio']:.2f}", f"{cell['memory']:.2f}") if cell else ("-", "-") for cell in found]
        lines.append([name, *(value for pair in pairs for value in pair)])
    return table(["encoding", *(head for t in lengths for head in (f">T={t} time", ">memory"))], lines)


def public_code(settings, rows):
    title = (
        f"A self-attention module with its projections, forward and backward, float32: "
        f"B={settings['batch']}, H={settings['heads']}, d={settings['head_dim']}, "
        f"{settings['threads']} thread(s), {settings['rounds']} rounds. Time and "
        "peak memory as multiples of stock fairseq's module, which has no positions, and the same dropout."
    )
    lines = []
    for allocator in settings["allocators"]:
        for dropout in settings["dropout"]:
            lines += ["", f"{allocator} allocator, dropout {dropout}:", ""]
            lines += times_and_memory(of(rows, allocator=allocator, dropout=dropout), settings["lengths"])
    return title, lines[1:]


def gpu(settings, rows):
    title = (
        f"One attention, forward and backward, {settings['dtype']}: {settings['tokens']:,} tokens, "
        f"H={settings['heads']}, d={settings['head_dim']}, {settings['rounds']} rounds. Time and peak memory as "
        "multiples of torch's scaled_dot_product_attention without positions and with the same dropout (whose "
        "milliseconds are in the first row), which is timed once, before the others."
    )
    if settings.get("layers"):
        title += f" Of a pass of {settings['layers']} layers that share what they can: times of one, memory of all."
    stock = {(row["dropout"], row["length"]): row for row in of(rows, backend="-") if "kernels" in row}
    if stock:
        title += " Kernels: the sum of their times by torch's profiler, without what the GPU waits for its host."
    columns = [(p, t) for p in settings["dropout"] for t in settings["lengths"]]
    measured = [">kernels", ">memory"] if stock else [">memory"]
    heads = ["encoding", "backend", *(head for p, t in columns for head in (f">p={p}, T={t}: time", *measured))]
    lines = []
    for name, backend in dict.fromkeys((row["encoding"], row["backend"]) for row in rows):
        cells = {(row["dropout"], row["length"]): row for row in of(rows, encoding=name, backend=backend)}
        found = [gpu_cells(cells.get(key), stock.get(key)) for key in columns]
        lines.append([name, backend, *(x for three in found for x in (three if stock else three[::2]))])
    return title, table(heads, lines)


def gpu_steps(settings, rows):
    title = (
        f"Training steps in half precision, attention backend auto, dropout 0.1, {settings['turns']} turns of "
        f"{settings['queued']} steps. Time and peak memory as multiples of stock fairseq's step of the same dtype."
    )
    columns = [(m, d, c) for m in settings["models"] for d in settings["dtypes"] for c in settings["compile"]]
    heads = ["encoding"]
    for model, dtype, compiled in columns:
        heads += [f">{model}, {dtype}{', compiled' if compiled == 'yes' else ''}: time", ">memory"]
    lines = []
    for name in settings["encodings"]:
        cells = {(row["model"], row["dtype"], row["compile"]): row for row in of(rows, encoding=name)}
        lines.append([name, *(cell for key in columns for cell in gpu_step_cells(cells.get(key)))])
    stock = [row["stock_milliseconds"] for row in rows if "stock_milliseconds" in row]
    if stock:
        title += f" Stock's step took {min(stock):.1f} to {max(stock):.1f} ms beside the rows."
    return title, table(heads, lines)


def gpu_step_cells(row):
    if row is None:
        return "-", "-"
    return ("failed", "-") if "error" in row else (f"{row['ratio']:.3f}", f"{row['memory']:.2f}")


def gpu_cells(row, stock):
    """The time of a row, that of its kernels, if those of stock were profiled, and its memory."""
    if row is None:
        return "-", "-", "-"
    if row["seconds"] == float("inf"):
        return "does not fit", "", ""
    times, ratios = [row["seconds"]], [row["ratio"]]
    if stock is not None:
        times.append(in_kernels(row))
        ratios.append(times[1] / in_kernels(stock))
    time, *kernels = [f"{1000 * x:.2f} ms" for x in times] if row["backend"] == "-" else map(number, ratios)
    return time, *(kernels or "-"), f"{row['memory']:.2f}"


def dropout_statistics(settings, rows):
    title = (
        f"Correlations in the dropout masks of `triton`: {settings['seeds']} seeds x {settings['sentences']} sentences "
        f"x {settings['heads']} heads, {settings['length']} x {settings['length']} queries and keys each, as "
        "z-scores: for independent draws the largest exceeds the bound once in a hundred times, and the spread is 1."
    )
    lines = [
        [row["dropout"], row["what"], f"{row['scores']:,}", f"{row['z']:.2f}", f"{row['bound']:.2f}"]
        + [f"{row['spread']:.3f}"]
        for row in rows
    ]
    return title, table([">p", "what", ">scores", ">largest", ">bound", ">spread"], lines)


SECTIONS = {
    "train_step": train_step,
    "decode": decode,
    "serving": serving,
    "attention": attention,
    "gpu": gpu,
    "gpu_steps": gpu_steps,
    "dropout_statistics": dropout_statistics,
    "public_code": public_code,
}


def command(path, result):
    flags = []
    for name, value in result["settings"].items():
        if value is False or name == "note":  # of that run alone
            continue
        if value is True:
            flags.append(f"--{name.replace('_', '-')}")
            continue
        values = value if isinstance(value, list) else [value]
        flags += [f"--{name.replace('_', '-')}", *(shlex.quote(str(v)) for v in values)]
    script = f"benchmarks/{result['benchmark']}.py"
    start = "TRITON_INTERPRET=1 " if result["benchmark"] == "dropout_statistics" else ""
    return " ".join([f"{start}python {script}", *flags, f"--json benchmarks/results/{path.name}"])


def pages():
    """{path: text} of every page that is written from the results."""
    parts = [
        "# Benchmarks\n\nWritten by `python benchmarks/report.py`. Seconds depend on the machine "
        "and its load; the ratios are medians over rounds in which the steps of all architectures "
        "are interleaved. `python benchmarks/cpu.py` measures the speed on a CPU.\n"
    ]
    parts += [section(path) for path in sorted(RESULTS.glob("*.json"))]
    readme, performance = HERE.parent / "README.md", HERE.parent / "docs/performance.md"
    return {
        HERE / "RESULTS.md": "\n".join(parts),
        readme: between_marks(readme, speed=overview(RESULTS)),
        performance: between_marks(performance, speed=cost_tables(RESULTS), gpu=gpu_tables(RESULTS)),
    }


def between_marks(path, **texts):
    page = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return page


def main():
    logging.disable(logging.INFO)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    plot(RESULTS / f"{PICTURE}.json")


if __name__ == "__main__":
    main()
