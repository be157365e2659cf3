"""``fairseq-relpos mends``."""

import argparse

from ..mends.catalogue import FLAG, KINDS, MENDS, VARIABLE, on


def run(args: argparse.Namespace) -> None:
    width = max(len(mend.name) for mend in MENDS)
    for kind, meaning in KINDS.items():
        print(f"{kind}: {meaning}")
        for mend in MENDS:
            if mend.kind == kind:
                state = "on " if on(mend.name) else "off"
                print(f"  {state} {mend.name:{width}}  {mend.stock} -> {mend.here}")
    print(f"\nSwitches: {VARIABLE} or {FLAG}, all (the default), needed, or -NAME,-NAME for all but these.")
