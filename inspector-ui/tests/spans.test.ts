import assert from "node:assert/strict";
import { test } from "node:test";
import type { Span } from "../src/api/contract.ts";
import { lastAtOrBefore, overlaps, within } from "../src/logic/spans.ts";

test("spans that only touch do not overlap", () => {
  assert.ok(overlaps([0, 2], [1, 3]));
  assert.ok(!overlaps([0, 2], [2, 3]));
});

test("within finds what a plain search finds, borders shared or not", () => {
  const items: Span[] = [[0, 3], [2, 5], [5, 5], [5, 9], [8, 12], [12, 20]];
  for (let start = 0; start < 21; start += 1) {
    for (let end = start + 1; end <= 21; end += 1) {
      const plain = items.filter((item) => overlaps(item, [start, end]));
      assert.deepEqual(within(items, (item) => item, [start, end]), plain, `${start} ${end}`);
    }
  }
});

test("the last start at or before a place", () => {
  const starts = [0, 4, 4, 9];
  assert.deepEqual([-1, 0, 3, 4, 8, 9, 99].map((at) => lastAtOrBefore(4, (index) => starts[index], at)), [-1, 0, 0, 2, 2, 3, 3]);
});
