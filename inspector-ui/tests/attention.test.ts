import assert from "node:assert/strict";
import { test } from "node:test";
import { attentionStep, cellsUpTo, rowsUpTo } from "../src/logic/attention.ts";

test("the prompt costs the same with and without a cache", () => {
  assert.deepEqual(attentionStep(4, 0, true), attentionStep(4, 0, false));
  assert.equal(attentionStep(4, 0, true).cells, 10);
});

test("with a cache a step computes one row, without one the whole triangle", () => {
  assert.deepEqual(attentionStep(4, 2, true), { step: 2, length: 6, rows: [5, 6], cells: 6 });
  assert.deepEqual(attentionStep(4, 2, false), { step: 2, length: 6, rows: [0, 6], cells: 21 });
});

test("with a cache all steps together compute the triangle once", () => {
  for (const steps of [0, 1, 5, 9]) {
    const length = 3 + steps;
    assert.equal(cellsUpTo(3, steps, true), (length * (length + 1)) / 2);
    assert.equal(rowsUpTo(3, steps, true), length);
    assert.ok(steps === 0 || cellsUpTo(3, steps, false) > cellsUpTo(3, steps, true));
  }
});
