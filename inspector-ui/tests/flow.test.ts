import assert from "node:assert/strict";
import { test } from "node:test";
import { visible, visibleToken, width } from "../src/logic/columns.ts";
import { layOut, rowAt, rowSpan } from "../src/logic/flow.ts";

const TEXT = "First line\n\nA second one that is longer than the columns, 日本語の文章もある 🙂 and_a_word_that_has_no_blank_at_all\n";

function rows(text: string, columns: number): string[] {
  const flow = layOut(text, columns);
  return Array.from({ length: flow.count }, (_, row) => text.slice(...rowSpan(flow, row)));
}

test("rows joined are the text, and each fits", () => {
  for (const columns of [8, 20, 33, 200]) {
    assert.equal(rows(TEXT, columns).join(""), TEXT);
    for (const row of rows(TEXT, columns)) {
      const used = [...row.replace("\n", "")].reduce((sum, sign) => sum + width(sign.codePointAt(0)!), 0);
      assert.ok(used <= columns, `${used} > ${columns}: ${row}`);
    }
  }
});

test("a row ends behind a line break, and at a blank where one is near", () => {
  assert.deepEqual(rows("one two three\nfour", 9), ["one two ", "three\n", "four"]);
});

test("no row begins inside a character", () => {
  for (const row of rows("🙂".repeat(50), 9)) assert.doesNotMatch(row, /^[\udc00-\udfff]/);
});

test("the row of a place holds it", () => {
  const flow = layOut(TEXT, 20);
  for (let at = 0; at < TEXT.length; at += 1) {
    const [start, end] = rowSpan(flow, rowAt(flow, at));
    assert.ok(start <= at && at < end);
  }
});

test("what one cannot see is shown by a sign, without moving anything", () => {
  assert.equal(visible("a\tb\n\u0000"), "a⇥b↵␀");
  assert.equal(visibleToken(" a\n"), "␣a↵");
});

test("an empty text has no rows", () => {
  assert.equal(layOut("", 20).count, 0);
});

test("wide characters take two columns, marks on others none", () => {
  assert.deepEqual([..."a日🙂é\u0301"].map((sign) => width(sign.codePointAt(0)!)), [1, 2, 2, 1, 0]);
});

test("a text may have many more rows than its length lets one guess", () => {
  const text = "\n".repeat(500) + "end";
  assert.deepEqual(rows(text, 80), [...Array(500).fill("\n"), "end"]);
});
