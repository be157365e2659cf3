# What prepare.sh and run.sh share. HERE is set by them.
. "$HERE/../common/recipe.sh"

# Reads a file of settings; a name that no setting has would otherwise change nothing, in silence.
read_known_settings() {
  local _before _new
  _before=$(compgen -v)
  read_settings "$1" "$HERE/m4m.sh"
  _new=$(comm -13 <(sort <<<"$_before") <(compgen -v | sort) | grep -vxE '_.*|BASH_.*|PIPESTATUS' || true)
  [ -z "$_new" ] || die "unknown setting ${_new//$'\n'/, } in $1: $HERE/settings.sh has all that there are"
}

given_machine=${MACHINE:-}
. "$HERE/settings.sh"
for settings_file in ${SETTINGS:-}; do
  read_known_settings "$settings_file"
done
MACHINE=${given_machine:-$MACHINE}
DATA=${DATA:-data-bin/$DATA_NAME} # prepare.sh writes it, training reads it
RUNS=${RUNS:-runs/$NAME}          # one folder for each run: ENCODING-seedN
