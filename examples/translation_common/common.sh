# What prepare.sh, run.sh and compare.sh of the translation recipes share. RECIPE, the folder of
# the recipe, is set by its own scripts.
COMMON=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$COMMON/../common/recipe.sh"

# What the environment has of these wins over the files.
given=()
for name in DATA RUNS SEED SEEDS JOBS WORKERS GPUS TOKENS_PER_UPDATE UPDATE_FREQ; do
  [ -z "${!name:-}" ] || given+=("$name=${!name}")
done
. "$RECIPE/settings.sh"
[ -z "${SETTINGS:-}" ] || read_settings "$SETTINGS" "$RECIPE/settings.sh"
for name in ${given[@]+"${given[@]}"}; do
  printf -v "${name%%=*}" %s "${name#*=}"
done
DATA=${DATA:-data-bin/$NAME} # prepare.sh writes it, training reads it
RUNS=${RUNS:-runs/$NAME}     # one folder for each run: ENCODING-seedN
SEED=${SEED:-1}              # weights, order of the data and dropout

# test, test1, ...: the test sets of $DATA
test_splits() {
  (cd "$DATA" && ls test*."$SOURCE-$TARGET.$SOURCE.idx") | sed 's/\..*//' | sort -V
}

corpus() { python "$COMMON/corpus.py" "$@"; }
