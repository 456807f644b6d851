#!/bin/bash
# Runs a command and passes its output on; where that is silent for four seconds it says that the command still runs, and for how
# long. Exits with the command's status. Usage: heartbeat.sh WHAT COMMAND...   HEARTBEAT=SECONDS: another interval.
what=$1
shift
"$@" 2>&1 | {
  begun=
  while true; do
    if IFS= read -r -t "${HEARTBEAT:-4}" line; then
      printf '%s\n' "$begun$line"
      begun=
    elif [ $? -gt 128 ]; then
      begun+=$line  # what arrived of a line
      printf '... %s, %d s\n' "$what" "$SECONDS"
    else
      [ -z "$begun$line" ] || printf '%s\n' "$begun$line"
      break
    fi
  done
}
exit "${PIPESTATUS[0]}"
