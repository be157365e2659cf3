# Signals: what runs is asked to save and end, is waited for, and the script ends with exit code 75, as
# fairseq-train does. By itself bash passes no signal on, and heeds none while a command runs.
# Sourced by recipe.sh and scripts/quickstart.sh; needs bash 4.4. A script that wants it says: on_a_signal stopped
STOPPED=75 # sysexits' "temporary failure"
signals=0  # that have come

stopped() {
  echo "$(basename "$0"): stopped by a signal: the same command goes on (exit code $STOPPED)" >&2
  exit $STOPPED
}

# on_a_signal COMMAND: COMMAND is a word
on_a_signal() { trap "signals=\$((signals + 1)); $1" TERM INT HUP USR1; }

# await PID: its exit code -> $code, however many signals end the waiting before it ends
await() {
  local before
  while :; do
    before=$signals code=0
    wait "$1" || code=$?
    [ "$before" != "$signals" ] || return 0
  done
}

# ask_to_end PID...: all programs know SIGTERM; what is started with & ignores SIGINT
ask_to_end() { [ $# -eq 0 ] || kill -TERM "$@" 2>/dev/null || true; }

# stoppable COMMAND...: its exit code; STOPPED where it ended because of a signal. COMMAND has a process group
# of its own, so that Ctrl-C reaches it once: through this shell.
stoppable() {
  local pid= code before=$signals monitor=+m
  pass_on() { ask_to_end $pid; }
  on_a_signal pass_on
  [[ $- != *m* ]] || monitor=-m
  set -m
  "$@" </dev/null &
  pid=$!
  set $monitor
  [ "$before" = "$signals" ] || pass_on # it came before there was a pid
  await "$pid"
  on_a_signal stopped
  if [ "$before" != "$signals" ]; then
    case $code in 0 | 129 | 130 | 138 | 143) code=$STOPPED ;; esac
  fi
  return "$code"
}

# side_by_side JOBS COMMAND...: COMMAND with the words of a line of stdin for each line, so many at a time.
# Fails if one fails. When one was stopped no more are begun, and when all have ended the script ends as stopped.
side_by_side() {
  local jobs=$1 line lines words pids=() code stop= failed=0 before=$signals
  shift
  mapfile -t lines
  pass_on() { ask_to_end ${pids[@]+"${pids[@]}"}; }
  on_a_signal pass_on
  for line in ${lines[@]+"${lines[@]}"}; do
    while [ ${#pids[@]} -ge "$jobs" ]; do await_one; done
    [ -z "$stop" ] && [ "$before" = "$signals" ] || break
    read -ra words <<<"$line"
    "$@" "${words[@]}" </dev/null &
    pids+=($!)
  done
  [ "$before" = "$signals" ] || pass_on # it came between & and the list
  while [ ${#pids[@]} -gt 0 ]; do await_one; done
  on_a_signal stopped
  [ -z "$stop" ] && [ "$before" = "$signals" ] || stopped
  return $failed
}

# Part of side_by_side: returns when one has ended, or a signal has come.
await_one() {
  local pid running=()
  wait -n || true
  for pid in "${pids[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then
      running+=("$pid")
    else
      await "$pid"
      case $code in
        0) ;;
        "$STOPPED") stop=yes ;;
        *) failed=1 ;;
      esac
    fi
  done
  pids=(${running[@]+"${running[@]}"})
}
