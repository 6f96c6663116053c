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
  if [ $status -eq 0 ]; then
    passed=$((passed + 1))
    table+=("$(printf '%-12s %6d s' "$name" $((SECONDS - begun)))")
    return
  fi
  failed=$((failed + 1))
  table+=("$(printf '%-12s %6d s  FAILED, to repeat it: %s' "$name" $((SECONDS - begun)) "$*")")
  [ -n "${GO_ON:-}" ] || summary
}

# The table, and the end: 1 if a stage failed.
summary() {
  printf '\n'
  printf '%s\n' "${table[@]}"
  printf '%-12s %6d s\n\n%d passed, %d failed\n' all $SECONDS $passed $failed
  [ $failed -eq 0 ] || exit 1
  exit 0
}
