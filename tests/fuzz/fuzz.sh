#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes each reader for some seconds, or one of them: fuzz.sh PROGRAM SECONDS [READER]
#
# What leads to new ways through a reader is kept beside the program, so that the next run begins there. A file that breaks
# a reader is left there too, and named; it belongs into the corpus, once the reader is mended.
set -euo pipefail
corpus="$(dirname "$0")/corpus"
program=$1
seconds=$2
readers=("${@:3}")
if ((${#readers[@]} == 0)); then
  mapfile -t readers < <(ls "$corpus")
fi
for reader in "${readers[@]}"; do
  found="$(dirname "$program")/found/$reader"
  mkdir -p "$found"
  echo "fuzz: $reader"
  # The limits are far above what files of this size may cost.
  "$program" "$reader" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -use_value_profile=1 -close_fd_mask=1 -verbosity=0 -print_final_stats=1 -artifact_prefix="$found-" "$found" "$corpus/$reader" 2>&1 |
    grep -v '^stat::slowest\|^stat::peak\|^stat::new\|^INFO'
done
