// LangChain over Quire: a stream, structured output and a tool. npm install @langchain/openai @langchain/core zod
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const chat = new ChatOpenAI({
  model: process.env.QUIRE_MODEL_NAME,
  apiKey: process.env.QUIRE_KEY ?? "none",
  configuration: { baseURL: `${process.env.QUIRE_URL ?? "http://127.0.0.1:8080"}/v1` },
  temperature: 0,
  maxTokens: 128,
});

for await (const piece of await chat.stream("What is a KV block?")) process.stdout.write(piece.text);
process.stdout.write("\n");

// The schema is enforced while the answer is generated.
const Verdict = z.object({ verdict: z.enum(["positive", "negative"]), sure: z.boolean() });
console.log(await chat.withStructuredOutput(Verdict, { name: "verdict", method: "jsonSchema", strict: true }).invoke("I like it."));

const weather = tool(async ({ city }) => `It rains in ${city}.`, {
  name: "weather", description: "Says the weather in a city.", schema: z.object({ city: z.enum(["Paris", "Rome"]) }),
});
const asked = [{ role: "user", content: "What is the weather in Paris?" }];
const call = await chat.bindTools([weather], { tool_choice: "weather" }).invoke(asked);
const result = await weather.invoke(call.tool_calls[0]);
console.log(result.content);
