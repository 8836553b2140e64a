#!/usr/bin/env bash
# A slice of every public trace against one running server, lengths scaled to what a small model on a CPU holds.
#   benchmarks/traces/replay.sh http://127.0.0.1:8000 FOLDER-WITH-TRACES > benchmarks/traces/results.jsonl
# FOLDER holds AzureLLMInferenceTrace_{conv,code}.csv, Mooncake's conversation trace, Weka's trace_*.json, and
# FastChat's dummy_conversation.json and mt_bench_question.jsonl, in any subfolders.
set -euo pipefail
endpoint=$1 traces=$2
autotune=${AUTOTUNE:-.venv/bin/autotune}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

replay() { # NAME [REPLAY OPTION…]: replay $work/NAME.jsonl; one line of what came back
  local name=$1
  shift
  echo "$name" >&2
  "$autotune" workload inspect "$work/$name.jsonl" --json > "$work/inspected"
  "$autotune" replay --endpoint "$endpoint" --workload "$work/$name.jsonl" --sla ttft_p90=120s --json "$@" \
    > "$work/replayed" || [ $? -eq 4 ]
  python3 - "$name" "$work" <<'PY'
import json, pathlib, sys
name, work = sys.argv[1], pathlib.Path(sys.argv[2])
inspected, replayed = (json.loads((work / part).read_text()) for part in ("inspected", "replayed"))
found = replayed["measurement"]
print(json.dumps({
    "trace": name, "slice_requests": inspected["requests"], "sent": found["sent"], "finished": found["finished"],
    "exact_prompts": replayed["exact_prompts"], "exact_outputs": replayed["exact_outputs"],
    "counted": inspected["counted"], "prefix_share_recorded": inspected["prefix_share"],
    "prefix_share_engine": replayed["prefix_share"], "send_lag_p99_ms": round(found["send_lag_p99_s"] * 1e3, 3),
    "errors": found["errors"],
}))
PY
}

for file in $(find "$traces" -name '*.csv' -o -name '*.json' -o -name '*.jsonl' | sort); do
  name=$(basename "$file")
  name=${name%.*}
  case $name in
    AzureLLM*)
      "$autotune" workload slice "$file" --from 0min --to 30s --out "$work/part.jsonl" --force
      "$autotune" workload scale "$work/part.jsonl" --lengths 0.25 --speed 0.5 --out "$work/$name.jsonl"
      replay "$name" --requests 25
      ;;
    conversation_trace*)
      "$autotune" workload slice "$file" --from 0min --to 40s --out "$work/part.jsonl" --force
      "$autotune" workload scale "$work/part.jsonl" --lengths 0.0625 --speed 0.2 --out "$work/$name.jsonl"
      replay "$name" --requests 25
      ;;
    trace_*)
      "$autotune" workload scale "$file" --lengths 0.03125 --out "$work/$name.jsonl"
      replay "$name" --requests 3
      ;;
    *)
      "$autotune" workload slice "$file" --share 10% --out "$work/part.jsonl" --force
      "$autotune" workload convert "$work/part.jsonl" --rate 1 --out "$work/$name.jsonl"
      replay "$name" --requests 25
      ;;
  esac
done
