import assert from "node:assert/strict";
import { test } from "node:test";
import { decoded, jsonRows } from "../src/logic/json-rows.ts";

const BODY = '{"model": "m",\n "n": 1.00e0, "twice": 1, "twice": 2, "messages": [{"content": "Say \\"hi\\"\\nand 日本 \\ud83d\\ude42", "tools": []}, {}]}';

function shown(body: string, columns: number): string[] {
  return jsonRows(body, columns).map((row) => "  ".repeat(row.depth) + row.runs.map(({ at }) => body.slice(...at)).join(""));
}

test("every character of the values is shown as it came, only blanks between them are laid out anew", () => {
  const text = (rows: string[]) => rows.join("").replace(/\s/g, "");
  for (const columns of [20, 40, 200]) assert.equal(text(shown(BODY, columns)), BODY.replace(/\s/g, ""));
  assert.ok(shown(BODY, 200).includes('  "n":1.00e0,'));
  assert.equal(shown(BODY, 200).filter((row) => row.includes('"twice"')).length, 2);
});

test("members stand one a row, deeper ones further right", () => {
  assert.deepEqual(shown('{"a":[1,{"b":null}],"c":{}}', 80), ["{", '  "a":[', "    1,", "    {", '      "b":null', "    }", "  ],", '  "c":{}', "}"]);
});

test("a string breaks behind its line breaks", () => {
  assert.deepEqual(shown('{"a":"one\\ntwo"}', 80), ["{", '  "a":"one\\n', '  two"', "}"]);
});

test("what is no JSON is shown as it is", () => {
  for (const body of ["not json", '{"a": }', "{} {}", '{"a" 1}', "[".repeat(300)]) {
    assert.equal(shown(body, 40).join("").replace(/\s/g, ""), body.replace(/\s/g, ""), body);
  }
});

test("a body that was cut off is shown to its end", () => {
  for (let cut = 1; cut < BODY.length; cut += 1) {
    assert.equal(shown(BODY.slice(0, cut), 40).join("").replace(/\s/g, ""), BODY.slice(0, cut).replace(/\s/g, ""));
  }
});

test("a decoded string knows where each raw character stands in it", () => {
  const raw = '"a\\n\\u65e5b\\"c"';
  const { text, offsetOf } = decoded(raw);
  assert.equal(text, 'a\n日b"c');
  assert.equal(text, JSON.parse(raw));
  for (const sign of ["a", "b", "c"]) assert.equal(text[offsetOf(raw.indexOf(sign, sign === "b" ? 10 : 0))], sign);
  assert.equal(offsetOf(raw.length), text.length);
});

test("decoding is what JSON says, for any escapes", () => {
  for (const value of ["", "plain", '"', "\\", "\\n", "\n\t\r\b\f/", "日本🙂", "a\u0001b"]) {
    const raw = JSON.stringify(value);
    assert.equal(decoded(raw).text, value);
    assert.equal(decoded(raw).offsetOf(raw.length - 1), value.length);
  }
});

test("a body that was cut off behind a key is still laid out as JSON", () => {
  assert.deepEqual(shown('{"a": {"b":', 40), ["{", '  "a":{', '    "b":']);
});

test("no row begins inside an escape", () => {
  for (let columns = 8; columns < 30; columns += 1) {
    for (const row of shown(`["${"\\u65e5".repeat(20)}"]`, columns).slice(1, -1)) assert.match(row.trim(), /^"?(\\u65e5)*"?$/);
  }
});
