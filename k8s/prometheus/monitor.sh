#!/usr/bin/env bash
# monitor.sh [DIR [FOLDER]]: Debian's Prometheus over whatever `allot run` runs below DIR (default
# runs; a single run's folder does as well), with the alert rules of this folder. It stays in the
# foreground until Ctrl-C. Configuration and data are kept in FOLDER (default build/monitor).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runs=${1:-runs}
folder=${2:-build/monitor}

command -v prometheus >/dev/null || { echo "monitor: there is no prometheus; install Debian's package prometheus" >&2; exit 69; }
mkdir -p "$folder/targets"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/lock"
flock -n 9 || { echo "monitor: another one runs on $folder; end it first" >&2; exit 75; }

port=9090
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
url=http://127.0.0.1:$port

# Below `spec` the operator's object is a rule file.
sed -n '1,/^spec:$/d; s/^  //p' "$here/rules.yaml" |
  sed "s|runbook_url: README.md|runbook_url: file://$here/README.md|" >"$folder/rules.yaml"
cat >"$folder/prometheus.yaml" <<YAML
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 5s}
rule_files: [$folder/rules.yaml]
scrape_configs:
  - job_name: allot
    file_sd_configs: [{files: ["$folder/targets/*.json"], refresh_interval: 2s}]
YAML

# Each process of a run leaves its address in a file and takes it away when it ends. Prometheus looks
# for such files in one folder, not below every run, hence the copies.
collect_targets() {
  local file copy
  local -A wanted=()
  for file in "$runs"/targets/*.json "$runs"/*/targets/*.json; do
    file=$(realpath -e "$file" 2>/dev/null) || continue  # also: runs/latest is one of the others
    copy=$(basename "${file%/targets/*}")-${file##*/}
    wanted[$copy]=1
    cmp -s "$file" "$folder/targets/$copy" && continue
    cp "$file" "$folder/targets/new" 2>/dev/null && mv "$folder/targets/new" "$folder/targets/$copy"
  done
  for copy in "$folder"/targets/*.json; do
    [ -n "${wanted[${copy##*/}]:-}" ] || rm -f "$copy"
  done
}

collect_targets
prometheus --config.file="$folder/prometheus.yaml" --storage.tsdb.path="$folder/data" \
  --web.listen-address="127.0.0.1:$port" --log.level=warn 9>&- &
prometheus=$!
trap 'trap - INT TERM; kill "$prometheus" 2>/dev/null; wait "$prometheus" || true; exit 0' INT TERM

cat <<TEXT
Prometheus: $url (Ctrl-C ends it)
  reward    $url/graph?g0.expr=allot_update_reward_ratio&g0.tab=0&g0.range_input=15m
  schedule  $url/graph?g0.expr=allot_policy_layer_probability_ratio&g0.tab=0&g0.stacked=1&g0.range_input=15m
  alerts    $url/classic/alerts
It watches the runs in $runs as they come and go; its data stays in $folder.
TEXT

while kill -0 "$prometheus" 2>/dev/null; do
  collect_targets
  sleep 1 &
  wait $! || true
done
wait "$prometheus" && code=0 || code=$?
echo "monitor: prometheus has ended by itself, see above" >&2
exit "$((code == 0 ? 70 : code))"
