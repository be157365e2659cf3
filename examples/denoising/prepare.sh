#!/usr/bin/env bash
# Text of one or several languages -> vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/denoising/prepare.sh OUT --train FILE... --valid FILE... [--test FILE...]
#
# Text: UTF-8, one paragraph a line; plain, .xz or .gz. It is prepared as in ../roberta_small, with the settings here.
# Run it again at any time: finished steps are skipped, changed text or settings start over.
. "$(dirname "$0")/../roberta_small/prepare.sh"
