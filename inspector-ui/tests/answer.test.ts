import assert from "node:assert/strict";
import test from "node:test";
import { grown, type Chunk } from "../src/logic/answer.ts";

const said = (...deltas: object[]) => deltas.map((delta): Chunk => ({ choices: [{ delta }] })).reduce(grown, { reasoning: "", text: "" });

test("reasoning and text grow apart", () => {
  assert.deepEqual(said({ role: "assistant", content: "" }, { reasoning_content: "h" }, { reasoning_content: "m" }, { content: "Hi" }), { reasoning: "hm", text: "Hi" });
});

test("a refusal is shown", () => {
  assert.equal(said({ content: null, refusal: "No" }, { refusal: "." }).text, "No.");
});

test("calls of both kinds are shown with their names", () => {
  const functions = [{ tool_calls: [{ index: 0, function: { name: "f", arguments: "" } }] }, { tool_calls: [{ index: 0, function: { arguments: "{}" } }] }];
  const customs = [{ tool_calls: [{ index: 1, custom: { name: "g", input: "" } }] }, { tool_calls: [{ index: 1, custom: { input: "1 +" } }] }];
  assert.equal(said(...functions, ...customs).text, "\nf {}\ng 1 +");
});

test("a chunk without a choice adds nothing", () => {
  assert.deepEqual(grown({ reasoning: "r", text: "t" }, { choices: [] }), { reasoning: "r", text: "t" });
});
