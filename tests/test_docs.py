"""The documentation says what the code says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "scripts/make_docs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_link_to_a_file_leads_somewhere():
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *ROOT.glob("examples/*/*.md"),
        *ROOT.glob("benchmarks/*.md"),
    ]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
