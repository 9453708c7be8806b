// One turn with a tool through the AI SDK: node ai_sdk.mjs BASE_URL chat|responses|messages. The tool writes a file where it runs.
import { writeFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, protocol] = process.argv.slice(2);
const apiKey = "sk-test";
const models = {
  chat: () => createOpenAICompatible({ name: "zllm", baseURL, apiKey, includeUsage: true })("scripted"),
  responses: () => createOpenAI({ baseURL, apiKey }).responses("scripted"),
  messages: () => createAnthropic({ baseURL, apiKey })("scripted"),
};
const writeNote = tool({
  description: "Writes a note",
  inputSchema: z.object({ text: z.string(), times: z.number().int() }),
  execute: async ({ text, times }) => {
    writeFileSync("by-the-tool.txt", `${text}\n`.repeat(times));
    return { written: times };
  },
});
const answer = streamText({
  model: models[protocol](),
  prompt: "Write a note.",
  tools: { write_note: writeNote },
  stopWhen: stepCountIs(4),
  maxOutputTokens: 4000,
  providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
});
for await (const part of answer.fullStream) {
  if (part.type === "error") throw part.error;
}
const steps = await answer.steps;
const usage = await answer.totalUsage;
console.log(JSON.stringify({ steps: steps.length, text: await answer.text, usage }));
if (steps.length !== 2 || !usage.inputTokens) process.exit(1);
