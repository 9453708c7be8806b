import assert from "node:assert/strict";
import { test } from "node:test";
import { difference } from "../src/logic/diff.ts";

test("what differs is between what both begin and end with", () => {
  assert.deepEqual(difference("at 02:04 sharp", "at 02:15 sharp"), { start: "at 02:", one: "04", other: "15", end: " sharp" });
});

test("a part that is missing on one side is empty there", () => {
  assert.deepEqual(difference("aaa", "aa"), { start: "aa", one: "a", other: "", end: "" });
  assert.deepEqual(difference("", "b"), { start: "", one: "", other: "b", end: "" });
});

test("equal texts have no difference", () => {
  assert.deepEqual(difference("same", "same"), { start: "same", one: "", other: "", end: "" });
});
