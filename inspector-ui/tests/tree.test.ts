import assert from "node:assert/strict";
import { test } from "node:test";
import type { CacheNode } from "../src/api/contract.ts";
import { openRows } from "../src/logic/tree.ts";

const node = (key: string, ...children: CacheNode[]) => ({ key, children }) as CacheNode;
const TREE = [node("a", node("b", node("c")), node("d")), node("e")];

test("an open tree shows every node under its parent", () => {
  const rows = openRows(TREE, () => false);
  assert.deepEqual(rows.map((row) => [row.node.key, row.depth, row.parent]), [["a", 0, -1], ["b", 1, 0], ["c", 2, 1], ["d", 1, 0], ["e", 0, -1]]);
  assert.deepEqual(rows.map(({ place, siblings }) => `${place + 1}/${siblings}`), ["1/2", "1/2", "1/1", "2/2", "2/2"]);
});

test("a closed node hides what is under it", () => {
  assert.deepEqual(openRows(TREE, (key) => key === "b").map(({ node }) => node.key), ["a", "b", "d", "e"]);
  assert.deepEqual(openRows(TREE, (key) => key === "a").map(({ node }) => node.key), ["a", "e"]);
});
