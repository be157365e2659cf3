"""``fairseq-relpos recipe [NAME DIR]``: the recipes, and one of them in a folder, where it runs.

setup.py runs this file, too, so it imports only the standard library until a recipe is written.
"""

import argparse
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
#: the scripts of the repository that recipes call
SCRIPTS = ("average_checkpoints.py", "launch_check.py", "launch_slurm.sbatch", "launch_torchrun.sh", "sweep.py")
#: endings of what a recipe needs, besides its README.md; results, pictures and logs of runs have others
ENDINGS = (".sh", ".py", ".txt", ".env", ".sha1")
CALL = re.compile(r"(?:\.\./|examples/)([a-z_]+)/\w+\.(?:py|sh)|(scripts/[a-z_]+\.(?:py|sh|sbatch))")
COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)


def files(root: Path) -> Iterator[Path]:
    """The files of all recipes, relative to ``root``, the folder of examples and scripts."""
    for path in sorted((root / "examples").rglob("*")):
        if path.is_file() and (path.suffix in ENDINGS or path.name == "README.md"):
            yield path.relative_to(root)
    yield from (Path("scripts", name) for name in SCRIPTS)


def source() -> Path:
    """The folder with the recipes: in the wheel, or in the checkout that the package lies in."""
    for root in (PACKAGE / "recipes", PACKAGE.parent):
        if (root / "examples/common/recipe.sh").exists():
            return root
    raise ValueError(f"no recipes beside {PACKAGE}: install the wheel, or use a checkout of fairseq_relpos")


def summaries(root: Path) -> dict[str, str]:
    """Recipe -> the heading of its README.md."""
    found = {}
    for script in sorted(root.glob("examples/*/run.sh")):
        heading = script.with_name("README.md").read_text(encoding="utf-8").split("\n", 1)[0]
        found[script.parent.name] = heading.partition(": ")[2]
    return found


def needed(name: str, root: Path) -> list[Path]:
    """The files of a recipe, and of the recipes and scripts that its scripts and its README.md call."""
    every = list(files(root))
    parts: set[str] = set()
    new = {f"examples/{name}/", "examples/common/"}
    while new:
        parts |= new
        text = "".join((root / path).read_text("utf-8") for path in every if within(path, new))
        called = CALL.findall(COMMENT.sub("", text))
        new = {script or f"examples/{folder}/" for folder, script in called} - parts
    return [path for path in every if within(path, parts)]


def within(path: Path, parts: set[str]) -> bool:
    return path.as_posix().startswith(tuple(parts))


def write(name: str, folder: Path) -> None:
    """Writes the recipe with what it needs. ValueError: there is no such recipe, or the folder exists."""
    from ..atomic_files import whole_folder

    root = source()
    known = summaries(root)
    if name not in known:
        raise ValueError(f"no recipe {name!r}: give one of {', '.join(known)}")
    if folder.exists() or folder.is_symlink():
        raise ValueError(f"{folder} exists: give a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as part:
        for path in needed(name, root):
            (part / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, part / path)
        (part / PACKAGE.name).symlink_to(PACKAGE)  # recipes give it to --user-dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="recipe to write (default: list all)")
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="new folder")


def run(args: argparse.Namespace) -> None:
    if args.name is None:
        recipes = summaries(source())
        width = max(map(len, recipes))
        for name, summary in recipes.items():
            print(f"{name:{width}}  {summary}")
        return
    if args.folder is None:
        raise ValueError(f"where to? fairseq-relpos recipe {args.name} DIR, a new folder")
    write(args.name, args.folder)
    print(f"{args.folder}: cd into it, then less examples/{args.name}/README.md")
