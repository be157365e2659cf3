"""When runs began to use positions: probe.py RUNS FOLDER -> FOLDER/PROBES.md."""

import sys
from pathlib import Path

from fairseq_relpos.atomic_files import write_text
from fairseq_relpos.reports.markdown import markdown_table
from fairseq_relpos.reports.training_log import first_update, read_run

LIMITS = (0.05, 0.5)
PAGE = """# When an encoding begins to use positions

Written by `bash examples/roberta_small/probe.sh` from the logs. The order gap is what the validation loss rises by when
the tokens of each block are permuted (nats). The learning rate would fall to 0 at 6,000 updates.

{table}

Machines:
{machines}
"""


def main(place, folder):
    rows, machines = [], set()
    for log in sorted(Path(place).glob("*/*/train.log")):
        run = read_run(log.parent)
        length, tokens, rate = log.parent.parent.name.removeprefix("T").split("-", 2)
        updates = [first_update(run.order_gap, lambda gap, limit=limit: gap > limit) for limit in LIMITS]
        reached = [f"{update:,}" if update else "not yet" for update in updates]
        until = max(update for of_split in run.order_gap.values() for update in of_split)
        rows.append([run.encoding, str(run.seed), length, tokens, rate, *reached, f"{until:,}"])
        machines.add((log.parent / "machine.txt").read_text().strip())
    if not rows:
        sys.exit(f"probe: error: no run in {place}: bash examples/roberta_small/probe.sh")
    head = ["encoding", "seed", "T", "tokens an update", "learning rate"]
    head += [*(f"gap above {limit} at update" for limit in LIMITS), "validated until"]
    text = PAGE.format(table=markdown_table(head, rows), machines="\n".join(f"- {line}" for line in sorted(machines)))
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder, "PROBES.md"), text)
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
