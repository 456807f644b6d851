// Validation against OpenAI's published schemas, where the test material has them.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import Ajv from "ajv";

const material = process.env.QUIRE_TEST_MATERIAL ?? join(process.env.QUIRE_SOURCE ?? ".", "../shared/material");
const path = join(material, "openai-api/openapi.inference-subset.json");

// JSON Schema has no "nullable": OpenAPI's meaning of it is spelled out for the validator.
function spell_out_nullable(node) {
  if (Array.isArray(node)) return node.map(spell_out_nullable);
  if (node === null || typeof node !== "object") return node;
  const copy = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, spell_out_nullable(value)]));
  if (copy.nullable !== true) return copy;
  delete copy.nullable;
  return { anyOf: [copy, { type: "null" }] };
}

function load() {
  if (!existsSync(path)) return null;
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  return ajv.addSchema(spell_out_nullable(JSON.parse(readFileSync(path, "utf8"))), "openai");
}

const ajv = load();

// Why tests that need the schemas are skipped; false where they are there.
export const no_schemas = ajv === null ? `test material '${path}' is absent` : false;

export function assert_conforms(name, value) {
  const validate = ajv.getSchema(`openai#/components/schemas/${name}`);
  if (!validate(value)) {
    assert.fail(`not a ${name}: ${JSON.stringify(validate.errors.slice(0, 3))} in ${JSON.stringify(value)}`);
  }
}
