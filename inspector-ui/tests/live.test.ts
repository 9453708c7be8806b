import assert from "node:assert/strict";
import { test } from "node:test";
import { merged } from "../src/api/live.ts";
import type { Summary } from "../src/api/contract.ts";

const summary = (id: string, number: number, output_tokens = 0) => ({ id, number, output_tokens }) as Summary;

test("a changed request takes its old place, a new one stands first, a dropped one is gone", () => {
  const before = [summary("c", 3), summary("b", 2), summary("a", 1)];
  const after = merged(before, { cursor: 9, requests: [summary("b", 2, 7), summary("d", 4)], gone: ["a"] });
  assert.deepEqual(after, [summary("d", 4), summary("c", 3), summary("b", 2, 7)]);
});

test("nobody dropped is null", () => {
  assert.deepEqual(merged([], { cursor: 1, requests: [summary("a", 1)], gone: null }), [summary("a", 1)]);
});
