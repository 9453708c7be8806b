import assert from "node:assert/strict";
import { test } from "node:test";
import { doneAfter, mergeSteps, spacedHex, symbolsAfter, textOf } from "../src/logic/merges.ts";

const LOW = { text: "low", start: 0, symbols: ["6c", "6f", "77"], merges: [{ rank: 5, left: "6f", right: "77", at: 1 }, { rank: 9, left: "6c", right: "6f77", at: 0 }], ids: [7] };
const SUN = { text: "日", start: 3, symbols: ["e6", "97", "a5"], merges: [{ rank: 1, left: "e6", right: "97", at: 0 }], ids: [1, 2] };

test("each step joins one pair", () => {
  assert.deepEqual([0, 1, 2].map((count) => symbolsAfter(LOW, count)), [["6c", "6f", "77"], ["6c", "6f77"], ["6c6f77"]]);
  assert.deepEqual(symbolsAfter(SUN, 9), ["e697", "a5"]);
});

test("a merge that does not fit what stands there is told", () => {
  const wrong = { ...LOW, merges: [{ rank: 1, left: "6c", right: "77", at: 0 }] };
  assert.throws(() => symbolsAfter(wrong, 1), /got 6c 6f, the table says 6c 77/);
});

test("words are played one after the other", () => {
  assert.deepEqual(mergeSteps([LOW, SUN]), [{ word: 0, merge: 0 }, { word: 0, merge: 1 }, { word: 1, merge: 0 }]);
  assert.deepEqual([0, 1, 2, 3].map((step) => doneAfter([LOW, SUN], step)), [[0, 0], [1, 0], [2, 0], [2, 1]]);
});

test("bytes that are no whole character have no text", () => {
  assert.equal(textOf("e697"), null);
  assert.equal(textOf("e697a5"), "日");
  assert.equal(spacedHex("e697a5"), "E6 97 A5");
});
