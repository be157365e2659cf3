# What prepare.sh, run.sh and compare.sh share. HERE is set by them.
. "$HERE/../common/recipe.sh"
. "$HERE/settings.sh"
[ -z "${SETTINGS:-}" ] || read_settings "$SETTINGS" "$HERE/settings.sh"
