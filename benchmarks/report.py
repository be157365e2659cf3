"""Write benchmarks/RESULTS.md from the JSON files in benchmarks/results/.

    python benchmarks/report.py
"""

import json
import shlex
from pathlib import Path

HERE = Path(__file__).parent


def section(path):
    result = json.loads(path.read_text())
    settings, machine = result["settings"], result["machine"]
    lines = [
        f"## {path.stem}",
        "",
        f"{settings['layers']} layers x {settings['dim']}, {settings['heads']} heads, "
        f"{settings['batch']} x {settings['length']} tokens, dropout {settings['dropout']}, "
        f"attention backend {settings['backend']}, {settings['threads']} thread(s), "
        f"{settings['rounds']} rounds.",
        "",
        "| architecture | step (s) | times stock | quartiles of the ratio |",
        "|---|---:|---:|---|",
    ]
    for row in result["rows"]:
        quartiles = " to ".join(f"{q:.2f}" for q in row["quartiles"])
        lines.append(
            f"| {row['arch']} | {row['seconds']:.3f} | {row['ratio']:.3f} | {quartiles} |"
        )
    lines += [
        "",
        f"`{command(path, settings)}`",
        "",
        f"{machine['cpu']}; Python {machine['python']}, torch {machine['torch']}, fairseq "
        f"{machine['fairseq']}, fairseq_relpos {machine['fairseq_relpos']} at {machine['commit']}.",
        "",
    ]
    return "\n".join(lines)


def command(path, settings):
    flags = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        flags += [f"--{name}", *(shlex.quote(str(v)) for v in values)]
    return f"python benchmarks/train_step.py {' '.join(flags)} --json benchmarks/results/{path.name}"


def main():
    parts = [
        "# Benchmarks\n\nWritten by `python benchmarks/report.py`. Seconds depend on the machine "
        "and on who shares it; the ratios are medians over rounds in which all architectures "
        "took their step one after the other. `roberta` is stock fairseq.\n"
    ]
    parts += [section(path) for path in sorted((HERE / "results").glob("*.json"))]
    (HERE / "RESULTS.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
