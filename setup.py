"""Install fairseq_relpos; requirements and extras are explained in docs/installing.md."""

import posixpath
import re
import runpy
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
# Files are run, not imported: importing the package needs torch, which may not be installed yet.
ABOUT = runpy.run_path(str(HERE / "fairseq_relpos/version.py"))
REPOSITORY = ABOUT["REPOSITORY"]
RECIPE = runpy.run_path(str(HERE / "fairseq_relpos/cli/recipe.py"))

CORE = ["torch>=2.4", "numpy>=1.24"]
# for a fairseq of the user's own
RECIPES = [
    "sacrebleu>=2.3",
    "sentencepiece>=0.2.2",
    "sacremoses>=0.1",
    "matplotlib>=3.7",
    "scipy>=1.10",
    "scikit-learn>=1.2",
    "tqdm>=4.64",
    "pandas>=2.0",
    "tensorboard>=2.10",
    "zstandard>=0.20",
]
# fairseq is an extra: fairseq-fixed owns the same fairseq/ directory as the official
# distribution, so a hard requirement would overwrite a user's own checkout.
FAIRSEQ = ["fairseq-fixed==0.12.3.1", *RECIPES]
ZERO = ["fairscale>=0.4.13"]  # --zero-sharding os
# accelerate: transformers' Trainer does not begin without it
HF = [
    "torch>=2.6",
    "transformers>=5.4",
    "tokenizers>=0.22",
    "safetensors>=0.5",
    "accelerate>=1.1",
    "sentencepiece>=0.2.2",
]
CT2 = ["ctranslate2>=4.8"]
SITE = ["mkdocs-material>=9.5", "mkdocstrings[python]>=1.0", "matplotlib>=3.7"]  # scripts/make_site.py
# triton: the kernels' tests run in its interpreter. A CUDA build of torch brings its own.
TOOLS = ["pytest>=7.4", "pytest-xdist>=3.3", "ruff>=0.5", "mypy>=1.10", "triton>=3.3; platform_system == 'Linux'"]
NOTEBOOK = ["nbclient>=0.10", "ipykernel>=6.29"]  # examples/notebook
DEV = list(dict.fromkeys(TOOLS + NOTEBOOK + RECIPES + HF + CT2 + SITE))

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)\s]*)\)")


def absolute(text: str, folder: str = "", page: str = "README.md") -> str:
    """Markdown for a reader elsewhere: links and pictures lead to the repository. Without an address of the repository
    a link is its text, and a picture stays out. ``folder``, ``page``: where in the repository the text stands."""

    def replace(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if not REPOSITORY:
            return "" if picture else words
        if target.startswith("#"):
            target = page + target
        path = posixpath.normpath(posixpath.join(folder, target))
        return f"{picture}[{words}]({REPOSITORY}/{'raw' if picture else 'blob'}/main/{path})"

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)  # code stays as it is
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


class BuildWithRecipes(build_py):
    """The wheel has the recipes, for ``fairseq-relpos recipe``, in fairseq_relpos/recipes."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "fairseq_relpos/recipes")
        shutil.rmtree(target, ignore_errors=True)
        for path in RECIPE["files"](HERE):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / path, target / path)
            if path.suffix == ".md":
                text = (HERE / path).read_text(encoding="utf-8")
                (target / path).write_text(absolute(text, path.parent.as_posix()), encoding="utf-8")


setup(
    name="fairseq_relpos",
    version=ABOUT["__version__"],
    description="Position encodings for fairseq and plain PyTorch: one small class per paper, every model family",
    long_description=absolute((HERE / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    author="The fairseq_relpos authors",
    license="MIT",
    license_files=["LICENSE"],
    keywords="position encoding, relative position, transformer, TUPE, T5, ALiBi, RoPE, DeBERTa, fairseq, PyTorch",
    project_urls={
        "Source": REPOSITORY,
        "Documentation": f"{REPOSITORY}/tree/main/docs",
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    }
    if REPOSITORY
    else {},
    packages=find_packages(include=["fairseq_relpos", "fairseq_relpos.*"]),
    package_data={"": ["*.yaml", "*.json", "*.txt", "*.md", "*.mplstyle", "*.cpp", "*.bib", "*.ini"]},
    cmdclass={"build_py": BuildWithRecipes},
    python_requires=">=3.10",
    install_requires=CORE,
    extras_require={
        "fairseq": FAIRSEQ,
        "recipes": RECIPES,
        "hf": HF,
        "ct2": CT2,
        "zero": ZERO,
        "site": SITE,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["fairseq-relpos = fairseq_relpos.__main__:main"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
