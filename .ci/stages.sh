# Sourced by the scripts of this folder: stages, each a command that people run, and what they took.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export ALLOT_CI=1  # a missing tool fails a test that would be skipped otherwise

table=() passed=0 failed=0

# stage NAME COMMAND...
stage() {
  local name=$1 begun=$SECONDS status=0
  shift
  printf '\n==== %s: %s\n' "$name" "$*"
  "$@" || status=$?
  settle $status "$name" $begun "$*"
}

# settle STATUS NAME BEGUN COMMAND
settle() {
  if [ "$1" -eq 0 ]; then
    passed=$((passed + 1))
    table+=("$(printf '%-12s %6d s' "$2" $((SECONDS - $3)))")
    return
  fi
  failed=$((failed + 1))
  table+=("$(printf '%-12s %6d s  FAILED, to repeat it: %s' "$2" $((SECONDS - $3)) "$4")")
  [ -n "${GO_ON:-}" ] || summary
}

# beside NAME COMMAND...: a stage that goes on in the background, until `join` waits for it and prints what it said.
beside() {
  beside_name=$1 beside_log=build/$1.log beside_begun=$SECONDS
  shift
  beside_command=$*
  printf '\n==== %s, beside what follows: %s\n' "$beside_name" "$*"
  setsid "$@" >"$beside_log" 2>&1 &
  beside_pid=$!
}

join() {
  local status=0
  printf '\n==== %s: %s\n' "$beside_name" "$beside_command"
  wait "$beside_pid" || status=$?
  beside_pid=
  cat "$beside_log"
  settle $status "$beside_name" "$beside_begun" "$beside_command"
}

# What still goes on beside, if the script ends before it, is told to end and may tidy up.
leave() {
  if [ -n "${beside_pid:-}" ]; then
    kill -- "-$beside_pid" 2>/dev/null || true
    wait "$beside_pid" || true
  fi
}
trap leave EXIT

# The table, and the end: 1 if a stage failed.
summary() {
  printf '\n'
  printf '%s\n' "${table[@]}"
  printf '%-12s %6d s\n\n%d passed, %d failed\n' all $SECONDS $passed $failed
  [ $failed -eq 0 ] || exit 1
  exit 0
}
