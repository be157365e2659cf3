"""Install fairseq_relpos; requirements and extras are explained in docs/installing.md."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
# Read, not imported: importing the package needs torch, which may not be installed yet.
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "fairseq_relpos/version.py").read_text())[1]

# fairseq is an extra: fairseq-fixed owns the same fairseq/ directory as the official
# distribution, so a hard requirement would overwrite a user's own checkout.
FAIRSEQ = ["fairseq-fixed==0.12.3.1"]
LOG = ["tensorboard>=2.10"]
ZST = ["zstandard>=0.20"]  # examples/roberta_pretraining reads .zst with it
RECIPES = ["pandas>=2.0"]  # the reports of recipes and sweeps
# accelerate: transformers' Trainer does not begin without it
HF = ["torch>=2.6", "transformers>=5.4", "tokenizers>=0.22", "safetensors>=0.5", "accelerate>=1.1"]
CT2 = ["ctranslate2>=4.6"]
TEST = ["pytest>=7.4", "pytest-xdist>=3.3", *LOG, *ZST, *RECIPES, *HF, *CT2]
# The kernels' tests run in its interpreter. A CUDA build of torch brings its own.
TRITON = ["triton>=3.3; platform_system == 'Linux'"]
SITE = ["mkdocs-material>=9.5"]  # scripts/make_site.py
DEV = TEST + TRITON + SITE + ["ruff>=0.5", "mypy>=1.10"]

setup(
    name="fairseq_relpos",
    version=VERSION,
    description="Position encodings for fairseq: one small class per paper, every model family",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The fairseq_relpos authors",
    license="MIT",
    license_files=["LICENSE"],
    packages=find_packages(include=["fairseq_relpos", "fairseq_relpos.*"]),
    package_data={"": ["*.yaml", "*.json", "*.txt", "*.md", "*.mplstyle", "*.cpp", "*.bib", "*.ini"]},
    python_requires=">=3.10",
    install_requires=[
        "torch>=2.4",
        "numpy>=1.24",
        "sacrebleu>=2.3",
        "sentencepiece>=0.1.99",
        "sacremoses>=0.1",
        "matplotlib>=3.7",
        "scipy>=1.10",
        "scikit-learn>=1.2",
        "tqdm>=4.64",
    ],
    extras_require={
        "fairseq": FAIRSEQ,
        "log": LOG,
        "zst": ZST,
        "recipes": RECIPES,
        "hf": HF,
        "ct2": CT2,
        "site": SITE,
        "triton": TRITON,
        "test": TEST,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["fairseq-relpos = fairseq_relpos.__main__:main"]},
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
