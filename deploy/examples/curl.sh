#!/bin/sh
# The API from a shell: models, a chat, a stream, an answer that matches a schema, embeddings, tokens.
set -eu
url=${QUIRE_URL:-http://127.0.0.1:8080}
ask() { # path, JSON body, more arguments of curl
  path=$1 body=$2
  shift 2
  curl -sS --fail-with-body "$url$path" ${QUIRE_KEY:+-H "Authorization: Bearer $QUIRE_KEY"} --json "$body" "$@"
  echo
}

echo "models:"
curl -sS --fail-with-body "$url/v1/models" ${QUIRE_KEY:+-H "Authorization: Bearer $QUIRE_KEY"}

printf '\na chat:\n'
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "What is a KV block?"}], "max_tokens": 64}'

printf '\na stream:\n'
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16, "stream": true}' -N

printf '\nan answer that matches a schema:\n'
ask /v1/chat/completions '{
  "messages": [{"role": "user", "content": "Is the sky blue?"}],
  "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {
    "type": "object", "required": ["answer"], "additionalProperties": false,
    "properties": {"answer": {"enum": ["yes", "no"]}}}}}}'

printf '\nembeddings:\n'
ask /v1/embeddings '{"input": ["one text", "another"], "dimensions": 4}'

printf '\ntokens:\n'
ask /tokenize '{"prompt": "Hello there"}'
