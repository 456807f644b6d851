#!/usr/bin/env bash
# What a machine checks of how the tree reads, without compiling it: format, forbidden includes, sizes. Exit 1 and one line per
# finding. Naming and function length are tidy.py's.
set -uo pipefail
cd "$(dirname "$0")/../.."
failed=0

report() { # title, findings
  [ -z "$2" ] && return
  printf '%s\n%s\n' "$1" "$2"
  failed=1
}

mapfile -t sources < <(git ls-files -co --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh')
[ ${#sources[@]} -gt 0 ] || { echo "no sources found"; exit 1; }
echo "lint: format, includes, sizes, documents and words of ${#sources[@]} sources"

# Versions of clang-format disagree on details; Debian 12's decides.
if clang-format --version | grep -q 'version 14\.'; then
  report "not formatted (run clang-format -i):" \
    "$(printf '%s\n' "${sources[@]}" | grep -v -x -F -f tests/lint/generated.txt | xargs -r -n 20 -P "$(nproc)" clang-format --dry-run 2>&1 |
       sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: code should be.*/\1/p' | sort -u)"
else
  echo "skipped: the format, which clang-format 14 decides"
fi

# server -> core -> kernels, never backwards; config only from main.
forbid() { # folder, pattern, why
  report "forbidden include in $1/ ($3):" "$(grep -rnE "^#include [\"<]($2)" "$1" --include='*.h' --include='*.cpp' --include='*.cu')"
}
forbid kernels '(core|server|config)/|nlohmann|boost|yaml-cpp|CLI' "kernels know tensors only"
forbid core '(server|config)/|boost/(asio|beast|url)|yaml-cpp|CLI|openssl' "core knows no sockets, HTTP or YAML"
forbid config 'boost' "config maps YAML and flags to option structs"
report "config/ included outside main.cpp of quire and quire-dev:" \
  "$(grep -rnE '^#include "config/' server core kernels --include='*.h' --include='*.cpp' | grep -vE '^server/(dev/)?main.cpp:')"
report "folders that include each other in a circle:" "$(python3 tests/lint/folders.py 2>&1)"
report "kernels seen by the API or a session, or headers that lead to too many lines:" "$(python3 tests/lint/includes.py 2>&1)"
report "sources of core/model/ outside its four folders:" "$(ls core/model/*.h core/model/*.cpp 2>/dev/null)"
forbid server/api 'server/(wire|session|gate|run|state|threads|admin|models|ops|cli|client|web)/|boost' "an API knows no socket"
# fields <- common <- generation <- conversation <- one folder per API, which knows no other API's.
api_includes() { # folder of server/api, the folders that it may include
  report "forbidden include in server/api/$1/ (it may include: $2):" \
    "$(grep -rnE '^#include "server/api/' "server/api/$1" --include='*.h' --include='*.cpp' | grep -vE "\"server/api/($2)/")"
}
for folder in server/api/*/; do
  name=$(basename "$folder")
  case $name in
    fields) api_includes fields 'fields' ;;
    common) api_includes common 'fields|common' ;;
    generation) api_includes generation 'fields|common|generation' ;;
    conversation) api_includes conversation 'fields|common|generation|conversation' ;;
    *) api_includes "$name" "fields|common|generation|conversation|$name" ;;
  esac
  [ -f "$folder/README.md" ] || report "missing:" "  ${folder}README.md"
  report "over 60 lines:" "$([ "$(wc -l < "$folder/README.md")" -le 60 ] || echo "  ${folder}README.md")"
done
forbid server/batch 'server/(wire|session|gate|run|state|threads|admin|models|ops|cli|client|web)/|server/api/[abd-z]|boost' "the store of batches knows files and JSON only"
report "sources of server/api/ outside its folders:" "$(ls server/api/*.h server/api/*.cpp 2>/dev/null)"
report "Asio or Beast included in core headers:" "$(grep -rlE '^#include <boost/(asio|beast)' core kernels)"

report "files over 500 lines:" \
  "$(git ls-files -co --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.py' '*.mjs' '*.js' '*.sh' '*.html' '*.css' | grep -v -x -F -f tests/lint/generated.txt |
     xargs -r wc -l | awk '$2 != "total" && $1 > 500 { print "  " $2 ": " $1 }')"

report "headers without #pragma once or an opening comment:" \
  "$(git ls-files -co --exclude-standard -- '*.h' |
     xargs -r awk 'FNR == 1 { if (file && !once) print "  " file; file = FILENAME; once = 0; if (!/^\/\//) print "  " file }
                   /^#pragma once/ { once = 1 }
                   END { if (file && !once) print "  " file }' | sort -u)"
report "header comments over 8 lines:" \
  "$(git ls-files -co --exclude-standard -- '*.h' |
     xargs -r awk 'FNR == 1 { within = 1 } within && !/^\/\// { within = 0; if (FNR > 9) print "  " FILENAME ": " FNR - 1 }')"
report "folder READMEs over 60 lines:" \
  "$(for folder in server core kernels config tests deploy; do
       [ -f "$folder/README.md" ] || { echo "  $folder/README.md is missing"; continue; }
       [ "$(wc -l < "$folder/README.md")" -le 60 ] || echo "  $folder/README.md"
     done)"
report "dead links, broken tables or open code blocks in documents:" "$(python3 tests/lint/documents.py)"
# Plain technical English: a subject, an active verb, the field's term.
riddles='\b(nobody|whoever|somebody|anybody|everybody|anew|(is|are|was|were|been|be) told|has no numbers|what no [a-z]+ (can|may)|lets? (it |them )?go of|a room of|go(es|ne|ing)? on (with|from|where)|goes on|(is|are|be) had|for want of|spoken to|(give|gives|gave|given|giving) (it |them |its [a-z]+ |their [a-z]+ )?back|who (waits|asks|drains|wants|deletes|downloads)|tells? (nothing|of)|in whatever|what is left lies)\b'
report "riddles instead of terms (who, nobody, told ...):" \
  "$(git ls-files -co --exclude-standard -- . ':!tests/lint/run.sh' ':!deploy/demo-model' ':!tests/fuzz/corpus' ':!LICENSE' |
     grep -vE '\.(png|gguf|gz|safetensors|npy|jsonl)$' | xargs -r grep -nHIiE "$riddles")"
report "marks of unfinished work:" \
  "$(git ls-files -co --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.py' '*.mjs' '*.js' '*.cmake' | xargs -r grep -nE '\b(TODO|FIXME|XXX|HACK|DEFERRED)\b')"

[ $failed -eq 0 ] && echo "lint: clean, ${#sources[@]} files"
exit $failed
