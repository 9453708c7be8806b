import assert from "node:assert/strict";
import { test } from "node:test";
import { en } from "../src/text/en.ts";
import { zh } from "../src/text/zh.ts";

const keys = Object.keys(en) as (keyof typeof en)[];
const holes = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort();

test("both languages have the same texts", () => {
  assert.deepEqual(Object.keys(zh).sort(), [...keys].sort());
});

test("the same values are filled into both", () => {
  for (const key of keys) assert.deepEqual(holes(zh[key]), holes(en[key]), key);
});

test("no text is empty or left in English", () => {
  const proper = new Set(["protocol.chat", "protocol.responses", "protocol.messages", "transport.websocket", "requests.ssd", "region.hit_ssd", "cache.tier.ssd", "help.language"]);
  for (const key of keys) {
    assert.ok(zh[key].trim(), key);
    if (!proper.has(key)) assert.match(zh[key], /[\u4e00-\u9fff]/, key);
  }
});
