#!/bin/sh
exec env python3 -m vllm.entrypoints.cli.main serve --config "$(dirname "$0")/tuned.yaml" "$@"
